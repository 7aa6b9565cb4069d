#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <Eigen/Core>
#include <gtest/gtest.h>

#include <quern/eigen/reference.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/kernels/scalar.hpp>
#include <quern/matmul.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>

#include "support/errors.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using quern::ErrorCode;
using quern::InputBlockMajor;
using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using quern::RowMajorMatrix;

RowMajorMatrix<float> matrix_of(const std::vector<float>& values, std::size_t rows,
                                std::size_t columns) {
  return Eigen::Map<const RowMajorMatrix<float>>(values.data(), static_cast<Eigen::Index>(rows),
                                                 static_cast<Eigen::Index>(columns));
}

template <class P>
class EigenReference : public testing::Test {};
TYPED_TEST_SUITE(EigenReference, support::EachFormatAndOrder, support::Names);

TYPED_TEST(EigenReference, DecodesAndMultipliesLikePlainLoops) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  const std::size_t out = 70; // more than one tile of rows
  const std::size_t blocks = 3;
  const std::size_t in = blocks * F::block_size;
  const auto row_major = support::encoded_blocks<F>(out * blocks);
  const auto bytes = support::laid_out<F, O>(row_major, out, blocks);
  const auto matrix = support::decoded<F>(row_major);
  const PackedView<F, O> weight{bytes, OutIn{out, in}};

  const auto dense = quern::to_eigen(weight);
  ASSERT_EQ(dense.rows(), static_cast<Eigen::Index>(out));
  ASSERT_EQ(dense.cols(), static_cast<Eigen::Index>(in));
  EXPECT_EQ(support::bits_of({dense.data(), matrix.size()}), support::bits_of(matrix));
  const auto columns = quern::to_eigen<Eigen::MatrixXd>(weight);
  EXPECT_EQ(columns, dense.template cast<double>());

  for (const std::size_t m : {std::size_t{1}, std::size_t{5}}) {
    const auto x = support::random_values(m * in, 9);
    const auto expected = support::product(x, matrix, m, out, in);
    const auto exact =
        quern::reference::matmul_weight_transposed<double>(matrix_of(x, m, in), weight);
    const auto single = quern::reference::matmul_weight_transposed(matrix_of(x, m, in), weight);
    double largest = 0;
    for (const double value : expected)
      largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0.0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(exact.data()[i], expected[i], 1e-12 * largest);
      EXPECT_NEAR(static_cast<double>(single.data()[i]), expected[i], 1e-5 * largest);
    }
  }
}

TYPED_TEST(EigenReference, TheOtherReadingGivesAnotherProduct) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  const std::size_t in = 3 * F::block_size;
  const auto row_major = support::encoded_blocks<F>(12);
  const auto bytes = support::laid_out<F, O>(row_major, 4, 3);
  const auto x = matrix_of(support::random_values(in, 3), 1, in);
  const auto right = quern::reference::matmul_weight_transposed<double>(
      x, PackedView<F, O>{bytes, OutIn{std::size_t{4}, in}});
  const auto wrong = quern::reference::matmul_weight_transposed<double>(
      x, PackedView<F, quern::OtherOrder<O>>{bytes, OutIn{std::size_t{4}, in}});
  EXPECT_FALSE(right.isApprox(wrong, 1e-3));
}

TYPED_TEST(EigenReference, AgreesWithTheProductOfEveryKernelChoice) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  const std::size_t out = 11;
  const std::size_t in = 5 * F::block_size;
  const auto bytes = support::laid_out<F, O>(support::encoded_blocks<F>(out * 5), out, 5);
  const PackedView<F, O> whole{bytes, OutIn{out, in}};
  const auto weight = whole.narrow_out(2, 7).narrow_blocks(1, 3);
  const std::size_t m = 3;
  const auto x = support::random_values(m * weight.in(), 5);
  const auto expected =
      quern::reference::matmul_weight_transposed<double>(matrix_of(x, m, weight.in()), weight);
  std::vector<float> y(m * 7);
  quern::matmul_weight_transposed(x, weight, y);
  const double largest = expected.cwiseAbs().maxCoeff();
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(static_cast<double>(y[i]), expected.data()[i], 1e-5 * largest);

  // The portable kernel by its own name, with rows of x and y that lie apart.
  const std::size_t x_stride = weight.in() + 3;
  const std::size_t y_stride = 9;
  std::vector<float> apart(m * x_stride, 1e30f);
  for (std::size_t r = 0; r < m; ++r)
    for (std::size_t i = 0; i < weight.in(); ++i)
      apart[r * x_stride + i] = x[r * weight.in() + i];
  std::vector<float> result(m * y_stride, -7.0f);
  quern::kernels::Matmul<float, F, O, quern::isa::Scalar>::run(
      MatrixView<const float>{std::span<const float>(apart), m, weight.in(), x_stride}, weight,
      MatrixView<float>{std::span<float>(result), m, 7, y_stride});
  for (std::size_t r = 0; r < m; ++r) {
    for (std::size_t o = 0; o < 7; ++o)
      EXPECT_NEAR(static_cast<double>(result[r * y_stride + o]),
                  expected(static_cast<Eigen::Index>(r), static_cast<Eigen::Index>(o)),
                  1e-6 * largest);
    EXPECT_EQ(result[r * y_stride + 7], -7.0f);
    EXPECT_EQ(result[r * y_stride + 8], -7.0f);
  }
}

TEST(CountingWeight, OfTwoRowsGivesTheOnlyRightSums) {
  const auto bytes = support::counting_weight(2, 3);
  const PackedView<Q4_0, RowMajor> weight{bytes, OutIn{2, 96}};
  const RowMajorMatrix<float> ones = RowMajorMatrix<float>::Ones(1, 96);
  const auto y = quern::reference::matmul_weight_transposed(ones, weight);
  EXPECT_EQ(y(0, 0), 192.0f);
  EXPECT_EQ(y(0, 1), 480.0f);

  quern::ModelScope scope;
  const auto packed = quern::prepack<InputBlockMajor>(weight, scope);
  EXPECT_EQ(quern::reference::matmul_weight_transposed(ones, packed), y);

  // The misreading is finite and has the same sum, so only its rows give it away.
  const PackedView<Q4_0, InputBlockMajor> misread{bytes, OutIn{2, 96}};
  const auto wrong = quern::reference::matmul_weight_transposed(ones, misread);
  EXPECT_EQ(wrong(0, 0), 288.0f);
  EXPECT_EQ(wrong(0, 1), 384.0f);
  EXPECT_EQ(wrong.sum(), y.sum());
}

TEST(CountingWeight, OnASquareGridOneRowHidesTheMisreading) {
  const auto bytes = support::counting_weight(3, 3);
  const RowMajorMatrix<float> ones = RowMajorMatrix<float>::Ones(1, 96);
  const auto right = quern::reference::matmul_weight_transposed(
      ones, PackedView<Q4_0, RowMajor>{bytes, OutIn{3, 96}});
  const auto wrong = quern::reference::matmul_weight_transposed(
      ones, PackedView<Q4_0, InputBlockMajor>{bytes, OutIn{3, 96}});
  EXPECT_EQ(right, (RowMajorMatrix<float>(1, 3) << 192.0f, 480.0f, 768.0f).finished());
  EXPECT_EQ(wrong, (RowMajorMatrix<float>(1, 3) << 384.0f, 480.0f, 576.0f).finished());
}

TEST(CountingWeight, ScalesWithEachRowOfX) {
  const auto bytes = support::counting_weight(2, 3);
  const PackedView<Q4_0, RowMajor> weight{bytes, OutIn{2, 96}};
  for (std::size_t n = 1; n <= 33; ++n) {
    std::vector<float> x(n * 96);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i / 96 + 1);
    std::vector<float> y(n * 2);
    quern::matmul_weight_transposed(x, weight, y);
    for (std::size_t j = 0; j < n; ++j) {
      EXPECT_EQ(y[2 * j], static_cast<float>(j + 1) * 192.0f);
      EXPECT_EQ(y[2 * j + 1], static_cast<float>(j + 1) * 480.0f);
    }
  }
}

TEST(ToEigen, ElementsDoNotDependOnTheStorageOrder) {
  const auto bytes = support::counting_weight(2, 3);
  const PackedView<Q4_0, RowMajor> weight{bytes, OutIn{2, 96}};
  const auto rows = quern::to_eigen(weight);
  const auto columns = quern::to_eigen<Eigen::MatrixXf>(weight);
  EXPECT_EQ(rows(1, 0), 4.0f);
  EXPECT_EQ(rows(0, 64), 3.0f);
  EXPECT_EQ(columns(1, 0), 4.0f);
  EXPECT_EQ(columns(0, 64), 3.0f);
}

TEST(Reference, TakesPartsMapsAndExpressionsOfX) {
  const auto bytes = support::counting_weight(2, 3);
  const PackedView<Q4_0, RowMajor> weight{bytes, OutIn{2, 96}};
  const Eigen::MatrixXf big = Eigen::MatrixXf::Ones(10, 200);
  const auto y = quern::reference::matmul_weight_transposed(2.0f * big.block(3, 50, 4, 96), weight);
  EXPECT_EQ(y.rows(), 4);
  EXPECT_EQ(y(3, 1), 960.0f);
}

TEST(Reference, TakesEmptyMatrices) {
  const std::vector<std::byte> none;
  const RowMajorMatrix<float> x = RowMajorMatrix<float>::Ones(2, 96);
  EXPECT_EQ(
      quern::reference::matmul_weight_transposed(x, PackedView<Q4_0, RowMajor>{none, OutIn{0, 96}})
          .cols(),
      0);
  const RowMajorMatrix<float> narrow(2, 0);
  const auto zeros = quern::reference::matmul_weight_transposed(
      narrow, PackedView<Q4_0, RowMajor>{none, OutIn{3, 0}});
  EXPECT_EQ(zeros, RowMajorMatrix<float>::Zero(2, 3));
  const auto bytes = support::counting_weight(2, 3);
  const RowMajorMatrix<float> no_rows(0, 96);
  EXPECT_EQ(quern::reference::matmul_weight_transposed(
                no_rows, PackedView<Q4_0, RowMajor>{bytes, OutIn{2, 96}})
                .rows(),
            0);
}

TEST(Reference, RefusesAnotherRowLength) {
  const auto bytes = support::counting_weight(2, 3);
  const RowMajorMatrix<float> x = RowMajorMatrix<float>::Ones(1, 64);
  const auto text = support::error_of(ErrorCode::size_mismatch, [&] {
    (void)quern::reference::matmul_weight_transposed(
        x, PackedView<Q4_0, RowMajor>{bytes, OutIn{2, 96}});
  });
  EXPECT_TRUE(support::contains(text, "needs 96"));
}

} // namespace
