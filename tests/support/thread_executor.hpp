#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace support {

/// Runs work on `threads` threads, made for each call.
class ThreadExecutor {
public:
  explicit ThreadExecutor(std::size_t threads) : threads_(threads) {}

  [[nodiscard]] std::size_t concurrency() const noexcept { return threads_; }

  template <class F>
  void parallel_for(std::size_t count, F&& f) const {
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> pool;
    for (std::size_t t = 0; t < threads_; ++t)
      pool.emplace_back([&] {
        for (std::size_t i = next++; i < count; i = next++)
          f(i);
      });
    for (std::thread& thread : pool)
      thread.join();
  }

private:
  std::size_t threads_;
};

} // namespace support
