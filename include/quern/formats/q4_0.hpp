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

/// Q4_0: 32 values as 4-bit codes around zero with one scale, 4.5 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..17  q    byte j: low nibble = value j, high nibble = value 16 + j
///
///     value = d * (code - 8), code in 0..15
///
/// Source: GGUF type 2.
struct Q4_0 {
  static constexpr std::string_view name = "Q4_0";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 32;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 18; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 2;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t j = 0; j < 16; ++j) {
      const int codes = detail::load_u8(block.data() + 2 + j);
      values[j] = d * static_cast<float>((codes & 15) - 8);
      values[16 + j] = d * static_cast<float>((codes >> 4) - 8);
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 32 values as files in use are written. The scale makes the first value of largest
  /// magnitude exactly code 0, which is -8 * d, so its sign decides the sign of the scale.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const float d = peak.value / -8.0f;
    if (!detail::fits_half(d))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    const auto scaled = detail::rounded_products(values, 0.0f, detail::inverse_or_zero(d));
    std::array<std::uint8_t, block_size> codes{};
    for (std::size_t i = 0; i < block_size; ++i) {
      const int raw = static_cast<int>(scaled[i] + 8.5f);
      codes[i] = static_cast<std::uint8_t>(raw > 15 ? 15 : raw);
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
    return detail::better_of<Q4_0>(values, weights.span(), plain, pack(d, codes));
  }

private:
  static constexpr auto levels = detail::even_levels<-8, 7>();

  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::uint16_t d, const std::array<std::uint8_t, block_size>& codes) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), d);
    for (std::size_t j = 0; j < 16; ++j)
      block[2 + j] = static_cast<std::byte>(codes[j] | (codes[16 + j] << 4));
    return block;
  }
};

} // namespace quern
