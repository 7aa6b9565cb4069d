// floor: 2
#pragma once

#include <cstddef>

#include <quern/detail/config.hpp>
#include <quern/executor.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace quern {

#if defined(_OPENMP)

/// Runs the pieces on the threads of OpenMP.
struct OpenMpExecutor {
  template <class F>
  void parallel_for(std::size_t count, F&& f) const {
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < count; ++i)
      f(i);
  }
  [[nodiscard]] static std::size_t concurrency() noexcept {
    return static_cast<std::size_t>(omp_get_max_threads());
  }
};

#else

// clang-format off
/// Without OpenMP there is no such executor.
struct OpenMpExecutor {
  OpenMpExecutor() QUERN_DELETED("quern::OpenMpExecutor: this needs OpenMP; compile the translation unit with -fopenmp");
};
// clang-format on

#endif

} // namespace quern
