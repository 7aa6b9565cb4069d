// floor: 5
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include <Eigen/Core>

#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// What a packed weight means, in Eigen: its decoded matrix, and the product that every kernel is
/// compared with.

namespace quern {

/// A dense row-major matrix of any size.
template <class Scalar>
using RowMajorMatrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace detail {

/// Decodes rows [from, from + rows.rows()) of the weight into an Eigen matrix of any storage order.
template <BlockFormat F, BlockOrder O, class Matrix>
void decode_rows(PackedView<F, O> weight, std::size_t from, Matrix& rows) {
  using Scalar = typename Matrix::Scalar;
  using Block = Eigen::Map<const Eigen::Matrix<float, 1, static_cast<int>(F::block_size)>>;
  for (Eigen::Index o = 0; o < rows.rows(); ++o)
    for (std::size_t b = 0; b < weight.blocks_per_row(); ++b) {
      const auto values = F::decode(typename PackedView<F, O>::Block{
          weight.block_data(from + static_cast<std::size_t>(o), b), F::bytes_per_block});
      rows.template block<1, static_cast<int>(F::block_size)>(
          o, static_cast<Eigen::Index>(b * F::block_size)) =
          Block(values.data()).template cast<Scalar>();
    }
}

} // namespace detail

/// The decoded matrix, `out x in`, each block decoded once. `Matrix` is any resizable Eigen matrix
/// of float or double; its storage order does not change which element is where.
template <class Matrix = RowMajorMatrix<float>, BlockFormat F, BlockOrder O>
[[nodiscard]] Matrix to_eigen(PackedView<F, O> weight) {
  Matrix matrix(static_cast<Eigen::Index>(weight.out()), static_cast<Eigen::Index>(weight.in()));
  detail::decode_rows(weight, 0, matrix);
  return matrix;
}

namespace reference {

/// x * W^T by decoding the weight and letting Eigen multiply in `Accumulator` (float or double):
/// `x` is `[m, in]`, the result `[m, out]`. Rows of the weight are decoded a tile at a time, each
/// block once. Throws Error(size_mismatch) when `x` does not have `in` columns.
template <class Accumulator = float, class Derived, BlockFormat F, BlockOrder O>
requires(std::is_same_v<Accumulator, float> || std::is_same_v<Accumulator, double>)
    [[nodiscard]] RowMajorMatrix<Accumulator> matmul_weight_transposed(
        const Eigen::MatrixBase<Derived>& x, PackedView<F, O> weight) {
  if (static_cast<std::size_t>(x.cols()) != weight.in())
    throw Error(ErrorCode::size_mismatch, "quern::reference::matmul_weight_transposed: x has " +
                                              std::to_string(x.cols()) + " columns, the weight " +
                                              to_string(weight.shape()) + " needs " +
                                              std::to_string(weight.in()) + "; x is [m, in]");
  constexpr std::size_t tile = 64;
  const RowMajorMatrix<Accumulator> activations = x.template cast<Accumulator>();
  RowMajorMatrix<Accumulator> y(x.rows(), static_cast<Eigen::Index>(weight.out()));
  RowMajorMatrix<Accumulator> rows;
  for (std::size_t o = 0; o < weight.out(); o += tile) {
    const auto count = static_cast<Eigen::Index>(std::min(tile, weight.out() - o));
    rows.resize(count, static_cast<Eigen::Index>(weight.in()));
    detail::decode_rows(weight, o, rows);
    y.middleCols(static_cast<Eigen::Index>(o), count).noalias() = activations * rows.transpose();
  }
  return y;
}

} // namespace reference

} // namespace quern
