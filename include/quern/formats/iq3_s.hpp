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
#include <quern/detail/iq3_s_grid.hpp>
#include <quern/detail/iq_grid.hpp>
#include <quern/detail/iq_octets.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ3_S: 256 values in groups of four, each an entry of a code book of magnitudes and four sign
/// bits, eight sub-blocks with 4-bit scales, 3.4375 bits per weight.
///
///     byte   0..1    d    binary16 scale
///     byte   2..65   q    byte e: lower eight bits of entry e, that of values 4 * e to 4 * e + 3
///     byte  66..73   h    bit e % 8 of byte e / 8: upper bit of entry e
///     byte  74..105  n    bit i % 8 of byte i / 8: sign of value i
///     byte 106..109  s    byte s / 2: scale s, low nibble for even s
///
///     value = d * (2 * scale + 1) * entry[j], negated where its sign bit is set
///
/// Source: GGUF type 21.
struct IQ3_S {
  static constexpr std::string_view name = "IQ3_S";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 110; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 21;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t e = 0; e < 64; ++e) {
      const unsigned upper = (detail::load_u8(block.data() + 66 + e / 8) >> (e % 8)) & 1u;
      const std::size_t entry = detail::load_u8(block.data() + 2 + e) | (upper << 8);
      const int scale = (detail::load_u8(block.data() + 106 + e / 16) >> (4 * (e / 8 % 2))) & 15;
      const float full = d * static_cast<float>(2 * scale + 1);
      const std::uint32_t signs = detail::load_u8(block.data() + 74 + e / 2) >> (4 * (e % 2));
      for (std::size_t j = 0; j < 4; ++j)
        values[4 * e + j] = full * detail::with_sign(detail::iq3_s_grid.value(entry, j), signs, j);
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
    const auto found = detail::search_octets<8, detail::OctetSigns::all>(detail::iq3_s_book, values,
                                                                         weights.span(), 1.0);
    if (found.scales.d == 0x7C00)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.scales.d == 0) return block;
    detail::store_le(block.data(), found.scales.d);
    for (std::size_t i = 0; i < 32; ++i) {
      for (std::size_t p = 0; p < 2; ++p) {
        const std::size_t e = 2 * i + p;
        const unsigned entry = found.entries[i][p];
        block[2 + e] = static_cast<std::byte>(entry & 255u);
        block[66 + e / 8] |= static_cast<std::byte>((entry >> 8) << (e % 8));
      }
      block[74 + i] = static_cast<std::byte>(found.signs[i]);
    }
    for (std::size_t s = 0; s < 8; ++s)
      block[106 + s / 2] |= static_cast<std::byte>(found.scales.scales[s] << (4 * (s % 2)));
    return block;
  }
};

} // namespace quern
