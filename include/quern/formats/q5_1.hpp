// floor: 2
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/arithmetic.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/check_scale.hpp>
#include <quern/detail/encode.hpp>

namespace quern {

/// Q5_1: 32 values as 5-bit codes above a minimum with one scale, 6 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..3   m    binary16 minimum
///     byte  4..7   h    little-endian bits: bit i = fifth bit of value i
///     byte  8..23  q    byte j: low nibble = value j, high nibble = value 16 + j
///
///     value = d * code + m, code in 0..31
///
/// Source: GGUF type 7.
struct Q5_1 {
  static constexpr std::string_view name = "Q5_1";
  static constexpr std::size_t block_size = 32;
  static constexpr std::size_t bytes_per_block = 24;
  static constexpr std::uint32_t gguf_type = 7;
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block. d * code is exact in float, so the sum is rounded once, contracted
  /// or not.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    const float m = detail::load_half(block.data() + 2);
    const auto fifth = detail::load_le<std::uint32_t>(block.data() + 4);
    for (std::size_t j = 0; j < 16; ++j) {
      const unsigned codes = detail::load_u8(block.data() + 8 + j);
      const unsigned low = (codes & 15u) | (((fifth >> j) & 1u) << 4);
      const unsigned high = (codes >> 4) | (((fifth >> (16 + j)) & 1u) << 4);
      values[j] = d * static_cast<float>(low) + m;
      values[16 + j] = d * static_cast<float>(high) + m;
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0, 2>(block.data());
  }

  /// Encodes 32 values: the least is code 0, the greatest code 31.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto range = detail::find_range(values);
    if (range.peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(range.peak.fault, range.peak.lane);
    if (!detail::fits_half(range.low))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, range.low_lane);
    const float d = (range.high - range.low) / 31.0f;
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, range.high_lane);
    const auto scaled = detail::rounded_products(values, range.low, detail::inverse_or_zero(d));
    std::array<std::byte, bytes_per_block> block{};
    detail::store_half(block.data(), d);
    detail::store_half(block.data() + 2, range.low);
    std::uint32_t fifth = 0;
    for (std::size_t j = 0; j < 16; ++j) {
      const std::uint32_t low = code(scaled[j]);
      const std::uint32_t high = code(scaled[16 + j]);
      block[8 + j] = static_cast<std::byte>((low & 15u) | ((high & 15u) << 4));
      fifth |= (low >> 4) << j;
      fifth |= (high >> 4) << (16 + j);
    }
    detail::store_le(block.data() + 4, fifth);
    return block;
  }

private:
  // The greatest value may land a hair above 31 but never reaches 31.5.
  static constexpr std::uint32_t code(float scaled) noexcept {
    return static_cast<std::uint32_t>(static_cast<int>(scaled + 0.5f));
  }
};

} // namespace quern
