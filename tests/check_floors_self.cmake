# cmake -DCHECK=<check_floors.cmake> -DWORK=<scratch folder> -P check_floors_self.cmake
# Proves that the floor check sees each kind of fault: a sound tree passes, and the same tree with
# one fault in it fails with the sentence for that fault.
cmake_minimum_required(VERSION 3.25)

set(cases 0)

function(write_header path floor)
  file(WRITE "${WORK}/${path}" "// floor: ${floor}\n#pragma once\n\n")
  foreach(include IN LISTS ARGN)
    file(APPEND "${WORK}/${path}" "#include ${include}\n")
  endforeach()
endfunction()

function(write_sound_tree)
  file(REMOVE_RECURSE "${WORK}")
  write_header(detail/quern/detail/config.hpp 0 <cstddef>)
  write_header(detail/quern/detail/memory.hpp 0.1 <quern/detail/config.hpp> <sys/mman.h>)
  write_header(include/quern/error.hpp 1 <stdexcept> <quern/detail/config.hpp>)
  write_header(include/quern/view.hpp 10 <quern/error.hpp> <boost/mp11.hpp>) # 10 > 2: not text
  write_header(include/quern/gguf/file.hpp 10.2 <fstream> <sys/mman.h> <quern/view.hpp>)
  write_header(include/quern/eigen/reference.hpp 10.3 <Eigen/Core> <quern/view.hpp>)
  write_header(kernels/quern/kernels/avx2.hpp 2 <immintrin.h> <quern/error.hpp>)
endfunction()

function(expect fails sentence)
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DROOT=${WORK}" -P "${CHECK}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
  string(FIND "${log}" "${sentence}" position)
  if((fails AND result EQUAL 0) OR (NOT fails AND NOT result EQUAL 0) OR position EQUAL -1)
    message(FATAL_ERROR "exit ${result}, expected '${sentence}' in:\n${log}")
  endif()
  math(EXPR cases "${cases} + 1")
  set(cases ${cases} PARENT_SCOPE)
endfunction()

write_sound_tree()
expect(FALSE "7 headers, no fault")

macro(expect_fault sentence path)
  write_sound_tree()
  write_header("${path}" ${ARGN})
  expect(TRUE "${sentence}")
endmacro()

expect_fault("of floor 10" include/quern/error.hpp 1 <quern/view.hpp>)
expect_fault("of floor 1" include/quern/shape.hpp 1 <quern/error.hpp>)
expect_fault("does not exist" include/quern/shape.hpp 2 <quern/errors.hpp>)
expect_fault("line 1 must be" include/quern/shape.hpp -1)
expect_fault("line 1 must be" include/quern/shape.hpp one)
expect_fault("another root" detail/quern/error.hpp 1)
expect_fault("only .hpp files" detail/quern/detail/table.inc 1)
expect_fault("write the include as" include/quern/shape.hpp 2 "\"quern/error.hpp\"")
expect_fault("write the include as" include/quern/shape.hpp 2 QUERN_HEADER)
expect_fault("Eigen may be" include/quern/shape.hpp 2 <Eigen/Core>)
expect_fault("Eigen may be" include/quern/gguf/file.hpp 10 <unsupported/Eigen/CXX11/Tensor>)
expect_fault("only under quern/eigen/" include/quern/load.hpp 11 <quern/eigen/reference.hpp>)
expect_fault("intrinsics" include/quern/shape.hpp 2 <immintrin.h>)
expect_fault("intrinsics" detail/quern/detail/cpu.hpp 2 <arm_neon.h>)
expect_fault("file I/O" include/quern/shape.hpp 2 <fstream>)
expect_fault("file I/O" detail/quern/detail/memory.hpp 0.1 <cstdio>)
expect_fault("file I/O and memory" include/quern/shape.hpp 2 <sys/mman.h>)
expect_fault("not a library" include/quern/shape.hpp 2 <boost/asio.hpp>)

write_sound_tree()
file(WRITE "${WORK}/include/quern/shape.hpp" "// floor: 2\n\n#include <cstddef>\n")
expect(TRUE "line 2 must be")

write_sound_tree()
file(WRITE "${WORK}/include/quern/shape.hpp"
     "// floor: 2\n#pragma once\nint a[2]; // [ ; \\\n  #  include   <quern/view.hpp>\n")
expect(TRUE "of floor 10")

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
expect(TRUE "no header found")

file(REMOVE_RECURSE "${WORK}")
message(STATUS "${cases} cases")
