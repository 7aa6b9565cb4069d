# cmake -DREPORT=<program> -DFORM=table|json|page -DBROWSER=<chromium> -DWORK=<folder> -P check.cmake
# Looks at a report on the program's own model: 21 tensors, 16 of them matrices.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(ENV{TMPDIR} "${WORK}") # the model is written there
set(options "")
if(FORM STREQUAL "json")
  set(options --json)
elseif(FORM STREQUAL "page")
  set(options --html)
endif()
execute_process(COMMAND "${REPORT}" ${options} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)

if(FORM STREQUAL "table")
  foreach(line "GGUF version 3, [0-9]+ bytes, 21 tensors"
               "blk.1.ffn_down.weight +[A-Z0-9_]+ +.256, 512. +[0-9]+ +[0-9]+ +[0-9.]+  float [A-Za-z0-9]+ .[0-9]")
    if(NOT text MATCHES "${line}")
      message(FATAL_ERROR "no line like '${line}' in\n${text}")
    endif()
  endforeach()
elseif(FORM STREQUAL "json")
  string(JSON count LENGTH "${text}" tensors)
  string(JSON size GET "${text}" bytes)
  file(SIZE "${WORK}/quern-report.gguf" true_size)
  if(NOT count EQUAL 21 OR NOT size EQUAL true_size)
    message(FATAL_ERROR "${count} tensors, ${size} bytes of ${true_size}")
  endif()
  set(with_kernels 0)
  foreach(i RANGE 20)
    string(JSON kernels LENGTH "${text}" tensors ${i} kernels)
    string(JSON fault TYPE "${text}" tensors ${i} fault)
    if(NOT fault STREQUAL "NULL")
      message(FATAL_ERROR "a fault in tensor ${i}")
    endif()
    if(kernels GREATER 0)
      math(EXPR with_kernels "${with_kernels} + 1")
      string(JSON error GET "${text}" tensors ${i} kernels 0 error)
      string(JSON activation GET "${text}" tensors ${i} kernels 0 activation)
      if(NOT activation STREQUAL "float" OR error GREATER 1e-5)
        message(FATAL_ERROR "tensor ${i}: the error with ${activation} activations is ${error}")
      endif()
    endif()
  endforeach()
  if(NOT with_kernels EQUAL 16)
    message(FATAL_ERROR "${with_kernels} tensors have kernels")
  endif()
else()
  file(WRITE "${WORK}/page.html" "${text}")
  execute_process(
    COMMAND
      "${BROWSER}" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run
      --disable-background-networking --disable-component-update --disable-sync
      "--user-data-dir=${WORK}/profile" --window-size=1200,1400 "--screenshot=${WORK}/page.png"
      --dump-dom "file://${WORK}/page.html"
    OUTPUT_VARIABLE dom
    ERROR_VARIABLE log
    RESULT_VARIABLE status
    TIMEOUT 90)
  set(expected "data-checked=\"rows 21, tensors in map 21, outside 0, flat 0, too wide false\"")
  string(FIND "${dom}" "${expected}" found)
  if(NOT status EQUAL 0 OR found EQUAL -1)
    string(REGEX MATCH "data-checked=\"[^\"]*\"" said "${dom}")
    message(FATAL_ERROR "status ${status}; the page says '${said}', not '${expected}'\n${log}")
  endif()
endif()
