// Products with int8 activations: the portable kernel against exact sums, and the choice of
// kernels. What each instruction set computes is tested in kernel_int8_<instruction set>.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <quern/activation.hpp>
#include <quern/formats.hpp>
#include <quern/kernels.hpp>
#include <quern/matmul.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>

#include "support/guarded.hpp"
#include "support/kernels.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using quern::Int8For;
using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;
using quern::isa::Scalar;
using support::canary;
using support::Size;

template <class F>
constexpr bool has_int8() {
  if constexpr (quern::int8_width<F> != 0)
    return quern::has_kernel<Int8For<F>, F, quern::RowMajor, quern::isa::Scalar>;
  else
    return false;
}
template <class F>
using HasInt8 = std::bool_constant<has_int8<F>()>;
using Int8Formats = boost::mp11::mp_copy_if<support::TestedFormats, HasInt8>;
using EachInt8Format =
    support::Types<boost::mp11::mp_product<support::Packed, Int8Formats, quern::Orders>>;

template <class F, class O, class I = Scalar>
using Kernel = quern::kernels::Matmul<Int8For<F>, F, O, I>;

/// Activations whose bytes end where memory ends.
template <class F>
struct Activations {
  static constexpr std::size_t width = quern::int8_width<F>;
  support::Guarded<std::byte> bytes;
  Int8For<F> view;

  Activations(std::span<const float> x, std::size_t rows, std::size_t cols)
      : bytes(Int8For<F>::bytes_for(rows, cols)),
        view(quern::quantize_activations<width>(MatrixView<const float>{x, rows, cols},
                                                bytes.span())) {}
};

template <class F, class O>
std::vector<float> portable(const Int8For<F>& x, PackedView<F, O> w) {
  std::vector<float> y(x.rows() * w.out());
  Kernel<F, O>::run(x, w, MatrixView<float>{std::span<float>(y), x.rows(), w.out()});
  return y;
}

template <class P>
class Int8Kernels : public testing::Test {};
TYPED_TEST_SUITE(Int8Kernels, EachInt8Format, support::Names);

TYPED_TEST(Int8Kernels, PortableKernelIsNearTheExactProduct) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  for (const Size size : {Size{5, 3, 2}, Size{3, 18, 1}}) {
    const std::size_t in = size.blocks * F::block_size;
    const auto row_major = support::encoded_blocks<F>(size.out * size.blocks);
    const auto bytes = support::laid_out<F, O>(row_major, size.out, size.blocks);
    const auto matrix = support::decoded<F>(row_major);
    const Activations<F> x(support::random_values(size.rows * in), size.rows, in);
    const auto y = portable<F, O>(x.view, {std::span<const std::byte>(bytes), OutIn{size.out, in}});
    for (std::size_t r = 0; r < size.rows; ++r) {
      double x_sum = 0.0;
      std::vector<double> exact(size.out, 0.0);
      for (std::size_t i = 0; i < in; ++i) {
        const double value = static_cast<double>(x.view.codes(r)[i]) *
                             static_cast<double>(x.view.scales(r)[i / Activations<F>::width]);
        x_sum += std::abs(value);
        for (std::size_t o = 0; o < size.out; ++o)
          exact[o] += value * static_cast<double>(matrix[o * in + i]);
      }
      // Weights are about [-1, 1), so a scaled code and a minimum stay below 4.
      const double terms = 4.0 + static_cast<double>(in) / 16.0;
      for (std::size_t o = 0; o < size.out; ++o)
        EXPECT_NEAR(y[r * size.out + o], exact[o], 4.0 * x_sum * terms * 0x1p-24);
    }
  }
}

TYPED_TEST(Int8Kernels, OrderBatchAndThreadsChangeNoBit) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  const std::size_t blocks = F::block_size == 256 ? 7 : 1344 / F::block_size;
  const std::size_t in = blocks * F::block_size, out = 40;
  const auto row_major = support::encoded_blocks<F>(out * blocks);
  const auto bytes = support::laid_out<F, O>(row_major, out, blocks);
  const PackedView<F, O> w{std::span<const std::byte>(bytes), OutIn{out, in}};
  const PackedView<F, RowMajor> w_rows{std::span<const std::byte>(row_major), OutIn{out, in}};
  const Activations<F> x(support::random_values(17 * in), 17, in);
  const auto expected = portable<F, RowMajor>(x.view, w_rows);
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
      [&](auto tag) {
        using I = typename decltype(tag)::type;
        const quern::IsaLimit limit = quern::at_most<I>();
        for (const std::size_t rows : {1u, 2u, 3u, 4u, 5u, 17u}) {
          std::vector<float> y(17 * out, std::numeric_limits<float>::quiet_NaN());
          const MatrixView<float> all{std::span<float>(y), 17, out};
          for (std::size_t r = 0; r < 17; r += rows) {
            const std::size_t count = std::min(rows, 17 - r);
            quern::matmul_weight_transposed(x.view.narrow_rows(r, count), w,
                                            all.narrow_rows(r, count), {.max_isa = limit});
          }
          ASSERT_EQ(support::bits_of(y), support::bits_of(expected))
              << rows << " rows at a time, at most " << I::name;
        }
        for (std::size_t threads = 1; threads <= 64; ++threads) {
          const support::ShuffledExecutor executor{threads};
          std::vector<float> y(17 * out, std::numeric_limits<float>::quiet_NaN());
          quern::matmul_weight_transposed(x.view, w,
                                          MatrixView<float>{std::span<float>(y), 17, out},
                                          {.executor = executor, .max_isa = limit});
          ASSERT_EQ(support::bits_of(y), support::bits_of(expected))
              << threads << " threads, at most " << I::name;
        }
        if (I::available())
          std::cout << "at most " << I::name << ": "
                    << to_string(quern::best_kernel_key<Int8For<F>, F, O>(limit)) << '\n';
      });
}

/// Runs one weight block against one block of activations on every instruction set.
template <class F>
void expect_dot(std::span<const std::byte> block, std::int8_t code, float scale, float expected) {
  constexpr std::size_t width = quern::int8_width<F>;
  const std::vector<std::int8_t> codes(2 * F::block_size, code);
  const std::vector<float> scales(2 * F::block_size / width, scale);
  quern::ModelScope scope;
  const auto x = quern::int8_activations<width>(
      std::span<const std::int8_t>(codes), std::span<const float>(scales), 2, F::block_size, scope);
  support::for_each_kernel<Int8For<F>, F, RowMajor>([&](auto tag) {
    using K = typename decltype(tag)::type;
    for (const std::size_t rows : {1u, 2u}) {
      std::vector<float> y(rows);
      K::run(x.narrow_rows(0, rows), {block, OutIn{std::size_t{1}, F::block_size}},
             MatrixView<float>{std::span<float>(y), rows, 1});
      EXPECT_EQ(y, std::vector<float>(rows, expected)) << to_string(K::key);
    }
  });
}

std::vector<std::byte> block_of(std::initializer_list<int> head, int fill, std::size_t bytes) {
  std::vector<std::byte> block;
  for (const int byte : head)
    block.push_back(static_cast<std::byte>(byte));
  block.resize(bytes, static_cast<std::byte>(fill));
  return block;
}

TEST(Int8Products, LargestProductsAreExact) {
  // binary16 one is 00 3C.
  expect_dot<quern::Q8_0>(block_of({0x00, 0x3C}, 0x80, 34), -128, 1.0f, 524288.0f);
  expect_dot<quern::Q8_0>(block_of({0x00, 0x3C}, 0x7F, 34), 127, 1.0f, 516128.0f);
  expect_dot<quern::Q8_0>(block_of({0x00, 0x3C}, 0x80, 34), 127, 1.0f, -520192.0f);
}

TEST(Int8Products, LargeActivationsUnderAMinimumStayFinite) {
  // d = 0 and m = 1: each weight is 1, so the sum is that of the activations.
  const auto weight = block_of({0x00, 0x00, 0x00, 0x3C}, 0x00, 20);
  const std::vector<float> x(32, 3000.0f);
  quern::ModelScope scope;
  const auto quantized = quern::quantize_activations<32>(
      MatrixView<const float>{std::span<const float>(x), 1, 32}, scope);
  float y = 0.0f;
  quern::matmul_weight_transposed(
      quantized,
      PackedView<quern::Q4_1, RowMajor>{std::span<const std::byte>(weight), OutIn{1, 32}},
      MatrixView<float>{std::span<float>(&y, 1), 1, 1});
  EXPECT_GE(y, 95999.0f);
  EXPECT_LE(y, 96013.0f);
}

TEST(Int8Products, TheWrongOrderGivesAnotherAnswer) {
  const auto bytes = support::counting_weight(2, 3);
  const std::vector<float> ones(96, 1.0f);
  quern::ModelScope scope;
  const auto x = quern::quantize_activations<32>(
      MatrixView<const float>{std::span<const float>(ones), 1, 96}, scope);
  std::vector<float> right(2), wrong(2);
  quern::matmul_weight_transposed(
      x, PackedView<quern::Q4_0, RowMajor>{std::span<const std::byte>(bytes), OutIn{2, 96}},
      MatrixView<float>{std::span<float>(right), 1, 2});
  quern::matmul_weight_transposed(x,
                                  PackedView<quern::Q4_0, quern::InputBlockMajor>{
                                      std::span<const std::byte>(bytes), OutIn{2, 96}},
                                  MatrixView<float>{std::span<float>(wrong), 1, 2});
  EXPECT_NEAR(right[0], 192.0f, 0.01f);
  EXPECT_NEAR(right[1], 480.0f, 0.01f);
  EXPECT_NEAR(wrong[0], 288.0f, 0.01f);
  EXPECT_NEAR(wrong[1], 384.0f, 0.01f);
}

} // namespace
