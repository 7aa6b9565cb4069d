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

namespace quern {

/// Q5_0: 32 values as 5-bit codes around zero with one scale, 5.5 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..5   h    little-endian bits: bit i = fifth bit of value i
///     byte  6..21  q    byte j: low nibble = value j, high nibble = value 16 + j
///
///     value = d * (code - 16), code in 0..31
///
/// Source: GGUF type 6.
struct Q5_0 {
  static constexpr std::string_view name = "Q5_0";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 32;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 22; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 6;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    const auto fifth = detail::load_le<std::uint32_t>(block.data() + 2);
    for (std::size_t j = 0; j < 16; ++j) {
      const unsigned codes = detail::load_u8(block.data() + 6 + j);
      const unsigned low = (codes & 15u) | (((fifth >> j) & 1u) << 4);
      const unsigned high = (codes >> 4) | (((fifth >> (16 + j)) & 1u) << 4);
      values[j] = d * static_cast<float>(static_cast<int>(low) - 16);
      values[16 + j] = d * static_cast<float>(static_cast<int>(high) - 16);
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 32 values as files in use are written. The scale makes the first value of largest
  /// magnitude exactly code 0, which is -16 * d, so its sign decides the sign of the scale.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const float d = peak.value / -16.0f;
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    const auto scaled = detail::rounded_products(values, 0.0f, detail::inverse_or_zero(d));
    std::array<std::uint8_t, block_size> codes{};
    for (std::size_t i = 0; i < block_size; ++i) {
      const int raw = static_cast<int>(scaled[i] + 16.5f);
      codes[i] = static_cast<std::uint8_t>(raw > 31 ? 31 : raw);
    }
    return pack(detail::float_to_half(d), codes);
  }

  /// Encodes 32 values with a low squared error, that of value i weighted by `importance[i]`: 32
  /// finite numbers, none negative. No importance, or only zeros, means that all values matter
  /// alike. Never a larger error than without a search.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto plain = encode(values);
    if (!plain.ok()) return plain;
    const detail::BlockWeights<block_size> weights(importance);
    const std::uint16_t d = detail::best_half_scale(values, weights.span(), levels);
    if ((d & 0x7C00u) == 0x7C00u) return plain;
    const auto codes = levels.nearest(values, detail::half_to_float(d));
    return detail::better_of<Q5_0>(values, weights.span(), plain, pack(d, codes));
  }

private:
  static constexpr auto levels = detail::even_levels<-16, 15>();

  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::uint16_t d, const std::array<std::uint8_t, block_size>& codes) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), d);
    std::uint32_t fifth = 0;
    for (std::size_t j = 0; j < 16; ++j) {
      const std::uint32_t low = codes[j];
      const std::uint32_t high = codes[16 + j];
      block[6 + j] = static_cast<std::byte>((low & 15u) | ((high & 15u) << 4));
      fifth |= (low >> 4) << j;
      fifth |= (high >> 4) << (16 + j);
    }
    detail::store_le(block.data() + 2, fifth);
    return block;
  }
};

} // namespace quern
