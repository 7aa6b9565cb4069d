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
#include <quern/detail/k_quant_affine.hpp>

namespace quern {

/// Q2_K: 256 values as 2-bit codes, 16 sub-blocks with a 4-bit scale and a 4-bit offset each, 2.625
/// bits per weight.
///
///     byte  0..15   s      byte g: low nibble = scale g, high nibble = offset g
///     byte 16..79   q      bits 2 * k of byte 32 * h + j: code of value 128 * h + 32 * k + j,
///                          k in 0..3, j in 0..31
///     byte 80..81   d      binary16 scale of the scales
///     byte 82..83   dmin   binary16 scale of the offsets
///
///     value = d * scale[i / 16] * code - dmin * offset[i / 16], code in 0..3
///
/// Source: GGUF type 10.
struct Q2_K {
  static constexpr std::string_view name = "Q2_K";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 84; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 10;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data() + 80);
    const float dmin = detail::load_half(block.data() + 82);
    for (std::size_t g = 0; g < 16; ++g) {
      const int fields = detail::load_u8(block.data() + g);
      const float scale = d * static_cast<float>(fields & 15);
      const float offset = dmin * static_cast<float>(fields >> 4);
      for (std::size_t i = 16 * g; i < 16 * g + 16; ++i) {
        const int codes = detail::load_u8(block.data() + 16 + 32 * (i / 128) + i % 32);
        values[i] = scale * static_cast<float>((codes >> (2 * (i / 32 % 4))) & 3) - offset;
      }
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<80, 82>(block.data());
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
    const auto found = detail::search_affine<detail::AffineShape<16, 16, 3, 15>>(
        values, importance, detail::magnitude(peak.value));
    if (!found) return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    for (std::size_t g = 0; g < 16; ++g)
      block[g] = static_cast<std::byte>(found->scales[g] | (found->offsets[g] << 4));
    for (std::size_t i = 0; i < block_size; ++i)
      block[16 + 32 * (i / 128) + i % 32] |=
          static_cast<std::byte>(found->codes[i] << (2 * (i / 32 % 4)));
    detail::store_half(block.data() + 80, found->scale);
    detail::store_half(block.data() + 82, found->offset);
    return block;
  }
};

} // namespace quern
