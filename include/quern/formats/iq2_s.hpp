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
#include <quern/detail/iq2_s_grid.hpp>
#include <quern/detail/iq_grid.hpp>
#include <quern/detail/iq_octets.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ2_S: 256 values in groups of eight, each an entry of a code book of magnitudes and eight sign
/// bits, 16 sub-blocks with 4-bit scales, 2.5625 bits per weight.
///
///     byte  0..1    d    binary16 scale
///     byte  2..33   q    byte i: lower eight bits of entry i, that of values 8 * i to 8 * i + 7
///     byte 34..65   n    byte i: signs of group i
///     byte 66..73   h    bits 2 * (i % 4) of byte i / 4: upper two bits of entry i
///     byte 74..81   s    byte s / 2: scale s, low nibble for even s
///
///     value = d * (2 * scale + 1) / 8 * entry[j], negated where sign bit j is set
///
/// Source: GGUF type 22.
struct IQ2_S {
  static constexpr std::string_view name = "IQ2_S";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 82; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 22;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned upper = detail::load_u8(block.data() + 66 + i / 4) >> (2 * (i % 4));
      const std::size_t entry = detail::load_u8(block.data() + 2 + i) | ((upper & 3u) << 8);
      const int scale = (detail::load_u8(block.data() + 74 + i / 4) >> (4 * (i / 2 % 2))) & 15;
      const float full = d * (0.125f * static_cast<float>(2 * scale + 1));
      const std::uint32_t signs = detail::load_u8(block.data() + 34 + i);
      for (std::size_t j = 0; j < 8; ++j)
        values[8 * i + j] = full * detail::with_sign(detail::iq2_s_grid.value(entry, j), signs, j);
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
    const auto found = detail::search_octets<16, detail::OctetSigns::all>(
        detail::iq2_s_book, values, weights.span(), 0.125);
    if (found.scales.d == 0x7C00)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.scales.d == 0) return block;
    detail::store_le(block.data(), found.scales.d);
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned entry = found.entries[i][0];
      block[2 + i] = static_cast<std::byte>(entry & 255u);
      block[34 + i] = static_cast<std::byte>(found.signs[i]);
      block[66 + i / 4] |= static_cast<std::byte>((entry >> 8) << (2 * (i % 4)));
    }
    for (std::size_t s = 0; s < 16; ++s)
      block[74 + s / 2] |= static_cast<std::byte>(found.scales.scales[s] << (4 * (s % 2)));
    return block;
  }
};

} // namespace quern
