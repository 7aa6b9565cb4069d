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
#include <quern/detail/iq2_xs_grid.hpp>
#include <quern/detail/iq_grid.hpp>
#include <quern/detail/iq_octets.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ2_XS: 256 values in groups of eight, each an entry of a code book of magnitudes and seven sign
/// bits, 16 sub-blocks with 4-bit scales, 2.3125 bits per weight.
///
///     byte  0..1    d    binary16 scale
///     byte  2..65   q    32 numbers of 16 bits, one for each group:
///                        bits 0..8 = entry of the code book, bits 9..15 = signs
///     byte 66..73   s    byte s / 2: scale s, low nibble for even s
///
///     value = d * (2 * scale + 1) / 8 * entry[j], negated where sign bit j is set
///
/// The sign bit of the eighth value is not stored: it makes the number of negations even.
///
/// Source: GGUF type 17.
struct IQ2_XS {
  static constexpr std::string_view name = "IQ2_XS"; ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 74; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 17;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned code = detail::load_le<std::uint16_t>(block.data() + 2 + 2 * i);
      const int scale = (detail::load_u8(block.data() + 66 + i / 4) >> (4 * (i / 2 % 2))) & 15;
      const float full = d * (0.125f * static_cast<float>(2 * scale + 1));
      const std::uint32_t signs = detail::even_signs(code >> 9);
      for (std::size_t j = 0; j < 8; ++j)
        values[8 * i + j] =
            full * detail::with_sign(detail::iq2_xs_grid.value(code & 511u, j), signs, j);
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
    const auto found = detail::search_octets<16, detail::OctetSigns::even>(
        detail::iq2_xs_book, values, weights.span(), 0.125);
    if (found.scales.d == 0x7C00)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.scales.d == 0) return block;
    detail::store_le(block.data(), found.scales.d);
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned code = found.entries[i][0] | ((found.signs[i] & 127u) << 9);
      detail::store_le(block.data() + 2 + 2 * i, static_cast<std::uint16_t>(code));
    }
    for (std::size_t s = 0; s < 16; ++s)
      block[66 + s / 2] |= static_cast<std::byte>(found.scales.scales[s] << (4 * (s % 2)));
    return block;
  }
};

} // namespace quern
