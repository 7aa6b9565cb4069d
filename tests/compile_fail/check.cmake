# cmake -DCOMPILER=<g++> -DSOURCE=<file> -DINCLUDES=<file that sets includes> -P check.cmake
#
# A file with one misuse:                      With several, numbered from 1:
#   // expect: the sentence                      // expect 1: the sentence, which may
#   #include <...>                               // go on in the next comment line
#   ... the control ...                          // expect 2: another one
#   #ifdef QUERN_MISUSE                          #include <...>
#   ... the misuse ...                           #if QUERN_MISUSE == 1
#   #endif                                       ...
#
# The test passes when the control compiles and each misuse fails to, with its sentence in the log.
cmake_minimum_required(VERSION 3.25)
include("${INCLUDES}")
list(REMOVE_DUPLICATES includes)
list(TRANSFORM includes PREPEND "-I")

# Compiles with the given options; sets result and log in the caller.
function(compile)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env LC_ALL=C "${COMPILER}" -std=c++20 ${includes}
                          ${precompiled} ${ARGN} -c "${SOURCE}" -o /dev/null
                  RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
  set(result "${result}" PARENT_SCOPE)
  set(log "${log}" PARENT_SCOPE)
endfunction()

# The expectations are read by cutting the text, not as a CMake list: a sentence may hold any
# character.
file(READ "${SOURCE}" text)
set(numbers "")
set(rest "\n${text}")
while(rest MATCHES "\n// expect( ([0-9]+))?: ([^\n]+)\n(.*)$")
  set(number "${CMAKE_MATCH_2}")
  set(sentence "${CMAKE_MATCH_3}")
  set(rest "\n${CMAKE_MATCH_4}")
  while(NOT rest MATCHES "^\n// expect" AND rest MATCHES "^\n// ([^\n]+)\n(.*)$")
    string(APPEND sentence " ${CMAKE_MATCH_1}")
    set(rest "\n${CMAKE_MATCH_2}")
  endwhile()
  if(number STREQUAL "")
    set(number 1)
    set(guard "#ifdef QUERN_MISUSE")
  else()
    set(guard "QUERN_MISUSE == ${number}\n")
  endif()
  string(FIND "${text}" "${guard}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "${SOURCE}: expectation ${number} has no '${guard}'")
  endif()
  if(number IN_LIST numbers)
    message(FATAL_ERROR "${SOURCE}: two expectations for misuse ${number}")
  endif()
  list(APPEND numbers ${number})
  set("sentence_${number}" "${sentence}")
endwhile()
if(numbers STREQUAL "")
  message(FATAL_ERROR "${SOURCE}: no '// expect: <sentence>' comment")
endif()

string(REGEX MATCHALL "QUERN_MISUSE == [0-9]+" guards "${text}")
foreach(guard IN LISTS guards)
  string(REGEX REPLACE "^.* " "" number "${guard}")
  if(NOT number IN_LIST numbers)
    message(FATAL_ERROR "${SOURCE}: misuse ${number} has no '// expect ${number}: <sentence>'")
  endif()
endforeach()

# The headers take most of the time of each of these compilations, so they are compiled once.
string(REGEX MATCHALL "#include [<\"][^>\"]+[>\"]" headers "${text}")
list(JOIN headers "\n" headers)
cmake_path(GET SOURCE STEM stem)
cmake_path(GET COMPILER FILENAME compiler_name)
set(prefix "${CMAKE_CURRENT_BINARY_DIR}/${stem}.${compiler_name}.hpp")
file(WRITE "${prefix}" "${headers}\n")
execute_process(COMMAND "${COMPILER}" -std=c++20 ${includes} -x c++-header "${prefix}" -o
                        "${prefix}.gch"
                RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
set(precompiled "")
if(result EQUAL 0)
  set(precompiled -include "${prefix}")
endif()

compile()
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: the control does not compile:\n${log}")
endif()

foreach(number IN LISTS numbers)
  compile(-DQUERN_MISUSE=${number})
  if(result EQUAL 0)
    message(FATAL_ERROR "${SOURCE}: misuse ${number} compiles")
  endif()
  string(FIND "${log}" "${sentence_${number}}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "${SOURCE}: misuse ${number} fails without saying\n"
                        "${sentence_${number}}\nbut with:\n${log}")
  endif()
endforeach()

file(REMOVE "${prefix}" "${prefix}.gch")

list(LENGTH numbers count)
message(STATUS "the control compiles, ${count} misuses say what they should")
