# cmake -DSOURCE=... -DBINARY=... -DGENERATOR=... -DCTEST=... -P run.cmake -- <option>...
# Configures a project afresh with the options, builds it and runs its tests.
cmake_minimum_required(VERSION 3.25)

set(options "")
math(EXPR last "${CMAKE_ARGC} - 1")
set(after FALSE)
foreach(i RANGE ${last})
  if(after)
    list(APPEND options "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after TRUE)
  endif()
endforeach()

file(REMOVE_RECURSE "${BINARY}")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BINARY}" -G "${GENERATOR}"
                        ${options} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${BINARY}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CTEST}" --test-dir "${BINARY}" --output-on-failure
                        --no-tests=error COMMAND_ERROR_IS_FATAL ANY)
