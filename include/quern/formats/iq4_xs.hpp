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
#include <quern/detail/iq_super_scale.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ4_XS: 256 values as 4-bit codes for unevenly spaced levels, eight sub-blocks with 6-bit
/// scales, 4.25 bits per weight.
///
///     byte  0..1     d    binary16 scale
///     byte  2..3     h    16-bit number: bits 2 * s and 2 * s + 1 = upper bits of scale s
///     byte  4..7     l    byte s / 2: lower four bits of scale s, low nibble for even s
///     byte  8..135   q    byte 16 * s + j: low nibble = value 32 * s + j,
///                         high nibble = value 32 * s + 16 + j, j in 0..15
///
///     value = d * (scale[s] - 32) * level[code], the levels of IQ4_NL
///
/// Source: GGUF type 23.
struct IQ4_XS {
  static constexpr std::string_view name = "IQ4_XS";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 136; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 23;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    const int upper = detail::load_le<std::uint16_t>(block.data() + 2);
    for (std::size_t s = 0; s < 8; ++s) {
      const int lower = (detail::load_u8(block.data() + 4 + s / 2) >> (4 * (s % 2))) & 15;
      const int scale = (lower | (((upper >> (2 * s)) & 3) << 4)) - 32;
      const float full = d * static_cast<float>(scale);
      for (std::size_t j = 0; j < 16; ++j) {
        const std::size_t codes = detail::load_u8(block.data() + 8 + 16 * s + j);
        values[32 * s + j] = full * static_cast<float>(detail::iq4_levels.levels[codes & 15]);
        values[32 * s + 16 + j] = full * static_cast<float>(detail::iq4_levels.levels[codes >> 4]);
      }
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 256 values with a low squared error.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    return encode(values, {});
  }

  /// The same with the squared error of value i weighted by `importance[i]`: 256 finite numbers,
  /// none negative. No importance, or only zeros, means that all values matter alike.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const detail::BlockWeights<block_size> weights(importance);
    const auto found =
        detail::SuperScaleSearch<8, 32, 16, -32, 31>(values, weights.span(), detail::iq4_levels)
            .run();
    if ((found.d & 0x7C00u) == 0x7C00u)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.d == 0) return block;
    detail::store_le(block.data(), found.d);
    unsigned upper = 0;
    for (std::size_t s = 0; s < 8; ++s) {
      const auto scale = static_cast<unsigned>(found.scales[s] + 32);
      upper |= (scale >> 4) << (2 * s);
      block[4 + s / 2] |= static_cast<std::byte>((scale & 15u) << (4 * (s % 2)));
      const auto& codes = found.codes[s];
      for (std::size_t j = 0; j < 16; ++j)
        block[8 + 16 * s + j] = static_cast<std::byte>(codes[j] | (codes[16 + j] << 4));
    }
    detail::store_le(block.data() + 2, static_cast<std::uint16_t>(upper));
    return block;
  }
};

} // namespace quern
