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
#include <quern/detail/half.hpp>
#include <quern/detail/iq_sweep.hpp>
#include <quern/detail/least_error.hpp>
#include <quern/detail/line_search.hpp>

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
  static constexpr std::string_view name = "Q5_1";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 32;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 24; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 7;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
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

  /// Encodes 32 values as files in use are written: the least is code 0, the greatest code 31.
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
    std::array<std::uint8_t, block_size> codes{};
    // The greatest value may land a hair above 31 but never reaches 31.5.
    for (std::size_t i = 0; i < block_size; ++i)
      codes[i] = static_cast<std::uint8_t>(static_cast<int>(scaled[i] + 0.5f));
    return pack(detail::float_to_half(d), detail::float_to_half(range.low), codes);
  }

  /// Encodes 32 values with a low squared error, that of value i weighted by `importance[i]`: 32
  /// finite numbers, none negative. No importance, or only zeros, means that all values matter
  /// alike. Never a larger error than without a search.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto plain = encode(values);
    if (!plain.ok()) return plain;
    const detail::BlockWeights<block_size> weights(importance);
    const float peak = detail::magnitude(detail::find_peak(values).value);
    const auto found = detail::search_half_line<31>(values, weights.span(), peak);
    if (!found) return plain;
    return detail::better_of<Q5_1>(values, weights.span(), plain,
                                   pack(found->scale, found->offset, found->codes));
  }

private:
  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::uint16_t d, std::uint16_t m,
       const std::array<std::uint8_t, block_size>& codes) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), d);
    detail::store_le(block.data() + 2, m);
    std::uint32_t fifth = 0;
    for (std::size_t j = 0; j < 16; ++j) {
      const std::uint32_t low = codes[j];
      const std::uint32_t high = codes[16 + j];
      block[8 + j] = static_cast<std::byte>((low & 15u) | ((high & 15u) << 4));
      fifth |= (low >> 4) << j;
      fifth |= (high >> 4) << (16 + j);
    }
    detail::store_le(block.data() + 4, fifth);
    return block;
  }
};

} // namespace quern
