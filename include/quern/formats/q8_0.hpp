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

/// Q8_0: 32 values as signed bytes with one scale, 8.5 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..33  q    byte i = value i, signed
///
///     value = d * code, code in -128..127 (the encoder writes -127..127)
///
/// Source: GGUF type 8.
struct Q8_0 {
  static constexpr std::string_view name = "Q8_0";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 32;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 34; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 8;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t i = 0; i < block_size; ++i)
      values[i] = d * static_cast<float>(detail::load_i8(block.data() + 2 + i));
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 32 values: the largest magnitude is code 127 or -127, the others go to the nearest
  /// code, halves away from zero.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const float d = detail::magnitude(peak.value) / 127.0f;
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    const auto scaled = detail::rounded_products(values, 0.0f, detail::inverse_or_zero(d));
    std::array<std::byte, bytes_per_block> block{};
    detail::store_half(block.data(), d);
    for (std::size_t i = 0; i < block_size; ++i)
      block[2 + i] = static_cast<std::byte>(detail::round_half_away(scaled[i]));
    return block;
  }
};

} // namespace quern
