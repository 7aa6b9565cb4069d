# cmake -DCHECK=<check.cmake> -DCOMPILER=<g++> -DINCLUDES=<...> -DWORK=<folder> -P self_test.cmake
# Proves that check.cmake passes sample.cpp and fails each spoiled copy of it, for the right reason.
cmake_minimum_required(VERSION 3.25)

set(sample "${CMAKE_CURRENT_LIST_DIR}/sample.cpp")
file(READ "${sample}" text)

function(expect fails sentence)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "REPLACE;BY" "")
  set(spoiled "${text}")
  if(DEFINED arg_REPLACE)
    string(REPLACE "${arg_REPLACE}" "${arg_BY}" spoiled "${text}")
    if(spoiled STREQUAL text)
      message(FATAL_ERROR "the sample has no '${arg_REPLACE}'")
    endif()
  endif()
  file(WRITE "${WORK}/sample.cpp" "${spoiled}")
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DCOMPILER=${COMPILER}" "-DINCLUDES=${INCLUDES}"
                          "-DSOURCE=${WORK}/sample.cpp" -P "${CHECK}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
  string(REGEX REPLACE "[ \n]+" " " log "${log}") # cmake breaks the lines of its messages
  string(FIND "${log}" "${sentence}" position)
  if((fails AND result EQUAL 0) OR (NOT fails AND NOT result EQUAL 0) OR position EQUAL -1)
    message(FATAL_ERROR "exit ${result}, expected '${sentence}' in:\n${log}")
  endif()
endfunction()

expect(FALSE "the control compiles, 2 misuses say what they should")
expect(TRUE "misuse 1 compiles" REPLACE "Shape from_label" BY "Label from_label")
expect(TRUE "misuse 2 fails without saying" REPLACE "// that goes on" BY "// which goes on")
expect(TRUE "misuse 2 fails without saying" REPLACE "sizeof(int) == 1" BY "sizeof(undeclared) == 1")
expect(TRUE "the control does not compile" REPLACE "out_in(file)" BY "in_out(file)")
expect(TRUE "misuse 2 has no '// expect 2" REPLACE "// expect 2:" BY "//")
expect(TRUE "expectation 3 has no" REPLACE "// expect 2:" BY "// expect 3:")
expect(TRUE "two expectations for misuse 1" REPLACE "// expect 2:" BY "// expect 1:")
expect(TRUE "no '// expect: <sentence>' comment" REPLACE "// expect" BY "// expected")

file(WRITE "${WORK}/single.cpp" "// expect: one [out; in\nint a;\n#ifdef QUERN_MISUSE\n"
                                "static_assert(sizeof(a) == 0, \"one [out; in\");\n#endif\n")
set(text "")
file(READ "${WORK}/single.cpp" text)
expect(FALSE "the control compiles, 1 misuses say what they should")
expect(TRUE "expectation 1 has no" REPLACE "#ifdef QUERN_MISUSE" BY "#if defined(QUERN_MISUSE)")
