// floor: 1
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <quern/detail/config.hpp>

/// @file
/// The two orders in which the blocks of a packed weight can lie in memory. A weight is a grid of
/// `out x blocks_per_row` blocks; a block is never split and its own bytes never change.

namespace quern {

/// Block (o, b) at flat index `o * blocks_per_row + b`: what GGUF files hold and quantizers write.
struct RowMajor {
  /// As in kernel keys, traces and messages.
  static constexpr std::string_view name = "RowMajor";

  /// Blocks between (o, b) and its neighbour in the slow direction: a whole row.
  [[nodiscard]] static constexpr std::size_t stride(std::size_t /*out*/,
                                                    std::size_t blocks_per_row) noexcept {
    return blocks_per_row;
  }
  /// Flat index of block (o, b) under that stride.
  [[nodiscard]] static constexpr std::size_t index(std::size_t o, std::size_t b,
                                                   std::size_t stride) noexcept {
    return o * stride + b;
  }
};

/// Block (o, b) at flat index `b * out + o`: what packed kernels read.
struct InputBlockMajor {
  /// As in kernel keys, traces and messages.
  static constexpr std::string_view name = "InputBlockMajor";

  /// Blocks between (o, b) and its neighbour in the slow direction: a whole block column.
  [[nodiscard]] static constexpr std::size_t stride(std::size_t out,
                                                    std::size_t /*blocks_per_row*/) noexcept {
    return out;
  }
  /// Flat index of block (o, b) under that stride.
  [[nodiscard]] static constexpr std::size_t index(std::size_t o, std::size_t b,
                                                   std::size_t stride) noexcept {
    return b * stride + o;
  }
};

/// One of the two orders. There is no third.
template <class T>
concept BlockOrder = std::same_as<T, RowMajor> || std::same_as<T, InputBlockMajor>;

/// The order that is not `Order`.
template <BlockOrder Order>
using OtherOrder = std::conditional_t<std::same_as<Order, RowMajor>, InputBlockMajor, RowMajor>;

/// True when both orders put every block of an `out x blocks_per_row` grid at the same place:
/// only when the grid is a single row, a single column, or empty.
[[nodiscard]] constexpr bool orders_coincide(std::size_t out, std::size_t blocks_per_row) noexcept {
  return out <= 1 || blocks_per_row <= 1;
}

} // namespace quern
