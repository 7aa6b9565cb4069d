// floor: 2
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/check_scale.hpp>
#include <quern/detail/encode.hpp>
#include <quern/detail/iq4_levels.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ4_NL: 32 values as 4-bit codes for unevenly spaced levels, one scale, 4.5 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..17  q    byte j: low nibble = value j, high nibble = value 16 + j
///
///     value = d * level[code], levels -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
///
/// Source: GGUF type 20.
struct IQ4_NL {
  static constexpr std::string_view name = "IQ4_NL"; ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 32;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 18; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 20;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t j = 0; j < 16; ++j) {
      const std::size_t codes = detail::load_u8(block.data() + 2 + j);
      values[j] = d * static_cast<float>(detail::iq4_levels.levels[codes & 15]);
      values[16 + j] = d * static_cast<float>(detail::iq4_levels.levels[codes >> 4]);
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 32 values with a low squared error.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    return encode(values, {});
  }

  /// The same with the squared error of value i weighted by `importance[i]`: 32 finite numbers,
  /// none negative. No importance, or only zeros, means that all values matter alike.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const detail::BlockWeights<block_size> weights(importance);
    const std::uint16_t bits = detail::best_half_scale(values, weights.span(), detail::iq4_levels);
    if ((bits & 0x7C00u) == 0x7C00u)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    const float d = detail::half_to_float(bits);
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), bits);
    const auto codes = detail::iq4_levels.nearest(values, d);
    for (std::size_t j = 0; j < 16; ++j)
      block[2 + j] = static_cast<std::byte>(codes[j] | (codes[16 + j] << 4));
    return block;
  }
};

} // namespace quern
