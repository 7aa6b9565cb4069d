// floor: 4
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <quern/block_format.hpp>
#include <quern/detail/relayout.hpp>
#include <quern/formats.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/quantize.hpp>

/// @file
/// Some rows of a RowMajor matrix at a time, brought to their places in a matrix of any order.

namespace quern::detail {

/// A matrix to be filled row by row: `out` rows of `blocks_per_row` blocks, without gaps.
struct RowTarget {
  std::byte* data;
  std::size_t out;
  std::size_t blocks_per_row;
  bool by_columns; ///< InputBlockMajor

  [[nodiscard]] std::size_t index(std::size_t o, std::size_t b) const noexcept {
    return by_columns ? InputBlockMajor::index(o, b, out) : RowMajor::index(o, b, blocks_per_row);
  }
};

/// Brings rows that lie by columns in `staging`, in the cache, to a target by columns: what goes to
/// memory are runs of blocks instead of single ones. The first is row `first` of the target.
inline void place_columns(const std::byte* staging, std::size_t block_bytes, std::size_t first,
                          std::size_t rows, const RowTarget& target) noexcept {
  for (std::size_t b = 0; b < target.blocks_per_row; ++b)
    std::memcpy(target.data + target.index(first, b) * block_bytes,
                staging + b * rows * block_bytes, rows * block_bytes);
}

/// Copies `rows` rows from `from`, the first of which is row `first` of the target.
template <std::size_t BytesPerBlock>
void place_rows(const std::byte* from, std::size_t first, std::size_t rows,
                const RowTarget& target) noexcept {
  const std::size_t row_bytes = target.blocks_per_row * BytesPerBlock;
  if (!target.by_columns) {
    std::memcpy(target.data + first * row_bytes, from, rows * row_bytes);
    return;
  }
  // The rows before and behind these meet other lines of the target, so by the time the next ones
  // come a large target has left the caches, and what the system put there to clear it too.
  const bool large = target.out * row_bytes >= (4 << 20);
  relayout_part<BytesPerBlock>(
      from, target.blocks_per_row, target.data + target.index(first, 0) * BytesPerBlock, target.out,
      rows, target.blocks_per_row, large ? Stores::around_caches : Stores::through_caches);
}

/// Decodes one row of whole blocks.
template <BlockFormat F>
void decode_row(const std::byte* row, std::span<float> values) noexcept {
  for (std::size_t b = 0; b < values.size() / F::block_size; ++b) {
    const auto block = F::decode(std::span<const std::byte, F::bytes_per_block>{
        row + b * F::bytes_per_block, F::bytes_per_block});
    std::memcpy(values.data() + b * F::block_size, block.data(), sizeof(block));
  }
}

/// Encodes row `o` of a matrix, which is row `at` of `target`. Throws as quantize() does.
template <BlockFormat G>
void encode_row(std::span<const float> values, std::size_t o, std::size_t at,
                const RowTarget& target) {
  for (std::size_t b = 0; b < target.blocks_per_row; ++b) {
    const std::span<const float, G::block_size> block{values.data() + b * G::block_size,
                                                      G::block_size};
    const Encoded<G::bytes_per_block> encoded = G::encode(block);
    if (!encoded.ok())
      throw_encode_fault(encoded.fault(), G::name, o, b * G::block_size + encoded.lane(),
                         block[encoded.lane()]);
    std::memcpy(target.data + target.index(at, b) * G::bytes_per_block, encoded.bytes().data(),
                G::bytes_per_block);
  }
}

/// Decodes rows of format `from_type` and encodes them in format `to_type`, both in Formats.
/// `values` has room for one row, `staging` for all of them as encoded; it is used only when the
/// target is by columns.
inline void convert_rows(std::uint32_t from_type, const std::byte* from, std::uint32_t to_type,
                         std::size_t first, std::size_t rows, const RowTarget& target,
                         std::span<float> values, std::byte* staging) {
  const RowTarget staged{staging, rows, target.blocks_per_row, true};
  for (std::size_t r = 0; r < rows; ++r) {
    with_format(from_type, [&](auto tag) {
      using F = typename decltype(tag)::type;
      decode_row<F>(from + r * (values.size() / F::block_size) * F::bytes_per_block, values);
    });
    with_format(to_type, [&](auto tag) {
      using G = typename decltype(tag)::type;
      if (target.by_columns)
        encode_row<G>(values, first + r, r, staged);
      else
        encode_row<G>(values, first + r, first + r, target);
    });
  }
  if (target.by_columns)
    with_format(to_type, [&](auto tag) {
      place_columns(staging, decltype(tag)::type::bytes_per_block, first, rows, target);
    });
}

} // namespace quern::detail
