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

/// TQ2_0: 256 ternary values as 2-bit codes with one scale, 2.0625 bits per weight.
///
///     byte  0..31  a    byte m, bits 2n and 2n+1: value 32n + m, n in 0..3
///     byte 32..63  b    byte m, bits 2n and 2n+1: value 128 + 32n + m
///     byte 64..65  d    binary16 scale
///
///     value = d * (code - 1), code in 0..3 (the encoder writes 0..2)
///
/// Source: GGUF type 35.
struct TQ2_0 {
  static constexpr std::string_view name = "TQ2_0";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 66; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 35;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data() + 64);
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t n = 0; n < 4; ++n)
        for (std::size_t m = 0; m < 32; ++m) {
          const int codes = detail::load_u8(block.data() + 32 * half + m);
          const int code = (codes >> (2 * n)) & 3;
          values[128 * half + 32 * n + m] = d * static_cast<float>(code - 1);
        }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<64>(block.data());
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
    std::array<std::uint8_t, block_size> codes{};
    for (std::size_t i = 0; i < block_size; ++i)
      codes[i] = static_cast<std::uint8_t>(detail::round_half_away(scaled[i]) + 1);
    return pack(detail::float_to_half(d), codes);
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
    const auto codes = levels.nearest(values, detail::half_to_float(d));
    return detail::better_of<TQ2_0>(values, weights.span(), plain, pack(d, codes));
  }

private:
  static constexpr auto levels = detail::even_levels<-1, 1>();

  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::uint16_t d, const std::array<std::uint8_t, block_size>& codes) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t m = 0; m < 32; ++m) {
        int four = 0;
        for (std::size_t n = 0; n < 4; ++n)
          four |= codes[128 * half + 32 * n + m] << (2 * n);
        block[32 * half + m] = static_cast<std::byte>(four);
      }
    detail::store_le(block.data() + 64, d);
    return block;
  }
};

} // namespace quern
