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
#include <quern/detail/threshold_sweep.hpp>

namespace quern {

/// TQ1_0: 256 ternary values, five to a byte, with one scale, 1.6875 bits per weight.
///
///     byte  0..31  a    byte m: values m, 32 + m, 64 + m, 96 + m, 128 + m
///     byte 32..47  b    byte m: values 160 + m, 176 + m, 192 + m, 208 + m, 224 + m
///     byte 48..51  c    byte m: values 240 + m, 244 + m, 248 + m, 252 + m
///     byte 52..53  d    binary16 scale
///
///     value = d * (digit - 1), digit in 0..2
///
/// The digits of a byte are those of a base-3 fraction: the byte is the fraction times 256, rounded
/// up, and multiplying by 3 pushes the first digit out at the top. c has no fifth digit.
///
/// Source: GGUF type 34.
struct TQ1_0 {
  static constexpr std::string_view name = "TQ1_0";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 54; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 34;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data() + 52);
    for (const Part part : parts)
      for (std::size_t m = 0; m < part.bytes; ++m) {
        unsigned fraction = detail::load_u8(block.data() + part.first_byte + m);
        for (std::size_t n = 0; n < part.digits; ++n) {
          const unsigned shifted = fraction * 3;
          const int digit = static_cast<int>(shifted >> 8);
          values[part.first_value + n * part.bytes + m] = d * static_cast<float>(digit - 1);
          fraction = shifted & 0xFFu;
        }
      }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<52>(block.data());
  }

  /// Encodes 256 values as files in use are written: the scale is the largest magnitude, each value
  /// goes to the nearest of -d, 0 and d, halves away from zero.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const float d = detail::magnitude(peak.value);
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    const auto scaled = detail::rounded_products(values, 0.0f, detail::inverse_or_zero(d));
    std::array<std::uint8_t, block_size> digits{};
    for (std::size_t i = 0; i < block_size; ++i)
      digits[i] = static_cast<std::uint8_t>(detail::round_half_away(scaled[i]) + 1);
    return pack(detail::float_to_half(d), digits);
  }

  /// Encodes 256 values with a low squared error, that of value i weighted by `importance[i]`: 256
  /// finite numbers, none negative. No importance, or only zeros, means that all values matter
  /// alike. Never a larger error than without a search.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto plain = encode(values);
    if (!plain.ok()) return plain;
    const detail::BlockWeights<block_size> weights(importance);
    const std::uint16_t d = detail::best_small_scale<1, 1>(values, weights.span());
    if (d == 0x7C00) return plain;
    const auto digits = levels.nearest(values, detail::half_to_float(d));
    return detail::better_of<TQ1_0>(values, weights.span(), plain, pack(d, digits));
  }

private:
  static constexpr auto levels = detail::even_levels<-1, 1>();

  struct Part {
    std::size_t first_byte;
    std::size_t bytes;
    std::size_t digits;
    std::size_t first_value;
  };
  static constexpr std::array<Part, 3> parts{{{0, 32, 5, 0}, {32, 16, 5, 160}, {48, 4, 4, 240}}};

  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::uint16_t d, const std::array<std::uint8_t, block_size>& digits) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    for (const Part part : parts)
      for (std::size_t m = 0; m < part.bytes; ++m) {
        int number = 0;
        for (std::size_t n = 0; n < 5; ++n) {
          number *= 3;
          if (n < part.digits) number += digits[part.first_value + n * part.bytes + m];
        }
        block[part.first_byte + m] = static_cast<std::byte>((number * 256 + 242) / 243);
      }
    detail::store_le(block.data() + 52, d);
    return block;
  }
};

} // namespace quern
