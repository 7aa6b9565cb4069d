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
  static constexpr std::string_view name = "TQ2_0";
  static constexpr std::size_t block_size = 256;
  static constexpr std::size_t bytes_per_block = 66;
  static constexpr std::uint32_t gguf_type = 35;
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

  /// Encodes 256 values: the scale is the largest magnitude, each value goes to the nearest of -d,
  /// 0 and d, halves away from zero.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const float d = detail::magnitude(peak.value);
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    const auto scaled = detail::rounded_products(values, 0.0f, detail::inverse_or_zero(d));
    std::array<std::byte, bytes_per_block> block{};
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t m = 0; m < 32; ++m) {
        int codes = 0;
        for (std::size_t n = 0; n < 4; ++n)
          codes |= (detail::round_half_away(scaled[128 * half + 32 * n + m]) + 1) << (2 * n);
        block[32 * half + m] = static_cast<std::byte>(codes);
      }
    detail::store_half(block.data() + 64, d);
    return block;
  }
};

} // namespace quern
