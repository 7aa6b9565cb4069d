#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <quern/detail/memory.hpp>
#include <quern/detail/relayout.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>

#include "run_all.hpp"
#include "thread_clock.hpp"

/// @file
/// What a relayout costs next to memcpy of the same bytes. Both run in turn in every iteration, on
/// the same buffers, so that they meet the machine in the same state. The reported time is that of
/// the relayout. Counters, all of payload bytes (read once, written once) per second:
///
///   GB/s            relayout, median over the iterations
///   memcpy_GB/s     memcpy, the same
///   of_memcpy       quotient of these medians: 1 is as fast as memcpy, more is faster
///   of_memcpy_best  quotient of the best iterations
///
///   warm/...        source and destination were touched before; destination from weight_memory(),
///                   as in a ModelScope
///   fresh/...       prepack into a new ModelScope, memcpy into a new block of weight_memory():
///                   the page faults of the destination are included in both
///   in_place/...    prepack of an owned weight, there and back in turn; memcpy still has two
///                   buffers
///   cycles/...      for comparison: in place, following the cycles of single blocks

namespace {

using quern::In;
using quern::InputBlockMajor;
using quern::ModelScope;
using quern::Out;
using quern::OutIn;
using quern::PackedView;
using quern::PackedWeight;
using quern::RowMajor;

template <class Call>
double time(Call&& call) {
  const double start = thread_seconds();
  call();
  benchmark::ClobberMemory();
  return thread_seconds() - start;
}

/// The times of both sides, and what they say.
class Pairs {
public:
  void add(benchmark::State& state, double memcpy_seconds, double relayout_seconds) {
    memcpy_.push_back(memcpy_seconds);
    relayout_.push_back(relayout_seconds);
    state.SetIterationTime(relayout_seconds);
  }

  void report(benchmark::State& state, std::size_t bytes) {
    std::ranges::sort(memcpy_);
    std::ranges::sort(relayout_);
    const auto giga = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
    const double memcpy_median = memcpy_[memcpy_.size() / 2];
    const double relayout_median = relayout_[relayout_.size() / 2];
    state.counters["GB/s"] = giga(relayout_median);
    state.counters["memcpy_GB/s"] = giga(memcpy_median);
    state.counters["of_memcpy"] = memcpy_median / relayout_median;
    state.counters["of_memcpy_best"] = memcpy_.front() / relayout_.front();
  }

private:
  std::vector<double> memcpy_;
  std::vector<double> relayout_;
};

void fill(std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13);
}

template <class F>
std::size_t bytes_of(OutIn shape) {
  return shape.out * (shape.in / F::block_size) * F::bytes_per_block;
}

/// The extents that relayout() gets for a weight in order `From`.
template <class F, class From>
std::pair<std::size_t, std::size_t> slow_and_fast(OutIn shape) {
  const std::size_t out = shape.out;
  const std::size_t blocks = shape.in / F::block_size;
  return std::is_same_v<From, RowMajor> ? std::pair{out, blocks} : std::pair{blocks, out};
}

template <class F, class From>
void warm(benchmark::State& state, OutIn shape) {
  const std::size_t bytes = bytes_of<F>(shape);
  const auto [slow, fast] = slow_and_fast<F, From>(shape);
  const auto source = quern::detail::allocate_bytes(bytes);
  const auto target = quern::detail::allocate_bytes(bytes);
  fill({source.get(), bytes});
  std::memset(target.get(), 0, bytes);
  Pairs pairs;
  for (auto _ : state) {
    const double memcpy_seconds = time([&] { std::memcpy(target.get(), source.get(), bytes); });
    pairs.add(state, memcpy_seconds, time([&] {
                quern::detail::relayout<F::bytes_per_block>(source.get(), fast, target.get(), slow,
                                                            fast);
              }));
  }
  pairs.report(state, bytes);
}

template <class F, class From>
void fresh(benchmark::State& state, OutIn shape) {
  using To = quern::OtherOrder<From>;
  const std::size_t bytes = bytes_of<F>(shape);
  const auto source = quern::detail::allocate_bytes(bytes);
  fill({source.get(), bytes});
  const PackedView<F, From> weight{std::span<const std::byte>{source.get(), bytes}, shape};
  Pairs pairs;
  for (auto _ : state) {
    double memcpy_seconds = 0;
    {
      ModelScope scope;
      memcpy_seconds = time([&] {
        std::memcpy(scope.allocate(bytes, quern::detail::cache_line), source.get(), bytes);
      });
    }
    ModelScope scope;
    pairs.add(state, memcpy_seconds,
              time([&] { benchmark::DoNotOptimize(quern::prepack<To>(weight, scope)); }));
  }
  pairs.report(state, bytes);
}

/// Runs `there` and `back` in turn on one weight.
template <class There, class Back>
void to_and_fro(benchmark::State& state, std::span<std::byte> weight, There&& there, Back&& back) {
  const auto other = quern::detail::allocate_bytes(weight.size());
  std::memset(other.get(), 0, weight.size());
  Pairs pairs;
  bool forth = true;
  for (auto _ : state) {
    const double memcpy_seconds =
        time([&] { std::memcpy(other.get(), weight.data(), weight.size()); });
    pairs.add(state, memcpy_seconds, time([&] { forth ? there() : back(); }));
    forth = !forth;
  }
  pairs.report(state, weight.size());
}

template <class F, class From>
void in_place(benchmark::State& state, OutIn shape) {
  using To = quern::OtherOrder<From>;
  PackedWeight<F, From> weight{shape};
  PackedWeight<F, To> turned{OutIn{}};
  fill(weight.bytes());
  to_and_fro(
      state, weight.bytes(), [&] { turned = quern::prepack<To>(std::move(weight)); },
      [&] { weight = quern::prepack<From>(std::move(turned)); });
}

template <std::size_t BytesPerBlock>
void follow_cycles(std::byte* blocks, std::size_t slow, std::size_t fast) {
  std::vector<bool> placed(slow * fast, false);
  std::array<std::byte, BytesPerBlock> carried;
  std::array<std::byte, BytesPerBlock> displaced;
  for (std::size_t start = 1; start + 1 < slow * fast; ++start) {
    if (placed[start]) continue;
    std::size_t at = start;
    std::memcpy(carried.data(), blocks + at * BytesPerBlock, BytesPerBlock);
    do {
      at = at % fast * slow + at / fast;
      std::memcpy(displaced.data(), blocks + at * BytesPerBlock, BytesPerBlock);
      std::memcpy(blocks + at * BytesPerBlock, carried.data(), BytesPerBlock);
      carried = displaced;
      placed[at] = true;
    } while (at != start);
  }
}

template <class F, class From>
void cycles(benchmark::State& state, OutIn shape) {
  const std::size_t bytes = bytes_of<F>(shape);
  const auto weight = quern::detail::allocate_bytes(bytes);
  fill({weight.get(), bytes});
  const auto [slow, fast] = slow_and_fast<F, From>(shape);
  to_and_fro(
      state, {weight.get(), bytes},
      [&, slow = slow, fast = fast] {
        follow_cycles<F::bytes_per_block>(weight.get(), slow, fast);
      },
      [&, slow = slow, fast = fast] {
        follow_cycles<F::bytes_per_block>(weight.get(), fast, slow);
      });
}

template <class F>
void add_format(OutIn shape) {
  const std::string weight =
      std::string(F::name) + "/" + std::to_string(shape.out) + "x" + std::to_string(shape.in) + "/";
  const auto add = [&](const std::string& what, const char* direction, auto run) {
    benchmark::RegisterBenchmark((what + "/" + weight + direction).c_str(), run, shape)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  const char* const forth = "to_InputBlockMajor";
  const char* const back = "to_RowMajor";
  add("warm", forth, warm<F, RowMajor>);
  add("warm", back, warm<F, InputBlockMajor>);
  add("fresh", forth, fresh<F, RowMajor>);
  add("fresh", back, fresh<F, InputBlockMajor>);
  add("in_place", "to_and_fro", in_place<F, RowMajor>);
  add("cycles", "to_and_fro", cycles<F, RowMajor>);
}

} // namespace

int main(int argc, char** argv) {
  for (const OutIn shape : {OutIn{4096, 4096}, OutIn{11008, 4096}, OutIn{4096, 11008}}) {
    add_format<quern::Q4_K>(shape);
    add_format<quern::Q4_0>(shape);
  }
  return run_all(argc, argv);
}
