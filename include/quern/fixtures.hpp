// floor: 5.1
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weights.hpp>
#include <quern/shape.hpp>

/// @file
/// Ready-made bytes to check your own converter, loader or kernel with: feed it the canonical
/// fixture, hand what comes out to disagreement(). The grid is 4 x 3 blocks by default; on a square
/// grid the relayout is its own inverse and a test proves nothing.

namespace quern::fixtures {

/// Rows of the fixtures when not given.
inline constexpr std::size_t default_out = 4;
/// Blocks per row of the fixtures when not given.
inline constexpr std::size_t default_blocks_per_row = 3;

/// The first difference between some bytes and a fixture.
struct Disagreement {
  std::string_view format;       ///< `name` of the format
  std::string_view order;        ///< the order that was expected
  std::size_t expected_size = 0; ///< bytes
  std::size_t found_size = 0;    ///< bytes; differs from expected_size: nothing else was compared
  std::size_t out = 0;           ///< the block that should be here: its row
  std::size_t block = 0;         ///< and its column
  std::size_t flat_index = 0;    ///< place of that block in the bytes, in blocks
  std::size_t offset = 0;        ///< first differing byte within it
  std::uint8_t expected = 0;     ///< the byte that the fixture has there
  std::uint8_t found = 0;        ///< the byte that is there
  /// The flat RowMajor number of the fixture block that stands here instead, if it is one.
  std::optional<std::size_t> found_block;
  /// Of the fixture.
  std::size_t blocks_per_row = 0;

  /// The difference in words.
  [[nodiscard]] std::string message() const {
    const std::string head =
        "quern::fixtures::disagreement<" + std::string(format) + ", " + std::string(order) + ">: ";
    if (expected_size != found_size)
      return head + "expected exactly " + std::to_string(expected_size) + " bytes, got " +
             std::to_string(found_size);
    std::string text = head + "block (" + std::to_string(out) + ", " + std::to_string(block) +
                       ") should be at flat index " + std::to_string(flat_index) + " (" +
                       std::string(order) + "), found ";
    if (found_block)
      return text + "block (" + std::to_string(*found_block / blocks_per_row) + ", " +
             std::to_string(*found_block % blocks_per_row) + ") there";
    return text + "byte " + std::to_string(found) + " instead of " + std::to_string(expected) +
           " at its byte " + std::to_string(offset);
  }
  operator std::string() const { return message(); } // NOLINT: implicit
};

/// Byte `offset` of the fixture block with flat RowMajor number `number`: the number in two bytes,
/// then bytes that depend on both, so no block resembles another in any part. Numbers repeat after
/// 65536 blocks.
[[nodiscard]] constexpr std::byte tag(std::size_t number, std::size_t offset) noexcept {
  if (offset == 0) return static_cast<std::byte>(number & 0xFFu);
  if (offset == 1) return static_cast<std::byte>(((number >> 8) & 0xFFu) ^ 0xA5u);
  return static_cast<std::byte>((number * 37u + offset * 11u + (number >> 8)) & 0xFFu);
}

namespace detail {

template <BlockFormat F, BlockOrder O, std::size_t OutRows, std::size_t BlocksPerRow>
[[nodiscard]] constexpr auto tagged() noexcept {
  std::array<std::byte, OutRows * BlocksPerRow * F::bytes_per_block> bytes{};
  const std::size_t stride = O::stride(OutRows, BlocksPerRow);
  for (std::size_t o = 0; o < OutRows; ++o)
    for (std::size_t b = 0; b < BlocksPerRow; ++b)
      for (std::size_t j = 0; j < F::bytes_per_block; ++j)
        bytes[O::index(o, b, stride) * F::bytes_per_block + j] = tag(o * BlocksPerRow + b, j);
  return bytes;
}

} // namespace detail

/// Tagged bytes of a weight of `OutRows x BlocksPerRow` blocks in RowMajor. The tags are not
/// meant to be decoded; see decodable().
template <BlockFormat F, std::size_t OutRows = default_out,
          std::size_t BlocksPerRow = default_blocks_per_row>
[[nodiscard]] constexpr auto canonical() noexcept {
  return detail::tagged<F, RowMajor, OutRows, BlocksPerRow>();
}

/// The same blocks in InputBlockMajor.
template <BlockFormat F, std::size_t OutRows = default_out,
          std::size_t BlocksPerRow = default_blocks_per_row>
[[nodiscard]] constexpr auto kernel_order() noexcept {
  return detail::tagged<F, InputBlockMajor, OutRows, BlocksPerRow>();
}

/// Nothing when `bytes` are the fixture in `Order`; otherwise where they first differ. Every byte
/// and the exact size are compared.
template <BlockFormat F, BlockOrder Order, std::size_t OutRows = default_out,
          std::size_t BlocksPerRow = default_blocks_per_row>
[[nodiscard]] constexpr std::optional<Disagreement>
disagreement(std::span<const std::byte> bytes) noexcept {
  Disagreement d;
  d.format = F::name;
  d.order = Order::name;
  d.expected_size = OutRows * BlocksPerRow * F::bytes_per_block;
  d.found_size = bytes.size();
  d.blocks_per_row = BlocksPerRow;
  if (d.expected_size != d.found_size) return d;
  const auto is_block = [&](std::span<const std::byte> here, std::size_t number) {
    for (std::size_t j = 0; j < F::bytes_per_block; ++j)
      if (here[j] != tag(number, j)) return false;
    return true;
  };
  const std::size_t stride = Order::stride(OutRows, BlocksPerRow);
  for (d.out = 0; d.out < OutRows; ++d.out)
    for (d.block = 0; d.block < BlocksPerRow; ++d.block) {
      const std::size_t number = d.out * BlocksPerRow + d.block;
      d.flat_index = Order::index(d.out, d.block, stride);
      const auto here = bytes.subspan(d.flat_index * F::bytes_per_block, F::bytes_per_block);
      if (is_block(here, number)) continue;
      while (here[d.offset] == tag(number, d.offset))
        ++d.offset;
      d.expected = static_cast<std::uint8_t>(tag(number, d.offset));
      d.found = static_cast<std::uint8_t>(here[d.offset]);
      for (std::size_t other = 0; other < OutRows * BlocksPerRow && !d.found_block; ++other)
        if (is_block(here, other)) d.found_block = other;
      return d;
    }
  return std::nullopt;
}

/// A weight whose bytes decode to finite values, in both orders, with its decoded matrix.
template <BlockFormat F, std::size_t OutRows = default_out,
          std::size_t BlocksPerRow = default_blocks_per_row>
struct Decodable {
  /// Values in a row.
  static constexpr std::size_t in = BlocksPerRow * F::block_size;
  /// The bytes of the weight in RowMajor.
  std::array<std::byte, OutRows * BlocksPerRow * F::bytes_per_block> canonical{};
  /// The same blocks in InputBlockMajor.
  std::array<std::byte, OutRows * BlocksPerRow * F::bytes_per_block> kernel_order{};
  std::array<float, OutRows * in> matrix{}; ///< `[out, in]`, row after row

  /// Of the weight and of `matrix`.
  [[nodiscard]] static constexpr OutIn shape() { return OutIn{Out{OutRows}, In{in}}; }
};

/// The value that decodable() encodes at lane `i` of block `number`: seventeen steps from -8 to 8,
/// in an order of their own for each block, times a size that grows with the number. No two blocks
/// decode to the same values.
[[nodiscard]] constexpr float decodable_value(std::size_t number, std::size_t i) noexcept {
  const int step = static_cast<int>(i * (1 + number % 16) % 17) - 8;
  return static_cast<float>(number + 1) * 0.25f * static_cast<float>(step);
}

/// Encodes a known matrix with `F::encode`. Usable at compile time where the encoder is cheap
/// enough for the compiler's limits.
template <BlockFormat F, std::size_t OutRows = default_out,
          std::size_t BlocksPerRow = default_blocks_per_row>
[[nodiscard]] constexpr Decodable<F, OutRows, BlocksPerRow> decodable() {
  Decodable<F, OutRows, BlocksPerRow> fixture;
  for (std::size_t number = 0; number < OutRows * BlocksPerRow; ++number) {
    std::array<float, F::block_size> values{};
    for (std::size_t i = 0; i < F::block_size; ++i)
      values[i] = decodable_value(number, i);
    const auto bytes = F::encode(std::span<const float, F::block_size>{values}).bytes();
    const auto decoded = F::decode(std::span<const std::byte, F::bytes_per_block>{bytes});
    std::copy(bytes.begin(), bytes.end(),
              fixture.canonical.begin() + static_cast<std::ptrdiff_t>(number * F::bytes_per_block));
    std::copy(decoded.begin(), decoded.end(),
              fixture.matrix.begin() + static_cast<std::ptrdiff_t>(number * F::block_size));
  }
  to_kernel_order<F>(fixture.canonical, Decodable<F, OutRows, BlocksPerRow>::shape(),
                     fixture.kernel_order);
  return fixture;
}

} // namespace quern::fixtures
