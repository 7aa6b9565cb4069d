# cmake -DUNLISTED=<files> -P check_listed.cmake
if(NOT UNLISTED STREQUAL "")
  message(FATAL_ERROR "Add to a list in tests/CMakeLists.txt, or these never run: ${UNLISTED}")
endif()
