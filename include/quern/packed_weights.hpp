// floor: 5
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/detail/relayout.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>

/// @file
/// The relayout and the shape checks for code that holds plain bytes and integers, such as
/// converters. Code that has views uses prepack().

namespace quern {

/// Blocks in a row of `in` values. Throws Error(not_block_multiple).
template <BlockFormat F>
[[nodiscard]] constexpr std::size_t blocks_per_row(In in) {
  return detail::grid_of<F>(OutIn{Out{1}, in}, "quern::blocks_per_row").blocks_per_row;
}

/// The shape of a weight given as two plain integers, `rows` output features of `in` values.
/// Throws Error(looks_swapped) when `in` is not whole blocks but `rows` is, which is what `[in,
/// out]` extents look like; Error(not_block_multiple) when `in` is not whole blocks otherwise;
/// Error(out_of_range) for a zero extent and Error(negative_extent) below zero. When both extents
/// are whole blocks nothing can be told: keep them in OutIn or NeShape instead.
template <BlockFormat F, std::integral Rows, std::integral Columns>
constexpr OutIn require_out_in(Rows rows, Columns in) {
  const OutIn shape{Out{rows}, In{in}};
  const std::size_t out = shape.out;
  const std::size_t columns = shape.in;
  if (out == 0 || columns == 0)
    throw Error(ErrorCode::out_of_range,
                "quern::require_out_in: " + to_string(shape) + " has a zero extent");
  if (columns % F::block_size != 0 && out % F::block_size == 0)
    throw Error(ErrorCode::looks_swapped,
                "quern::require_out_in: " + to_string(shape) +
                    " looks like [in, out]: " + std::string(F::name) + " tiles `in` by blocks of " +
                    std::to_string(F::block_size) +
                    ", and only the other extent is a multiple; pass OutIn{" +
                    std::to_string(columns) + ", " + std::to_string(out) +
                    "}, or out_in(NeShape) for extents from a GGUF file");
  (void)detail::grid_of<F>(shape, "quern::require_out_in");
  return shape;
}

namespace detail {

template <BlockFormat F>
constexpr Grid check_relayout(std::size_t bytes, OutIn shape, std::size_t out_bytes,
                              const char* call) {
  const Grid grid = grid_of<F>(shape, call);
  if (bytes != grid.bytes || out_bytes != grid.bytes)
    throw Error(ErrorCode::size_mismatch,
                std::string(call) + ": " + to_string(shape) + " in " + std::string(F::name) +
                    " is exactly " + std::to_string(grid.bytes) + " bytes, got " +
                    std::to_string(bytes) + " to read and room for " + std::to_string(out_bytes));
  return grid;
}

} // namespace detail

/// Copies the blocks of a weight from RowMajor to InputBlockMajor: block (o, b) from
/// `o * blocks_per_row + b` to `b * out + o`. Both spans are exactly the weight's size and must not
/// overlap. Throws Error(size_mismatch) and as PackedView does.
template <BlockFormat F>
constexpr void to_kernel_order(std::span<const std::byte> bytes, OutIn shape,
                               std::span<std::byte> out_bytes) {
  const auto grid =
      detail::check_relayout<F>(bytes.size(), shape, out_bytes.size(), "quern::to_kernel_order");
  detail::relayout<F::bytes_per_block>(bytes.data(), grid.blocks_per_row, out_bytes.data(),
                                       shape.out, grid.blocks_per_row);
}

/// Copies the blocks of a weight from InputBlockMajor back to RowMajor, the order of GGUF files.
/// The inverse of to_kernel_order(), with the same conditions.
template <BlockFormat F>
constexpr void to_canonical_order(std::span<const std::byte> bytes, OutIn shape,
                                  std::span<std::byte> out_bytes) {
  const auto grid =
      detail::check_relayout<F>(bytes.size(), shape, out_bytes.size(), "quern::to_canonical_order");
  detail::relayout<F::bytes_per_block>(bytes.data(), shape.out, out_bytes.data(),
                                       grid.blocks_per_row, shape.out);
}

/// to_kernel_order() into new memory.
template <BlockFormat F>
[[nodiscard]] constexpr std::vector<std::byte> to_kernel_order(std::span<const std::byte> bytes,
                                                               OutIn shape) {
  std::vector<std::byte> result(bytes.size());
  to_kernel_order<F>(bytes, shape, result);
  return result;
}

/// to_canonical_order() into new memory.
template <BlockFormat F>
[[nodiscard]] constexpr std::vector<std::byte> to_canonical_order(std::span<const std::byte> bytes,
                                                                  OutIn shape) {
  std::vector<std::byte> result(bytes.size());
  to_canonical_order<F>(bytes, shape, result);
  return result;
}

} // namespace quern
