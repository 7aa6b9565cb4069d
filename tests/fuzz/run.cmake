# cmake -DFUZZER=<executable> -DRUNS=<count> -DCORPUS=<folder, or nothing> -DWORK=<folder> -P run.cmake
# A short run of a fuzzer, the same each time: new inputs go to an empty folder.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(runs ${RUNS})
if(CORPUS)
  file(GLOB seeds "${CORPUS}/*")
  list(LENGTH seeds count)
  if(count EQUAL 0)
    message(FATAL_ERROR "no corpus in ${CORPUS}")
  endif()
  math(EXPR runs "${RUNS} + ${count}")
endif()
execute_process(
  COMMAND "${FUZZER}" -runs=${runs} -seed=1 -max_len=2048 -timeout=120 "-artifact_prefix=${WORK}/"
          "${WORK}" ${CORPUS}
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${result}\n${output}")
endif()
