# cmake -DCOMPILER=<g++ or clang++> -DROOT=<project> -P check_fast_math.cmake
# Flags that change what floating-point code means are refused with a sentence, in whatever header
# comes first; flags that only fuse or reorder what may be reordered are not.
set(sentence "quern: -ffast-math removes the NaN checks and the exact rounding")

# Compiles one include line with the given flags; sets result and log in the caller.
function(compile header)
  file(WRITE "${WORK}/fast_math.cpp" "#include <${header}>\n")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env LC_ALL=C "${COMPILER}" -std=c++20 -fsyntax-only
            "-I${ROOT}/include" "-I${ROOT}/detail" "-I${ROOT}/kernels" ${ARGN}
            "${WORK}/fast_math.cpp"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE log
    ERROR_VARIABLE log)
  set(result "${result}" PARENT_SCOPE)
  set(log "${log}" PARENT_SCOPE)
endfunction()

set(refused -ffast-math -Ofast -ffinite-math-only)
execute_process(COMMAND "${COMPILER}" --version OUTPUT_VARIABLE version)
if(NOT version MATCHES "clang")
  list(APPEND refused -funsafe-math-optimizations -freciprocal-math)
endif()
foreach(header quern/formats/q4_k.hpp quern/prepack.hpp quern/gguf/writer.hpp)
  foreach(flag IN LISTS refused)
    compile(${header} ${flag})
    if(result EQUAL 0)
      message(FATAL_ERROR "<${header}> compiles with ${flag}")
    endif()
    string(FIND "${log}" "${sentence}" position)
    if(position EQUAL -1)
      message(FATAL_ERROR "<${header}> fails with ${flag} without saying why:\n${log}")
    endif()
  endforeach()
  compile(${header} -O3 -ffp-contract=fast)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "<${header}> does not compile with -O3 -ffp-contract=fast:\n${log}")
  endif()
endforeach()
