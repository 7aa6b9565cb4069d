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
#include <quern/detail/k_quant_symmetric.hpp>

namespace quern {

/// Q6_K: 256 values in sixteen groups of 16, as 6-bit codes around zero with a signed 8-bit scale
/// per group, 6.5625 bits per weight.
///
///     byte   0..127  q   low nibbles of the codes, below
///     byte 128..191  h   bits 4..5 of the codes, below
///     byte 192..207  s   signed scale s[g] of group g
///     byte 208..209  d   binary16 scale of the scales
///
///     value = d * s[group] * (code - 32), code in 0..63
///
/// Values 128k + 32n + l (k in 0..1, n in 0..3, l in 0..31) have their low nibble in byte
/// 64k + 32(n & 1) + l of q, in its low half for n < 2, and bits 4..5 in bits 2n..2n+1 of byte
/// 32k + l of h.
///
/// Source: GGUF type 14.
struct Q6_K {
  static constexpr std::string_view name = "Q6_K";    ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 256;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 210; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 14;      ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 256 values of one block. A block of zero bytes decodes to 256 times -0.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data() + 208);
    for (std::size_t part = 0; part < 8; ++part) {
      const Place place = place_of(part);
      for (std::size_t i = 0; i < 32; ++i) {
        const int low = detail::load_u8(block.data() + place.low_byte + i) >> place.low_shift;
        const int high = detail::load_u8(block.data() + place.high_byte + i) >> place.high_shift;
        const int code = (low & 15) | ((high & 3) << 4);
        const int scale = detail::load_i8(block.data() + 192 + 2 * part + i / 16);
        values[32 * part + i] = d * static_cast<float>(scale) * static_cast<float>(code - 32);
      }
    }
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<208>(block.data());
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
    std::array<std::byte, bytes_per_block> block{};
    // Below half of the least binary16 number, zeros are nearest.
    if (detail::magnitude(peak.value) <= 0x1p-25f) return block;
    const auto found = detail::search_symmetric<detail::SymmetricShape<16, 16, -32, -128>>(
        values, importance, detail::magnitude(peak.value));
    if (!found) return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, peak.lane);
    for (std::size_t part = 0; part < 8; ++part) {
      const Place place = place_of(part);
      for (std::size_t i = 0; i < 32; ++i) {
        const unsigned code = static_cast<unsigned>(found->codes[32 * part + i] + 32);
        block[place.low_byte + i] |= static_cast<std::byte>((code & 15u) << place.low_shift);
        block[place.high_byte + i] |= static_cast<std::byte>((code >> 4) << place.high_shift);
      }
    }
    for (std::size_t g = 0; g < 16; ++g)
      block[192 + g] = static_cast<std::byte>(found->scales[g]);
    detail::store_half(block.data() + 208, found->scale);
    return block;
  }

private:
  /// Where 32 consecutive values, the part with that number, lie.
  struct Place {
    std::size_t low_byte;
    unsigned low_shift;
    std::size_t high_byte;
    unsigned high_shift;
  };
  static constexpr Place place_of(std::size_t part) noexcept {
    const std::size_t k = part / 4;
    const std::size_t n = part % 4;
    return {64 * k + 32 * (n & 1), n < 2 ? 0u : 4u, 128 + 32 * k, static_cast<unsigned>(2 * n)};
  }
};

} // namespace quern
