// A libFuzzer target for one format, quern::QUERN_FUZZ_FORMAT: blocks of any bytes are decoded, and
// meet float and int8 activations of any values, in both orders and with every instruction set that
// this CPU has. Decoded values and int8 products must have the bits of portable code, float
// products its value up to rounding; where portable code gives a NaN, any NaN will do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>

#include <quern/activation.hpp>
#include <quern/decode.hpp>
#include <quern/formats.hpp>
#include <quern/isas.hpp>
#include <quern/kernels.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>

#include "input.hpp"

namespace {

using fuzz::Input;
using fuzz::require;
using quern::MatrixView;

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

/// Calls `f(std::type_identity<I>{})` for each instruction set that this CPU has.
template <class Function>
void for_each_isa(Function f) {
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
      [&](auto tag) {
        if (decltype(tag)::type::available()) f(tag);
      });
}

template <class F, class O>
void decode(const quern::PackedView<F, O>& w) {
  std::vector<float> expected(w.out() * w.in());
  quern::kernels::Decode<F, O, quern::isa::Scalar>::run(
      w, MatrixView<float>{std::span<float>(expected), w.out(), w.in()});
  const auto decoded = w.to_floats();
  for (std::size_t i = 0; i < expected.size(); ++i)
    require(same(decoded[i], expected[i]), "a value decoded by rows");
  for (std::size_t i = 0; i < expected.size(); i += 61) // each decodes a whole block
    require(same(w.get(i / w.in(), i % w.in()), expected[i]), "a value decoded by itself");
  for_each_isa([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (quern::has_decode_kernel<F, O, I>) {
      std::vector<float> values(expected.size(), -1.0f);
      quern::kernels::Decode<F, O, I>::run(
          w, MatrixView<float>{std::span<float>(values), w.out(), w.in()});
      for (std::size_t i = 0; i < values.size(); ++i)
        require(same(values[i], expected[i]), "a decoded value of the portable kernel");
    }
  });
}

template <class F, class O>
void multiply(const quern::PackedView<F, O>& w, std::span<const float> x, std::size_t rows) {
  const std::size_t in = w.in(), out = w.out();
  const auto matrix = w.to_floats();
  for_each_isa([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (quern::has_kernel<float, F, O, I>) {
      std::vector<float> y(rows * out, -1.0f);
      quern::kernels::Matmul<float, F, O, I>::run(
          MatrixView<const float>{x, rows, in}, w,
          MatrixView<float>{std::span<float>(y), rows, out});
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t o = 0; o < out; ++o) {
          double exact = 0.0, magnitude = 0.0;
          for (std::size_t i = 0; i < in; ++i) {
            const double product =
                static_cast<double>(matrix[o * in + i]) * static_cast<double>(x[r * in + i]);
            exact += product;
            magnitude += std::abs(product);
          }
          const double got = static_cast<double>(y[r * out + o]);
          if (!(magnitude < 1e38)) continue; // sums may overflow on the way
          const double slack = magnitude * static_cast<double>(in + 8) * 0x1p-23 + 1e-36;
          require(std::abs(got - exact) <= slack, "a product of floats");
        }
    }
  });
}

template <class F, class O>
void multiply_int8(const quern::PackedView<F, O>& w, std::span<const float> scales,
                   std::span<const std::int8_t> codes, std::size_t rows) {
  quern::ModelScope scope;
  const auto x = quern::int8_activations<quern::int8_width<F>>(codes, scales, rows, w.in(), scope);
  std::vector<float> expected(rows * w.out());
  quern::kernels::Matmul<quern::Int8For<F>, F, O, quern::isa::Scalar>::run(
      x, w, MatrixView<float>{std::span<float>(expected), rows, w.out()});
  for_each_isa([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (quern::has_kernel<quern::Int8For<F>, F, O, I>) {
      std::vector<float> y(rows * w.out(), -1.0f);
      quern::kernels::Matmul<quern::Int8For<F>, F, O, I>::run(
          x, w, MatrixView<float>{std::span<float>(y), rows, w.out()});
      for (std::size_t i = 0; i < y.size(); ++i)
        require(same(y[i], expected[i]), "the bits of the portable kernel");
    }
  });
}

template <class F, class O>
void run(Input& input) {
  const std::size_t rows = 1 + input.below(4), out = 1 + input.below(11);
  const std::size_t blocks = 1 + input.below(F::block_size == 1 ? 40 : 3);
  const std::size_t in = blocks * F::block_size;
  std::vector<float> floats(16);
  for (float& value : floats)
    value = std::bit_cast<float>(input.number<std::uint32_t>());
  const auto code_bytes = input.bytes(std::min<std::size_t>(input.size() / 2 + 1, rows * in));
  // Few bytes make many blocks: block after block as far as they go, then again, shifted.
  const auto pattern = input.bytes(std::max<std::size_t>(input.size(), F::bytes_per_block));
  std::vector<std::byte> bytes(out * blocks * F::bytes_per_block + 1);
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i)
    bytes[i + 1] = pattern[(i + i / pattern.size()) % pattern.size()];
  const quern::PackedView<F, O> w{std::span<const std::byte>(bytes).subspan(1),
                                  quern::OutIn{quern::Out{out}, quern::In{in}}};
  decode(w);
  std::vector<float> x(rows * in);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = floats[(i + i / 16) % 16] * static_cast<float>(code_bytes[i % code_bytes.size()]);
  multiply(w, x, rows);
  if constexpr (quern::int8_width<F> != 0) {
    std::vector<std::int8_t> codes(rows * in);
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::int8_t>(code_bytes[i % code_bytes.size()]);
    std::vector<float> scales(rows * in / quern::int8_width<F>);
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = floats[i % 16];
    multiply_int8(w, scales, codes, rows);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  if (input.below(2) == 0)
    run<quern::QUERN_FUZZ_FORMAT, quern::RowMajor>(input);
  else
    run<quern::QUERN_FUZZ_FORMAT, quern::InputBlockMajor>(input);
  return 0;
}
