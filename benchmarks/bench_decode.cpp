// Decoding a weight next to a plain copy of as many floats. Both run in turn in every iteration, on
// the same buffers, so that they meet the machine in the same state. Figures are GB/s of floats
// written:
//
//   GB/s        decoding, median over the iterations
//   copy_GB/s   memcpy of as many floats, the same
//   fill_GB/s   memset of as many floats, the same
//   of_copy     quotient of the medians of decoding and memcpy
//   of_fill     of decoding and memset, which reads nothing
//
//   cache/...   16384 values, which stay in a second-level cache
//   large/...   16 Mi values, four times a usual third-level cache
//
// and for comparison, of 64 x 2048 values: matmul/... the product with one row of x, reference/...
// the same by Eigen, which decodes first.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>
#include <boost/mp11/algorithm.hpp>

#include <quern/decode.hpp>
#include <quern/eigen/reference.hpp>
#include <quern/formats.hpp>
#include <quern/matmul.hpp>

#include "inputs.hpp"
#include "run_all.hpp"
#include "thread_clock.hpp"

namespace {

using quern::InputBlockMajor;
using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;

template <class F, class O>
void decode_weight(benchmark::State& state, std::size_t rows, std::size_t columns) {
  const auto bytes = blocks<F>(rows * columns / F::block_size);
  const PackedView<F, O> weight{std::span<const std::byte>(bytes), OutIn{rows, columns}};
  std::vector<float> from(rows * columns, 1.0f), to(rows * columns);
  const MatrixView<float> matrix{std::span<float>(to), rows, columns};
  const std::size_t size = to.size() * sizeof(float);
  // One pass over little data is too short for the clock.
  const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{4} << 20) / size);
  std::vector<double> decoding, copying, filling;
  const auto time = [&](std::vector<double>& times, auto&& call) {
    const double start = thread_seconds();
    for (std::size_t i = 0; i < repeats; ++i) {
      call();
      benchmark::ClobberMemory();
    }
    times.push_back((thread_seconds() - start) / static_cast<double>(repeats));
    return times.back();
  };
  for (auto _ : state) {
    time(copying, [&] { std::memcpy(to.data(), from.data(), size); });
    time(filling, [&] { std::memset(to.data(), 1, size); });
    state.SetIterationTime(time(decoding, [&] { quern::decode(weight, matrix); }));
  }
  const auto giga = [&](std::vector<double>& times) {
    return static_cast<double>(size) / median(times) / 1e9;
  };
  const double decoded = giga(decoding), copied = giga(copying), filled = giga(filling);
  state.counters["GB/s"] = decoded;
  state.counters["copy_GB/s"] = copied;
  state.counters["fill_GB/s"] = filled;
  state.counters["of_copy"] = decoded / copied;
  state.counters["of_fill"] = decoded / filled;
}

// What is done with the floats: 64 rows of 2048 stay in a second- or third-level cache.
constexpr OutIn product_shape{quern::Out{64}, quern::In{2048}};

template <class F>
struct Product {
  std::vector<std::byte> bytes = blocks<F>(product_shape.out * product_shape.in / F::block_size);
  PackedView<F, RowMajor> weight{std::span<const std::byte>(bytes), product_shape};
  std::vector<float> x = random_values(product_shape.in);
};

template <class F>
void multiply_by_reference(benchmark::State& state) {
  const Product<F> product;
  const Eigen::Map<const quern::RowMajorMatrix<float>> activations(
      product.x.data(), 1, static_cast<Eigen::Index>(product.x.size()));
  for (auto _ : state) {
    auto y = quern::reference::matmul_weight_transposed(activations, product.weight);
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(product_shape.out * product_shape.in));
}

template <class F>
void multiply(benchmark::State& state) {
  const Product<F> product;
  std::vector<float> y(product_shape.out);
  for (auto _ : state) {
    quern::matmul_weight_transposed(std::span<const float>(product.x), product.weight,
                                    std::span<float>(y));
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(product_shape.out * product_shape.in));
}

template <class F, class O>
void add_decode(const std::string& name) {
  benchmark::RegisterBenchmark(("cache/" + name).c_str(), decode_weight<F, O>, 16, 1024)
      ->Iterations(100) // of several passes each
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(("large/" + name).c_str(), decode_weight<F, O>, 4096, 4096)
      ->Iterations(20)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

} // namespace

int main(int argc, char** argv) {
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [](auto tag) {
        using F = typename decltype(tag)::type;
        const std::string name(F::name);
        add_decode<F, RowMajor>(name + "/" + std::string(RowMajor::name));
        add_decode<F, InputBlockMajor>(name + "/" + std::string(InputBlockMajor::name));
        benchmark::RegisterBenchmark(("matmul/" + name).c_str(), multiply<F>);
        benchmark::RegisterBenchmark(("reference/" + name).c_str(), multiply_by_reference<F>);
      });
  return run_all(argc, argv);
}
