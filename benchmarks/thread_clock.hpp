#pragma once

#include <chrono>
#include <ctime>

/// Seconds since some start. Where the system tells it, those that this thread ran: what else runs
/// on the machine then counts only for the bandwidth and the caches that it takes.
[[nodiscard]] inline double thread_seconds() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  std::timespec time{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0)
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
#endif
  const std::chrono::duration<double> since = std::chrono::steady_clock::now().time_since_epoch();
  return since.count();
}
