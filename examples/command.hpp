#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>

/// Runs the command that an example is. What it throws is printed as one sentence, and the exit
/// status is then 1.
template <class Command>
[[nodiscard]] int run_command(Command&& command) {
  try {
    return command();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
