// Decoding and the Eigen reference, per format, beside a plain copy of as many floats.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
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
#include <quern/quantize.hpp>

namespace {

using quern::MatrixView;
using quern::OutIn;
using quern::RowMajor;

// 64 rows of 2048 values: the packed and the decoded matrix stay in a second- or third-level cache.
constexpr std::size_t rows = 64;
constexpr std::size_t columns = 2048;

std::vector<float> random_values(std::size_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(count);
  for (float& value : values)
    value = normal(generator);
  return values;
}

template <class F>
const quern::PackedWeight<F, RowMajor>& weight() {
  static const auto packed =
      quern::quantize<F>(random_values(rows * columns), OutIn{rows, columns});
  return packed;
}

void copy_floats(benchmark::State& state) {
  const auto from = random_values(rows * columns);
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(from.size() * sizeof(float)));
}

template <class F>
void decode_weight(benchmark::State& state) {
  const auto view = weight<F>().view();
  std::vector<float> to(rows * columns);
  for (auto _ : state) {
    quern::decode(view, MatrixView<float>{std::span<float>(to), rows, columns});
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(to.size() * sizeof(float)));
}

template <class F>
void multiply_by_reference(benchmark::State& state) {
  const auto view = weight<F>().view();
  const auto x = random_values(columns);
  const Eigen::Map<const quern::RowMajorMatrix<float>> activations(x.data(), 1, columns);
  for (auto _ : state) {
    auto y = quern::reference::matmul_weight_transposed(activations, view);
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(rows * columns));
}

template <class F>
void multiply(benchmark::State& state) {
  const auto view = weight<F>().view();
  const auto x = random_values(columns);
  std::vector<float> y(rows);
  for (auto _ : state) {
    quern::matmul_weight_transposed(x, view, y);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(rows * columns));
}

} // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("copy", copy_floats);
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [](auto tag) {
        using F = typename decltype(tag)::type;
        const std::string name(F::name);
        benchmark::RegisterBenchmark(("decode/" + name).c_str(), decode_weight<F>);
        benchmark::RegisterBenchmark(("reference/" + name).c_str(), multiply_by_reference<F>);
        benchmark::RegisterBenchmark(("matmul/" + name).c_str(), multiply<F>);
      });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
