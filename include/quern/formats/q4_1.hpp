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

/// Q4_1: 32 values as 4-bit codes above a minimum with one scale, 5 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..3   m    binary16 minimum
///     byte  4..19  q    byte j: low nibble = value j, high nibble = value 16 + j
///
///     value = d * code + m, code in 0..15
///
/// Source: GGUF type 3.
struct Q4_1 {
  static constexpr std::string_view name = "Q4_1";
  static constexpr std::size_t block_size = 32;
  static constexpr std::size_t bytes_per_block = 20;
  static constexpr std::uint32_t gguf_type = 3;
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block. d * code is exact in float, so the sum is rounded once, contracted
  /// or not.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    const float m = detail::load_half(block.data() + 2);
    for (std::size_t j = 0; j < 16; ++j) {
      const int codes = detail::load_u8(block.data() + 4 + j);
      values[j] = d * static_cast<float>(codes & 15) + m;
      values[16 + j] = d * static_cast<float>(codes >> 4) + m;
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0, 2>(block.data());
  }

  /// Encodes 32 values: the least is code 0, the greatest code 15.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto range = detail::find_range(values);
    if (range.peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(range.peak.fault, range.peak.lane);
    if (!detail::fits_half(range.low))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, range.low_lane);
    const float d = (range.high - range.low) / 15.0f;
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, range.high_lane);
    const auto scaled = detail::rounded_products(values, range.low, detail::inverse_or_zero(d));
    std::array<std::byte, bytes_per_block> block{};
    detail::store_half(block.data(), d);
    detail::store_half(block.data() + 2, range.low);
    for (std::size_t j = 0; j < 16; ++j)
      block[4 + j] = static_cast<std::byte>(code(scaled[j]) | (code(scaled[16 + j]) << 4));
    return block;
  }

private:
  static constexpr int code(float scaled) noexcept {
    const int raw = static_cast<int>(scaled + 0.5f);
    return raw > 15 ? 15 : raw;
  }
};

} // namespace quern
