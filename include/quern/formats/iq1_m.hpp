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
#include <quern/detail/half.hpp>
#include <quern/detail/iq1_grid.hpp>
#include <quern/detail/iq1_search.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ1_M: 256 values in groups of eight, each a ternary entry of a code book with a shift, 16
/// sub-blocks with 3-bit scales, 1.75 bits per weight.
///
///     byte  0..31   q    byte i: lower eight bits of entry i, that of values 8 * i to 8 * i + 7
///     byte 32..47   h    byte i / 2, low nibble for even i: bits 0..2 = upper bits of entry i,
///                        bit 3 = shift down
///     byte 48..55   s    four numbers of 16 bits: bits 3 * (s % 4) to 3 * (s % 4) + 2 of number
///                        s / 4 = scale s, bits 12..15 of number k = bits 4 * k to 4 * k + 3 of d,
///                        a binary16 scale
///
///     value = d * (2 * scale + 1) * (entry[j] + shift), shift 1/8, or -1/8 for down
///
/// Source: GGUF type 29.
struct IQ1_M {
  static constexpr std::string_view name = "IQ1_M";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 56; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 29;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::half_to_float(scale_bits(block));
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t s = i / 2;
      const unsigned scales = detail::load_le<std::uint16_t>(block.data() + 48 + 2 * (s / 4));
      const float full = d * static_cast<float>(2 * ((scales >> (3 * (s % 4))) & 7u) + 1);
      const unsigned rest = detail::load_u8(block.data() + 32 + i / 2) >> (4 * (i % 2));
      const float shift = (rest & 8u) != 0 ? -0.125f : 0.125f;
      const std::size_t entry = detail::load_u8(block.data() + i) | ((rest & 7u) << 8);
      for (std::size_t j = 0; j < 8; ++j)
        values[8 * i + j] = full * (static_cast<float>(detail::iq1_grid.value(entry, j)) + shift);
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_half(scale_bits(block));
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
    const auto found = detail::Iq1Search<16, 1>(values, weights.span()).run();
    if (found.scales.d == 0x7C00)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.scales.d == 0) return block;
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned entry = found.entries[i];
      block[i] = static_cast<std::byte>(entry & 255u);
      block[32 + i / 2] |=
          static_cast<std::byte>(((entry >> 8) | (found.down[i] ? 8u : 0u)) << (4 * (i % 2)));
    }
    for (std::size_t k = 0; k < 4; ++k) {
      unsigned number = ((found.scales.d >> (4 * k)) & 15u) << 12;
      for (std::size_t s = 0; s < 4; ++s)
        number |= static_cast<unsigned>(found.scales.scales[4 * k + s]) << (3 * s);
      detail::store_le(block.data() + 48 + 2 * k, static_cast<std::uint16_t>(number));
    }
    return block;
  }

private:
  /// d as binary16: four bits on top of each 16-bit number from byte 48 on.
  static constexpr std::uint16_t
  scale_bits(std::span<const std::byte, bytes_per_block> block) noexcept {
    unsigned bits = 0;
    for (std::size_t k = 0; k < 4; ++k)
      bits |= (static_cast<unsigned>(detail::load_u8(block.data() + 49 + 2 * k)) >> 4) << (4 * k);
    return static_cast<std::uint16_t>(bits);
  }
};

} // namespace quern
