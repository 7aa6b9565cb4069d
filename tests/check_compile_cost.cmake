# cmake -DROOT=<project> -DCOMPILER=<clang++> -DINCLUDES=<file that sets includes> -DWORK=<folder>
#   -P check_compile_cost.cmake
# Fails when <quern/quern.hpp> instantiates more templates than docs/compile-cost.md allows.
cmake_minimum_required(VERSION 3.25)
include("${INCLUDES}")
list(REMOVE_DUPLICATES includes)
list(TRANSFORM includes PREPEND "-I")
file(MAKE_DIRECTORY "${WORK}")
file(WRITE "${WORK}/all.cpp" "#include <quern/quern.hpp>\n")
execute_process(COMMAND "${COMPILER}" -std=c++20 -O0 ${includes} -ftime-trace
                        -ftime-trace-granularity=0 -c "${WORK}/all.cpp" -o "${WORK}/all.o"
                        COMMAND_ERROR_IS_FATAL ANY)
file(READ "${ROOT}/docs/compile-cost.md" page)
foreach(kind classes functions)
  if(NOT page MATCHES "\n[|] ${kind} [|] [0-9]+ [|] ([0-9]+) [|]")
    message(FATAL_ERROR "docs/compile-cost.md has no limit for ${kind}")
  endif()
  set(limit "${CMAKE_MATCH_1}")
  set(event InstantiateFunction)
  if(kind STREQUAL "classes")
    set(event InstantiateClass)
  endif()
  # Events follow each other in one line, which is too long for a CMake list.
  execute_process(COMMAND grep -o "\"${event}\"" "${WORK}/all.json" COMMAND grep -c .
                  OUTPUT_VARIABLE count OUTPUT_STRIP_TRAILING_WHITESPACE)
  message(STATUS "${count} ${kind} of at most ${limit}")
  if(NOT count GREATER 1000)
    message(FATAL_ERROR "clang counted ${count} ${kind}")
  elseif(count GREATER limit)
    message(SEND_ERROR "${count} instantiations of ${kind}, docs/compile-cost.md allows ${limit}")
  endif()
endforeach()
file(REMOVE "${WORK}/all.json")
