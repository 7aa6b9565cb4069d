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
#include <quern/detail/k_quant_scales.hpp>

namespace quern {

/// Q4_K: 256 values in eight groups of 32, as 4-bit codes with a 6-bit scale and a 6-bit offset per
/// group, 4.5 bits per weight.
///
///     byte   0..1    d     binary16 scale of the scales, signed
///     byte   2..3    dmin  binary16 scale of the offsets, signed
///     byte   4..15   s     scales sc[0..7] and offsets m[0..7], 6 bits each (detail::SixBitScales)
///     byte  16..143  q     byte 32p + l: low nibble = value l of group 2p, high = of group 2p + 1
///
///     value = d * sc[group] * code - dmin * m[group], code in 0..15
///
/// Source: GGUF type 12.
struct Q4_K {
  static constexpr std::string_view name = "Q4_K";    ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 144; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 12;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block. The products are exact in float, so the difference is rounded
  /// once, contracted or not.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    const float dmin = detail::load_half(block.data() + 2);
    const auto fields = detail::SixBitScales::load(block.data() + 4);
    for (std::size_t g = 0; g < groups; ++g) {
      const float scale = d * static_cast<float>(fields.scales[g]);
      const float offset = dmin * static_cast<float>(fields.offsets[g]);
      const std::byte* codes = block.data() + 16 + 32 * (g / 2);
      for (std::size_t i = 0; i < 32; ++i) {
        const int code = (detail::load_u8(codes + i) >> (4 * (g % 2))) & 15;
        values[32 * g + i] = scale * static_cast<float>(code) - offset;
      }
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0, 2>(block.data());
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
    return search(values, importance, detail::thorough_search);
  }

  /// The same with a shorter search: several times as fast, with a little more error.
  static constexpr Encoded<bytes_per_block>
  encode_fast(std::span<const float, block_size> values,
              std::span<const float> importance) noexcept {
    return search(values, importance, detail::quick_search);
  }

private:
  static constexpr std::size_t groups = detail::SixBitScales::groups;

  static constexpr Encoded<bytes_per_block> search(std::span<const float, block_size> values,
                                                   std::span<const float> importance,
                                                   detail::AffineEffort effort) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const auto found = detail::search_affine<detail::AffineShape<groups, 32, 15, 63>>(
        values, importance, detail::magnitude(peak.value), effort);
    if (!found) return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    detail::store_half(block.data(), found->scale);
    detail::store_half(block.data() + 2, found->offset);
    detail::SixBitScales{found->scales, found->offsets}.store(block.data() + 4);
    for (std::size_t pair = 0; pair < groups / 2; ++pair)
      for (std::size_t i = 0; i < 32; ++i)
        block[16 + 32 * pair + i] = static_cast<std::byte>(found->codes[64 * pair + i] |
                                                           (found->codes[64 * pair + 32 + i] << 4));
    return block;
  }
};

} // namespace quern
