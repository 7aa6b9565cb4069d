// floor: 3.1
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/shape.hpp>

namespace quern {

namespace detail {

[[noreturn]] inline void throw_encode_fault(EncodeFault fault, std::string_view format,
                                            std::size_t row, std::size_t column, float value) {
  const std::string where = "quern::quantize to " + std::string(format) + ": ";
  const std::string place = " at row " + std::to_string(row) + ", column " + std::to_string(column);
  if (fault == EncodeFault::not_a_number)
    throw Error(ErrorCode::not_a_number, where + "NaN" + place + "; remove it first");
  if (fault == EncodeFault::infinite)
    throw Error(ErrorCode::infinite, where + "infinity" + place + "; clamp it first");
  throw Error(ErrorCode::scale_overflow, where + "the value " + std::to_string(value) + place +
                                             " needs a scale that the format can't hold; "
                                             "rescale the weight");
}

} // namespace detail

/// Packs a dense matrix: rows are output features, columns input features. Each row is encoded by
/// itself, block by block, with `F::encode`. Throws Error(not_block_multiple) when the columns are
/// not whole blocks, and Error(not_a_number / infinite / scale_overflow) with row and column when a
/// block can't be encoded.
template <BlockFormat F>
[[nodiscard]] PackedWeight<F, RowMajor> quantize(MatrixView<const float> values) {
  const OutIn shape{Out{values.rows()}, In{values.cols()}};
  (void)detail::grid_of<F>(shape, "quern::quantize"); // so that the message names this call
  PackedWeight<F, RowMajor> weight{shape};
  std::byte* to = weight.bytes().data();
  for (std::size_t row = 0; row < values.rows(); ++row)
    for (std::size_t column = 0; column < values.cols(); column += F::block_size) {
      const std::span<const float, F::block_size> block{values.row(row) + column, F::block_size};
      const Encoded<F::bytes_per_block> encoded = F::encode(block);
      if (!encoded.ok())
        detail::throw_encode_fault(encoded.fault(), F::name, row, column + encoded.lane(),
                                   block[encoded.lane()]);
      to = std::ranges::copy(encoded.bytes(), to).out;
    }
  return weight;
}

/// The same for a gap-free matrix of `shape.out` rows of `shape.in` values. Throws also
/// Error(size_mismatch).
template <BlockFormat F>
[[nodiscard]] PackedWeight<F, RowMajor> quantize(std::span<const float> values, OutIn shape) {
  return quantize<F>(MatrixView<const float>{values, shape.out, shape.in});
}

} // namespace quern
