# cmake -DCHECK=<check_behaviours.cmake> -DWORK=<scratch folder> -P check_behaviours_self.cmake
# Proves that the check of docs/behaviours.md sees each kind of fault.
cmake_minimum_required(VERSION 3.25)

set(cases 0)

function(write_sound_project)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/docs/behaviours.md"
       "# Page\n\n| | behaviour | proof |\n|---|---|---|\n"
       "| A1 | it counts `[out, in]`; exactly | `Suite.Counts`, `compile_fail/wrong` |\n"
       "| A2 | it knows | `facts.cpp#Known` |\n"
       "| B1 | it runs | `Typed.Runs`, `ctest:example.run` |\n")
  file(WRITE "${WORK}/tests/facts.cpp"
       "static_assert(true);\nint Unknown;\nstatic_assert(\n    Known<int>);\n"
       "TEST_P(Suite, Counts) {}\nTYPED_TEST(Typed, Runs) {}\n// TEST(Suite, Commented)\n")
  file(WRITE "${WORK}/tests/compile_fail/wrong.cpp" "")
  file(WRITE "${WORK}/tests/CMakeLists.txt" "")
  file(WRITE "${WORK}/examples/CMakeLists.txt" "add_test(NAME example.run COMMAND run)\n")
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

write_sound_project()
expect(FALSE "3 behaviours, 5 proofs, no fault")

# Replaces one text of a file.
macro(expect_fault sentence file old new)
  write_sound_project()
  file(READ "${WORK}/${file}" text)
  string(REPLACE "${old}" "${new}" changed "${text}")
  if(changed STREQUAL text)
    message(FATAL_ERROR "'${old}' is not in ${file}")
  endif()
  file(WRITE "${WORK}/${file}" "${changed}")
  expect(TRUE "${sentence}")
endmacro()

set(page docs/behaviours.md)
expect_fault("A1: there is no Suite.Counted" ${page} "Suite.Counts" "Suite.Counted")
expect_fault("A1: there is no Suite.Commented" ${page} "Suite.Counts" "Suite.Commented")
expect_fault("A1: there is no Suite.Counts" tests/facts.cpp "Counts" "CountsMore")
expect_fault("A1: there is no compile_fail/right" ${page} "compile_fail/wrong" "compile_fail/right")
expect_fault("A2: there is no facts.cpp#Unknown" ${page} "#Known" "#Unknown")
expect_fault("A2: there is no fact.cpp#Known" ${page} "facts.cpp" "fact.cpp")
expect_fault("B1: there is no ctest:example.runs" ${page} "example.run`" "example.runs`")
expect_fault("A2: no proof" ${page} "`facts.cpp#Known`" "trust me")
expect_fault("A2: 'trust me' is no kind of proof" ${page} "`facts.cpp#Known`" "`trust me`")
expect_fault("A2: no behaviour" ${page} "it knows" "")
expect_fault("A3: A2 should stand here" ${page} "A2" "A3")
expect_fault("B2: B1 should stand here" ${page} "B1" "B2")
expect_fault("no table" ${page} "| " "- ")

file(REMOVE_RECURSE "${WORK}")
message(STATUS "${cases} cases")
