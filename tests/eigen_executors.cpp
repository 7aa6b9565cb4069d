// Executors: what each has to do, and that none of them changes a bit of a product.

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <unsupported/Eigen/CXX11/ThreadPool>

#include <quern/eigen/executor.hpp>
#include <quern/executor.hpp>
#include <quern/executor_openmp.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/matmul.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>

#include "support/weights.hpp"

namespace {

using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using quern::Q4_K;
using quern::RowMajor;

/// Calls `test` with each executor and its name.
template <class Test>
void with_executors(Test&& test) {
  test(quern::SerialExecutor{}, "serial");
  for (const int threads : {1, 2, 3, 8}) {
    Eigen::ThreadPool pool(threads);
    const quern::EigenExecutor executor(pool);
    EXPECT_EQ(executor.concurrency(), static_cast<std::size_t>(threads));
    test(executor, "Eigen");
  }
#if defined(_OPENMP)
  test(quern::OpenMpExecutor{}, "OpenMP");
#endif
}

TEST(Executors, CallEachIndexOnceAndReturnWhenAllAreDone) {
  with_executors([](const auto& executor, const char* name) {
    static_assert(quern::Executor<std::remove_cvref_t<decltype(executor)>>);
    for (const std::size_t count : {0u, 1u, 2u, 3u, 7u, 1000u}) {
      std::vector<std::atomic<int>> calls(count);
      executor.parallel_for(count, [&](std::size_t i) { ++calls[i]; });
      for (const auto& call : calls)
        ASSERT_EQ(call, 1) << name;
    }
  });
}

// An inner call that waited for threads of the pool would wait for ever: all of them wait as well.
TEST(Executors, NestedCallsComeToAnEnd) {
  with_executors([](const auto& executor, const char* name) {
    std::atomic<int> calls = 0;
    executor.parallel_for(
        16, [&](std::size_t) { executor.parallel_for(16, [&](std::size_t) { ++calls; }); });
    EXPECT_EQ(calls, 256) << name;
  });
}

TEST(Executors, ManyThreadsShareAPool) {
  Eigen::ThreadPool pool(2);
  const quern::EigenExecutor executor(pool);
  std::atomic<int> calls = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k)
        executor.parallel_for(9, [&](std::size_t) { ++calls; });
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(calls, 4 * 50 * 9);
}

TEST(Executors, ChangeNoBitOfAProduct) {
  constexpr std::size_t out = 203, in = 3 * Q4_K::block_size, rows = 5;
  const auto blocks = support::finite_blocks<Q4_K>(out * in / Q4_K::block_size);
  const PackedView<Q4_K, RowMajor> w{std::span<const std::byte>(blocks), OutIn{out, in}};
  const std::vector<float> x = support::random_values(rows * in, 7);
  const MatrixView<const float> from{std::span<const float>(x), rows, in};
  quern::ModelScope scope;
  const auto codes = quern::quantize_activations<256>(from, scope);
  const auto product = [&](const auto& activations, quern::ExecutorRef executor) {
    std::vector<float> y(rows * out);
    quern::matmul_weight_transposed(
        activations, w, MatrixView<float>{std::span<float>(y), rows, out}, {.executor = executor});
    return support::bits_of(y);
  };
  const auto floats = product(from, {});
  const auto bytes = product(codes, {});
  EXPECT_NE(floats, bytes);
  with_executors([&](const auto& executor, const char* name) {
    EXPECT_EQ(product(from, executor), floats) << name;
    EXPECT_EQ(product(codes, executor), bytes) << name;
  });
}

} // namespace
