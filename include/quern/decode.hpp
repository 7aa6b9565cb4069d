// floor: 3.1
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern {

/// Decodes a weight into memory of the caller's, `[out, in]` row after row whatever the block
/// order. Throws Error(size_mismatch) when the extents of `matrix` are not those of the weight.
template <BlockFormat F, BlockOrder O>
constexpr void decode(PackedView<F, O> weight, MatrixView<float> matrix) {
  if (matrix.rows() != weight.out() || matrix.cols() != weight.in())
    throw Error(ErrorCode::size_mismatch,
                "quern::decode: the weight is " + to_string(weight.shape()) + ", the matrix " +
                    std::to_string(matrix.rows()) + " x " + std::to_string(matrix.cols()));
  for (std::size_t o = 0; o < weight.out(); ++o)
    weight.decode_row(o, std::span<float>{matrix.row(o), weight.in()});
}

} // namespace quern
