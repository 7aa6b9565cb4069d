// floor: 2
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include <unsupported/Eigen/CXX11/ThreadPool>

#include <quern/executor.hpp>

namespace quern {

/// Runs the pieces on the threads of an Eigen thread pool, which must outlive this, and on the
/// calling thread. Calls may be nested and may come from threads of the pool: what no thread of the
/// pool is free for, the caller runs.
class EigenExecutor {
public:
  /// Uses the threads of `pool`, such as an Eigen::ThreadPool.
  explicit EigenExecutor(Eigen::ThreadPoolInterface& pool) noexcept : pool_(&pool) {}

  /// Calls f(i) once for each i in [0, count) and returns when all calls have. Throws
  /// std::bad_alloc, and then has called nothing.
  template <class F>
  void parallel_for(std::size_t count, F&& f) const {
    if (count == 0) return;
    const auto work = std::make_shared<Work>(count, IndexFunction(f));
    for (std::size_t helper = 1; helper < std::min(count, concurrency()); ++helper)
      pool_->Schedule([work] { work->run(); });
    work->run();
    work->wait();
  }

  /// As many as the pool has threads; the calling one stands in for one of them.
  [[nodiscard]] std::size_t concurrency() const noexcept {
    return static_cast<std::size_t>(std::max(1, pool_->NumThreads()));
  }

private:
  /// One call of parallel_for. Threads that come when nothing is left find it alive all the same.
  class Work {
  public:
    Work(std::size_t count, IndexFunction f) noexcept : count_(count), f_(f) {}

    void run() noexcept {
      for (std::size_t i = next_++; i < count_; i = next_++) {
        f_(i);
        if (++done_ == count_) done_.notify_all();
      }
    }
    void wait() const noexcept {
      for (std::size_t done = done_; done != count_; done = done_)
        done_.wait(done);
    }

  private:
    std::size_t count_;
    IndexFunction f_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<std::size_t> done_ = 0;
  };

  Eigen::ThreadPoolInterface* pool_;
};

} // namespace quern
