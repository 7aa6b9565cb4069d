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

/// Q2_0: 64 values as 2-bit codes with one scale, 2.25 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..17  q    bits 2 * (j % 4) of byte j / 4: code of value j
///
///     value = d * (code - 1), code in 0..3
///
/// Source: GGUF type 42.
struct Q2_0 {
  static constexpr std::string_view name = "Q2_0";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 64;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 18; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 42;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 64 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t j = 0; j < block_size; ++j) {
      const int code = (detail::load_u8(block.data() + 2 + j / 4) >> (2 * (j % 4))) & 3;
      values[j] = static_cast<float>(code - 1) * d;
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 64 values as files in use are written. The scale is the largest magnitude, so that
  /// ternary weights are kept as they are and code 3 is never written.
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

  /// Encodes 64 values with a low squared error, that of value i weighted by `importance[i]`: 64
  /// finite numbers, none negative. No importance, or only zeros, means that all values matter
  /// alike. Uses all four codes. Never a larger error than without a search.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto plain = encode(values);
    if (!plain.ok()) return plain;
    const detail::BlockWeights<block_size> weights(importance);
    const std::uint16_t d = detail::best_small_scale<1, 2>(values, weights.span());
    if (d == 0x7C00) return plain;
    const auto codes = levels.nearest(values, detail::half_to_float(d));
    return detail::better_of<Q2_0>(values, weights.span(), plain, pack(d, codes));
  }

private:
  static constexpr auto levels = detail::even_levels<-1, 2>();

  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::uint16_t d, const std::array<std::uint8_t, block_size>& codes) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), d);
    for (std::size_t j = 0; j < block_size; ++j)
      block[2 + j / 4] |= static_cast<std::byte>(codes[j] << (2 * (j % 4)));
    return block;
  }
};

} // namespace quern
