// Products with packed weights next to what the machine can do and to Eigen on decoded weights, one
// thread. What is compared runs in turn within every iteration, so that it meets the machine in the
// same state. Quantizing the activations counts. Names:
//
//   <activations>/<format>/<order>/<out>x<in>/M:<rows of x>
//
// With one row of x, the weights come in turn from more than 512 MiB, so that no cache holds them.
//
//   GB/s       bytes of weights, over the median time of a product
//   read_GB/s  reading as many bytes of the same memory and doing nothing with them
//   of_read    quotient of the two
//   GOP/s      additions and multiplications
//   of_peak    quotient of that and of what one thread reaches in registers, measured beside it:
//              dot products of bytes (0: this processor has none) or fused multiply-add of floats
//   of_eigen   with float activations: how many times as fast as Eigen on the decoded matrix
//
// --benchmark_out=<file> writes all of it as JSON, with the processor, the compiler and the commit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>
#include <boost/mp11/algorithm.hpp>
#include <Eigen/Core>

#include <quern/decode.hpp>
#include <quern/eigen/reference.hpp>
#include <quern/formats.hpp>
#include <quern/matmul.hpp>
#include <quern/quantize_activations.hpp>

#include "inputs.hpp"
#include "machine_limits.hpp"
#include "products.hpp"
#include "run_all.hpp"
#include "thread_clock.hpp"

namespace {

using quern::InputBlockMajor;
using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;

template <class Product, class F, class O>
void product(benchmark::State& state, OutIn shape, std::size_t rows) {
  const std::size_t weight_bytes = shape.out * shape.in / F::block_size * F::bytes_per_block;
  const std::size_t weights = rows == 1 ? rotated_bytes / weight_bytes + 1 : 1;
  const auto bytes = pool<F>(weight_bytes, weights);
  const auto x = random_values(rows * shape.in);
  std::vector<float> y(rows * shape.out);
  std::vector<std::byte> room;
  const MatrixView<const float> from{std::span<const float>(x), rows, shape.in};
  const MatrixView<float> to{std::span<float>(y), rows, shape.out};

  DenseMatrix decoded;
  const bool beside_eigen = std::is_same_v<Product, FloatProduct>;
  if (beside_eigen) decoded = quern::to_eigen(PackedView<F, O>{bytes.first(weight_bytes), shape});

  std::vector<double> products, reads, eigens;
  double peak = 0;
  std::size_t next = 0;
  const auto take = [&] {
    const auto one = bytes.subspan(next * weight_bytes, weight_bytes);
    next = (next + 1) % weights;
    return one;
  };
  for (auto _ : state) {
    if (rows == 1) reads.push_back(timed([one = take()] { read_all(one); }));
    const PackedView<F, O> weight{take(), shape};
    products.push_back(timed([&] { Product::template run<F, O>(from, weight, to, room); }));
    state.SetIterationTime(products.back());
    if (beside_eigen) eigens.push_back(timed([&] { eigen_product(x, decoded, y); }));
    if (products.size() % 16 == 1) peak = std::max(peak, Product::peak());
  }
  const double seconds = median(products);
  const double operations =
      2 * static_cast<double>(rows) * static_cast<double>(shape.out * shape.in);
  const double giga = static_cast<double>(weight_bytes) / 1e9;
  state.counters["GB/s"] = giga / seconds;
  if (rows == 1) {
    state.counters["read_GB/s"] = giga / median(reads);
    state.counters["of_read"] = median(reads) / seconds;
  }
  state.counters["GOP/s"] = operations / seconds / 1e9;
  state.counters["of_peak"] = peak == 0 ? 0 : operations / seconds / 1e9 / peak;
  if (beside_eigen) state.counters["of_eigen"] = median(eigens) / seconds;
}

template <class Product, class F, class O>
void add() {
  const std::string name = std::string(Product::name) + "/" + std::string(F::name) + "/";
  add_products(name + std::string(O::name), product<Product, F, O>);
}

} // namespace

int main(int argc, char** argv) {
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [](auto tag) {
        using F = typename decltype(tag)::type;
        if constexpr (quern::int8_width<F> != 0) {
          add<Int8Product, F, RowMajor>();
          add<Int8Product, F, InputBlockMajor>();
        }
        add<FloatProduct, F, RowMajor>();
        add<FloatProduct, F, InputBlockMajor>();
      });
  add_context();
  return run_all(argc, argv);
}
