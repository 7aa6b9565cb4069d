#pragma once

#include <benchmark/benchmark.h>

/// Runs what was registered, as the options of the command line say; the exit status of main().
[[nodiscard]] inline int run_all(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
