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
#include <quern/detail/iq1_grid.hpp>
#include <quern/detail/iq1_search.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ1_S: 256 values in groups of eight, each a ternary entry of a code book, eight sub-blocks with
/// a 3-bit scale and a shift each, 1.5625 bits per weight.
///
///     byte  0..1    d    binary16 scale
///     byte  2..33   q    byte i: lower eight bits of entry i, that of values 8 * i to 8 * i + 7
///     byte 34..49   h    eight numbers of 16 bits, one for each sub-block: bits 3 * k to 3 * k + 2
///     =
///                        upper bits of the entry of its group k, bits 12..14 = scale,
///                        bit 15 = shift down
///
///     value = d * (2 * scale + 1) * (entry[j] + shift), shift 1/8, or -1/8 for down
///
/// Source: GGUF type 19.
struct IQ1_S {
  static constexpr std::string_view name = "IQ1_S";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 50; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 19;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned rest = detail::load_le<std::uint16_t>(block.data() + 34 + 2 * (i / 4));
      const float full = d * static_cast<float>(2 * ((rest >> 12) & 7u) + 1);
      const float shift = (rest & 0x8000u) != 0 ? -0.125f : 0.125f;
      const unsigned upper = (rest >> (3 * (i % 4))) & 7u;
      const std::size_t entry = detail::load_u8(block.data() + 2 + i) | (upper << 8);
      for (std::size_t j = 0; j < 8; ++j)
        values[8 * i + j] = full * (static_cast<float>(detail::iq1_grid.value(entry, j)) + shift);
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
    const auto found = detail::Iq1Search<8, 4>(values, weights.span()).run();
    if (found.scales.d == 0x7C00)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.scales.d == 0) return block;
    detail::store_le(block.data(), found.scales.d);
    for (std::size_t s = 0; s < 8; ++s) {
      unsigned rest = static_cast<unsigned>(found.scales.scales[s]) << 12;
      if (found.down[4 * s]) rest |= 0x8000u;
      for (std::size_t k = 0; k < 4; ++k) {
        const unsigned entry = found.entries[4 * s + k];
        block[2 + 4 * s + k] = static_cast<std::byte>(entry & 255u);
        rest |= (entry >> 8) << (3 * k);
      }
      detail::store_le(block.data() + 34 + 2 * s, static_cast<std::uint16_t>(rest));
    }
    return block;
  }
};

} // namespace quern
