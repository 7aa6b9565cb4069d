# cmake -DDOXYGEN=<program> -DDOXYFILE=<file> -DOUTPUT=<folder> -P check_reference.cmake
# Builds the reference. Fails when a name of a namespace, or a macro, has no comment. Members need
# none of their own where the comment of their class or concept says what they are.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${OUTPUT}")
file(MAKE_DIRECTORY "${OUTPUT}")
execute_process(COMMAND "${DOXYGEN}" "${DOXYFILE}" COMMAND_ERROR_IS_FATAL ANY)
file(READ "${OUTPUT}/warnings.txt" text)
string(REGEX REPLACE "[][;]" " " text "${text}")
string(REPLACE "\n" ";" lines "${text}")
list(FILTER lines INCLUDE REGEX "is not documented")
list(FILTER lines EXCLUDE REGEX " of (struct|class) .* is not documented")
if(lines)
  list(JOIN lines "\n  " lines)
  message(FATAL_ERROR "names without a comment:\n  ${lines}")
endif()
if(NOT EXISTS "${OUTPUT}/html/classquern_1_1PackedView.html")
  message(FATAL_ERROR "the reference has no page for PackedView")
endif()
