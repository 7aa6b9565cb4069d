// Packing a normal matrix in each format and each mode, one thread, beside a plain copy of its
// floats. Bytes are those of the floats that are read; `error` is the square root of the squared
// error over the squared values.

#include <cmath>
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

#include <quern/bitnet.hpp>
#include <quern/formats.hpp>
#include <quern/quantize.hpp>

#include "run_all.hpp"

namespace {

using quern::OutIn;
using quern::QuantizeMode;

// The values and the packed weight stay in a second-level cache.
constexpr std::size_t rows = 16;
constexpr std::size_t columns = 1024;

const std::vector<float>& matrix() {
  static const std::vector<float> values = [] {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::vector<float> filled(rows * columns);
    for (float& value : filled)
      value = normal(generator);
    return filled;
  }();
  return values;
}

double relative_error(const std::vector<float>& kept) {
  double miss = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const double value = static_cast<double>(matrix()[i]);
    miss += std::pow(static_cast<double>(kept[i]) - value, 2);
    size += value * value;
  }
  return std::sqrt(miss / size);
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(rows * columns * sizeof(float)));
}

void copy_floats(benchmark::State& state) {
  std::vector<float> to(rows * columns);
  for (auto _ : state) {
    std::memcpy(to.data(), matrix().data(), to.size() * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

template <class F>
void quantize(benchmark::State& state, QuantizeMode mode) {
  const auto pack = [&] {
    return quern::quantize<F>(matrix(), OutIn{rows, columns}, {.mode = mode});
  };
  for (auto _ : state) {
    auto weight = pack();
    benchmark::DoNotOptimize(weight.bytes().data());
  }
  count_bytes(state);
  const auto weight = pack();
  state.counters["error"] = relative_error(weight.view().to_floats());
}

void quantize_bitnet(benchmark::State& state) {
  for (auto _ : state) {
    auto weight = quern::quantize_bitnet(matrix(), OutIn{rows, columns});
    benchmark::DoNotOptimize(weight.bytes().data());
  }
  count_bytes(state);
  const auto weight = quern::quantize_bitnet(matrix(), OutIn{rows, columns});
  state.counters["error"] = relative_error(weight.view().to_floats());
}

void bitnet_gemv(benchmark::State& state) {
  const auto weight = quern::quantize_bitnet(matrix(), OutIn{rows, columns});
  const std::span<const float> x = std::span(matrix()).first(columns);
  std::vector<float> y(rows);
  for (auto _ : state) {
    quern::bitnet_gemv(x, weight.view(), y);
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
        benchmark::RegisterBenchmark(("best/" + name).c_str(), quantize<F>, QuantizeMode::best);
        benchmark::RegisterBenchmark(("fast/" + name).c_str(), quantize<F>, QuantizeMode::fast);
      });
  benchmark::RegisterBenchmark("rule/BitNet", quantize_bitnet);
  benchmark::RegisterBenchmark("gemv/BitNet", bitnet_gemv);
  return run_all(argc, argv);
}
