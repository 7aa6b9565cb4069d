// Kernels for float activations: every format, order and instruction set that this CPU has.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/kernels.hpp>
#include <quern/matmul.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

#include "support/guarded.hpp"
#include "support/kernels.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using support::canary;
using support::Size;

/// A weight, its matrix and activations for one size.
template <class F, class O>
struct Problem {
  Size size;
  std::size_t in;
  std::vector<std::byte> row_major;
  std::vector<std::byte> bytes;
  std::vector<float> matrix;
  std::vector<float> x;

  explicit Problem(Size wanted)
      : size(wanted), in(wanted.blocks * F::block_size),
        row_major(support::encoded_blocks<F>(wanted.out * wanted.blocks,
                                             static_cast<std::uint32_t>(wanted.out))),
        bytes(support::laid_out<F, O>(row_major, wanted.out, wanted.blocks)),
        matrix(support::decoded<F>(row_major)),
        x(support::random_values(wanted.rows * in, static_cast<std::uint32_t>(wanted.rows))) {}

  [[nodiscard]] PackedView<F, O> view() const {
    return PackedView<F, O>{std::span<const std::byte>(bytes), OutIn{size.out, in}};
  }
};

/// Largest error of one result: `terms` roundings of at most half a unit of the sum of magnitudes.
std::vector<double> bounds(std::span<const float> x, std::span<const float> matrix, Size size,
                           std::size_t in) {
  std::vector<float> x_size(x.begin(), x.end());
  std::vector<float> w_size(matrix.begin(), matrix.end());
  for (float& v : x_size)
    v = std::abs(v);
  for (float& v : w_size)
    v = std::abs(v);
  auto sums = support::product(x_size, w_size, size.rows, size.out, in);
  const double terms = 64.0 + 4.0 + static_cast<double>(in) / 512.0;
  for (double& sum : sums)
    sum *= terms * 0x1p-24;
  return sums;
}

template <class P>
class FloatKernels : public testing::Test {};
TYPED_TEST_SUITE(FloatKernels, support::EachFormatAndOrder, support::Names);

TYPED_TEST(FloatKernels, EverySizeIsNearTheExactProductAndTouchesNothingElse) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  for (const Size size : support::sizes()) {
    const Problem<F, O> p(size);
    const auto expected = support::product(p.x, p.matrix, size.rows, size.out, p.in);
    const auto allowed = bounds(p.x, p.matrix, size, p.in);
    const support::Guarded<std::byte> bytes{std::span<const std::byte>(p.bytes)};
    const support::Guarded<float> x{std::span<const float>(p.x)};
    const std::size_t stride = size.out + 3;
    support::for_each_kernel<float, F, O>([&](auto tag) {
      using K = typename decltype(tag)::type;
      SCOPED_TRACE(to_string(K::key) + " out " + std::to_string(size.out) + " blocks " +
                   std::to_string(size.blocks) + " rows " + std::to_string(size.rows));
      support::Guarded<float> y((size.rows - 1) * stride + size.out);
      std::ranges::fill(y.span(), canary);
      K::run(MatrixView<const float>{x.span(), size.rows, p.in},
             PackedView<F, O>{bytes.span(), OutIn{size.out, p.in}},
             MatrixView<float>{y.span(), size.rows, size.out, stride});
      for (std::size_t i = 0; i < y.span().size(); ++i) {
        const std::size_t r = i / stride, o = i % stride;
        if (o >= size.out) {
          ASSERT_EQ(y.span()[i], canary) << "row " << r << " column " << o << " was written";
        } else {
          ASSERT_NEAR(y.span()[i], expected[r * size.out + o], allowed[r * size.out + o])
              << "row " << r << " column " << o;
        }
      }
    });
  }
}

TYPED_TEST(FloatKernels, IdentityGivesTheDecodedMatrix) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  constexpr std::size_t out = 5, blocks = 2, in = blocks * F::block_size;
  const auto row_major = support::finite_blocks<F>(out * blocks);
  const auto bytes = support::laid_out<F, O>(row_major, out, blocks);
  const auto matrix = support::decoded<F>(row_major);
  const PackedView<F, O> w{std::span<const std::byte>(bytes), OutIn{out, in}};
  std::vector<float> x(in * in, 0.0f);
  for (std::size_t i = 0; i < in; ++i)
    x[i * in + i] = 1.0f;
  const MatrixView<const float> all{std::span<const float>(x), in, in};
  support::for_each_kernel<float, F, O>([&](auto tag) {
    using K = typename decltype(tag)::type;
    for (const std::size_t rows : {std::size_t{1}, in}) {
      std::vector<float> y(in * out, canary);
      const MatrixView<float> results{std::span<float>(y), in, out};
      for (std::size_t r = 0; r < in; r += rows)
        K::run(all.narrow_rows(r, rows), w, results.narrow_rows(r, rows));
      for (std::size_t i = 0; i < in * out; ++i)
        ASSERT_EQ(y[i], matrix[i % out * in + i / out])
            << to_string(K::key) << " rows " << rows << " element " << i;
    }
  });
}

TYPED_TEST(FloatKernels, OrderAndBatchChangeNoBit) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  // More inputs than one piece of a sum, and not a multiple of eight for single values.
  const std::size_t blocks = F::block_size == 1 ? 1301 : (1300 + F::block_size) / F::block_size;
  for (const std::size_t out : {13u, 41u}) {
    const Problem<F, O> p({out, blocks, 17});
    const PackedView<F, quern::RowMajor> row_major{std::span<const std::byte>(p.row_major),
                                                   OutIn{out, p.in}};
    support::for_each_kernel<float, F, O>([&](auto tag) {
      using K = typename decltype(tag)::type;
      SCOPED_TRACE(to_string(K::key));
      std::vector<float> all(17 * out), part(17 * out), other(17 * out);
      K::run(MatrixView<const float>{std::span<const float>(p.x), 17, p.in}, p.view(),
             MatrixView<float>{std::span<float>(all), 17, out});
      for (std::size_t rows : {1u, 2u, 3u, 4u, 5u, 8u}) {
        for (std::size_t r = 0; r + rows <= 17; r += rows)
          K::run(
              MatrixView<const float>{std::span<const float>(p.x), 17, p.in}.narrow_rows(r, rows),
              p.view(), MatrixView<float>{std::span<float>(part), 17, out}.narrow_rows(r, rows));
        const std::size_t whole = 17 / rows * rows * out;
        ASSERT_EQ(support::bits_of(std::span<const float>(part).first(whole)),
                  support::bits_of(std::span<const float>(all).first(whole)))
            << rows << " rows at a time";
      }
      boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
          [&](auto isa) {
            using I = typename decltype(isa)::type;
            if constexpr (quern::has_kernel<float, F, quern::RowMajor, I>)
              if (I::name == K::key.isa && I::available())
                quern::kernels::Matmul<float, F, quern::RowMajor, I>::run(
                    MatrixView<const float>{std::span<const float>(p.x), 17, p.in}, row_major,
                    MatrixView<float>{std::span<float>(other), 17, out});
          });
      ASSERT_EQ(support::bits_of(other), support::bits_of(all)) << "in RowMajor";
    });
  }
}

TYPED_TEST(FloatKernels, NarrowedViewsAtOddAddresses) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  constexpr std::size_t from = 3, count = 19, first = 2, kept = 7;
  const Problem<F, O> p({29, 11, 5});
  std::vector<std::byte> shifted(p.bytes.size() + 1);
  std::ranges::copy(p.bytes, shifted.begin() + 1);
  const PackedView<F, O> whole{std::span<const std::byte>(shifted).subspan(1), OutIn{29, p.in}};
  const auto part = whole.narrow_out(from, count).narrow_blocks(first, kept);
  std::vector<float> matrix;
  for (std::size_t o = 0; o < count; ++o)
    for (std::size_t i = 0; i < kept * F::block_size; ++i)
      matrix.push_back(p.matrix[(from + o) * p.in + first * F::block_size + i]);
  const std::size_t in = kept * F::block_size;
  for (const std::size_t rows : {1u, 2u, 5u}) {
    // x at a stride of its own, both x and y off every alignment but that of float.
    std::vector<float> x(1 + 5 * (in + 5)), gathered;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < in; ++i)
        gathered.push_back(x[1 + r * (in + 5) + i] = p.x[r * p.in + i]);
    const auto expected = support::product(gathered, matrix, rows, count, in);
    const auto allowed = bounds(gathered, matrix, {count, kept, rows}, in);
    support::for_each_kernel<float, F, O>([&](auto tag) {
      using K = typename decltype(tag)::type;
      SCOPED_TRACE(to_string(K::key));
      std::vector<float> y(1 + rows * count);
      K::run(MatrixView<const float>{std::span<const float>(x).subspan(1), rows, in, in + 5}, part,
             MatrixView<float>{std::span<float>(y).subspan(1), rows, count});
      for (std::size_t i = 0; i < rows * count; ++i)
        ASSERT_NEAR(y[1 + i], expected[i], allowed[i]) << i;
    });
  }
}

TYPED_TEST(FloatKernels, ThreadsWriteEachOutputOnceAndChangeNoBit) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  for (const std::size_t rows : {1u, 19u}) {
    const Problem<F, O> p({40, 5, rows});
    const MatrixView<const float> x{std::span<const float>(p.x), rows, p.in};
    std::vector<float> alone(rows * 40);
    quern::matmul_weight_transposed(x, p.view(),
                                    MatrixView<float>{std::span<float>(alone), rows, 40});
    for (std::size_t threads = 1; threads <= 64; ++threads) {
      const support::ShuffledExecutor executor{threads};
      std::vector<float> y(rows * 40, std::numeric_limits<float>::quiet_NaN());
      quern::matmul_weight_transposed(x, p.view(), MatrixView<float>{std::span<float>(y), rows, 40},
                                      {.executor = executor});
      ASSERT_EQ(support::bits_of(y), support::bits_of(alone)) << threads << " threads";
    }
  }
}

TYPED_TEST(FloatKernels, NanAndInfinityStayInTheirRow) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  for (const std::size_t rows : {1u, 3u, 8u}) {
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Problem<F, O> p({11, 3, rows});
      support::for_each_kernel<float, F, O>([&](auto tag) {
        using K = typename decltype(tag)::type;
        SCOPED_TRACE(to_string(K::key));
        std::vector<float> good(rows * 11), bad(rows * 11);
        K::run(MatrixView<const float>{std::span<const float>(p.x), rows, p.in}, p.view(),
               MatrixView<float>{std::span<float>(good), rows, 11});
        const std::size_t row = rows / 2;
        auto x = p.x;
        x[row * p.in + p.in / 2] = odd;
        K::run(MatrixView<const float>{std::span<const float>(x), rows, p.in}, p.view(),
               MatrixView<float>{std::span<float>(bad), rows, 11});
        for (std::size_t i = 0; i < rows * 11; ++i) {
          if (i / 11 == row)
            ASSERT_FALSE(std::isfinite(bad[i])) << i;
          else
            ASSERT_EQ(bad[i], good[i]) << i;
        }
      });
    }
  }
}

TYPED_TEST(FloatKernels, EmptyExtents) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  const PackedView<F, O> no_inputs{{}, OutIn{3, 0}};
  const PackedView<F, O> no_outputs{{}, OutIn{std::size_t{0}, 3 * F::block_size}};
  const std::vector<float> x(6 * F::block_size, 1.0f);
  support::for_each_kernel<float, F, O>([&](auto tag) {
    using K = typename decltype(tag)::type;
    std::vector<float> y(6, canary);
    K::run(MatrixView<const float>{{}, 2, 0}, no_inputs,
           MatrixView<float>{std::span<float>(y), 2, 3});
    EXPECT_EQ(y, std::vector<float>(6, 0.0f)) << to_string(K::key);
    K::run(MatrixView<const float>{std::span<const float>(x), 2, 3 * F::block_size}, no_outputs,
           MatrixView<float>{{}, 2, 0});
    K::run(MatrixView<const float>{{}, 0, 3 * F::block_size}, no_outputs,
           MatrixView<float>{{}, 0, 0});
  });
}

TYPED_TEST(FloatKernels, LimitChoosesTheKernel) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  using quern::isa::Scalar;
  EXPECT_EQ((quern::best_kernel_key<F, O>(quern::at_most<Scalar>()).isa), Scalar::name);
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
      [&](auto tag) {
        using I = typename decltype(tag)::type;
        const auto key = quern::best_kernel_key<F, O>(quern::at_most<I>());
        if (!I::available()) return;
        if (quern::has_kernel<float, F, O, I>) {
          EXPECT_EQ(key.isa, I::name);
        }
        std::cout << "at most " << I::name << ": " << to_string(key) << '\n';
      });
}

TEST(FloatKernelsOnOrder, TheWrongOrderGivesAnotherAnswer) {
  const auto bytes = support::counting_weight(2, 3);
  const std::vector<float> ones(96, 1.0f);
  std::vector<float> right(2), wrong(2);
  quern::matmul_weight_transposed(
      std::span<const float>(ones),
      PackedView<quern::Q4_0, quern::RowMajor>{std::span<const std::byte>(bytes), OutIn{2, 96}},
      std::span<float>(right));
  quern::matmul_weight_transposed(std::span<const float>(ones),
                                  PackedView<quern::Q4_0, quern::InputBlockMajor>{
                                      std::span<const std::byte>(bytes), OutIn{2, 96}},
                                  std::span<float>(wrong));
  EXPECT_EQ(right, (std::vector<float>{192.0f, 480.0f}));
  EXPECT_EQ(wrong, (std::vector<float>{288.0f, 384.0f}));
}

} // namespace
