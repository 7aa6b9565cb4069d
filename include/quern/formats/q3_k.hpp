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
#include <quern/detail/iq_super_scale.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// Q3_K: 256 values as 3-bit codes around zero, 16 sub-blocks with 6-bit scales, 3.4375 bits per
/// weight.
///
///     byte   0..31   m    bit i / 32 of byte i % 32: highest bit of code i
///     byte  32..95   q    bits 2 * k of byte 32 * h + j: lower bits of code 128 * h + 32 * k + j,
///                         k in 0..3, j in 0..31
///     byte  96..107  s    byte s % 8: lower four bits of scale s, low nibble for s < 8;
///                         bits 2 * (s / 4) of byte 8 + s % 4: upper two bits of scale s
///     byte 108..109  d    binary16 scale
///
///     value = d * (scale[i / 16] - 32) * (code - 4), code in 0..7, scale in 0..63
///
/// Bytes of zero are thus not a block of zeros, unless d is zero too.
///
/// Source: GGUF type 11.
struct Q3_K {
  static constexpr std::string_view name = "Q3_K";    ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 110; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 11;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data() + 108);
    for (std::size_t s = 0; s < 16; ++s) {
      const int lower = (detail::load_u8(block.data() + 96 + s % 8) >> (s < 8 ? 0 : 4)) & 15;
      const int upper = (detail::load_u8(block.data() + 104 + s % 4) >> (2 * (s / 4))) & 3;
      const float full = d * static_cast<float>((lower | (upper << 4)) - 32);
      for (std::size_t i = 16 * s; i < 16 * s + 16; ++i) {
        const std::size_t byte = 32 + 32 * (i / 128) + i % 32;
        const int low = (detail::load_u8(block.data() + byte) >> (2 * (i / 32 % 4))) & 3;
        const int high = (detail::load_u8(block.data() + i % 32) >> (i / 32)) & 1;
        values[i] = full * static_cast<float>((low | (high << 2)) - 4);
      }
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<108>(block.data());
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
        detail::SuperScaleSearch<16, 16, 8, -32, 31>(values, weights.span(), levels).run();
    if ((found.d & 0x7C00u) == 0x7C00u)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.d == 0) return block;
    detail::store_le(block.data() + 108, found.d);
    for (std::size_t s = 0; s < 16; ++s) {
      const auto scale = static_cast<unsigned>(found.scales[s] + 32);
      block[96 + s % 8] |= static_cast<std::byte>((scale & 15u) << (s < 8 ? 0 : 4));
      block[104 + s % 4] |= static_cast<std::byte>((scale >> 4) << (2 * (s / 4)));
      for (std::size_t j = 0; j < 16; ++j) {
        const std::size_t i = 16 * s + j;
        const unsigned code = found.codes[s][j];
        block[32 + 32 * (i / 128) + i % 32] |=
            static_cast<std::byte>((code & 3u) << (2 * (i / 32 % 4)));
        block[i % 32] |= static_cast<std::byte>((code >> 2) << (i / 32));
      }
    }
    return block;
  }

private:
  static constexpr detail::LevelBook<8> levels{{-4, -3, -2, -1, 0, 1, 2, 3}};
};

} // namespace quern
