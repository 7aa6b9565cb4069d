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
#include <quern/detail/iq2_xxs_grid.hpp>
#include <quern/detail/iq_grid.hpp>
#include <quern/detail/iq_octets.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// IQ2_XXS: 256 values in groups of eight, each an entry of a code book of magnitudes and seven
/// sign bits, eight sub-blocks with 4-bit scales, 2.0625 bits per weight.
///
///     byte  0..1    d    binary16 scale
///     byte  2..65   q    eight sub-blocks of 8 bytes: four bytes g0..g3, entries of the code book,
///                        then a 32-bit number: bits 7 * k to 7 * k + 6 = signs of group k,
///                        bits 28..31 = scale
///
///     value = d * (2 * scale + 1) / 8 * entry[j], negated where sign bit j is set
///
/// The sign bit of the eighth value is not stored: it makes the number of negations even.
///
/// Source: GGUF type 16.
struct IQ2_XXS {
  static constexpr std::string_view name = "IQ2_XXS"; ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 66;  ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 16;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t s = 0; s < 8; ++s) {
      const std::byte* const sub = block.data() + 2 + 8 * s;
      const auto rest = detail::load_le<std::uint32_t>(sub + 4);
      const float full = d * (0.125f * static_cast<float>(2 * (rest >> 28) + 1));
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t entry = detail::load_u8(sub + k);
        const std::uint32_t signs = detail::even_signs((rest >> (7 * k)) & 127u);
        for (std::size_t j = 0; j < 8; ++j)
          values[32 * s + 8 * k + j] =
              full * detail::with_sign(detail::iq2_xxs_grid.value(entry, j), signs, j);
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
    const auto found = detail::search_octets<8, detail::OctetSigns::even>(
        detail::iq2_xxs_book, values, weights.span(), 0.125);
    if (found.scales.d == 0x7C00)
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    if (found.scales.d == 0) return block;
    detail::store_le(block.data(), found.scales.d);
    for (std::size_t s = 0; s < 8; ++s) {
      std::byte* const sub = block.data() + 2 + 8 * s;
      std::uint32_t rest = static_cast<std::uint32_t>(found.scales.scales[s]) << 28;
      for (std::size_t k = 0; k < 4; ++k) {
        sub[k] = static_cast<std::byte>(found.entries[4 * s + k][0]);
        rest |= (found.signs[4 * s + k] & 127u) << (7 * k);
      }
      detail::store_le(sub + 4, rest);
    }
    return block;
  }
};

} // namespace quern
