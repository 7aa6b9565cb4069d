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
#include <quern/detail/encode.hpp>
#include <quern/detail/fp4.hpp>
#include <quern/detail/fp4_search.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// MXFP4: 32 values as 4-bit floats with a power of two as scale, 4.25 bits per weight.
///
///     byte  0      e    E8M0 scale, 2^(e - 127)
///     byte  1..16  q    byte j: low nibble = value j, high nibble = value 16 + j
///
///     value = 2^(e - 127) * E2M1[code], E2M1 = 0 0.5 1 1.5 2 3 4 6 and their negatives
///
/// Byte e = 255, reserved for NaN by the OCP, decodes as the power of two that it would be.
///
/// Source: GGUF type 39; OCP Microscaling Formats (MX) Specification 1.0.
struct MXFP4 {
  static constexpr std::string_view name = "MXFP4";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 32;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 17; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 39;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 32 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::e8m0_half(detail::load_u8(block.data()));
    for (std::size_t j = 0; j < 16; ++j) {
      const std::size_t codes = detail::load_u8(block.data() + 1 + j);
      values[j] = static_cast<float>(detail::fp4_doubled[codes & 15]) * d;
      values[16 + j] = static_cast<float>(detail::fp4_doubled[codes >> 4]) * d;
    }
    return values;
  }

  /// What makes a block invalid: exponent 255, which the OCP definition reserves for NaN; and a
  /// value of 2^128 or more, which exponents 253 and 254 allow and float can't hold.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    const int e = detail::load_u8(block.data());
    if (e == 255) return BlockFault::reserved_code;
    if (e < 253) return BlockFault::none;
    const int too_large = e == 254 ? 4 : 8; // doubled
    for (std::size_t j = 1; j < bytes_per_block; ++j) {
      const std::size_t codes = detail::load_u8(block.data() + j) & 0x77u; // without signs
      if (detail::fp4_doubled[codes & 15] >= too_large ||
          detail::fp4_doubled[codes >> 4] >= too_large)
        return BlockFault::infinite;
    }
    return BlockFault::none;
  }

  /// Encodes 32 values as files in use are written. The scale puts the largest magnitude into the
  /// top binade of E2M1, 4 to 8, of which 6 is the largest code: values beyond 6 scales become 6
  /// scales.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const float largest = detail::magnitude(peak.value);
    // Below 2^-125 no smaller scale exists.
    const int e = largest < 0x1p-125f ? 0 : detail::floor_rounded_log2(largest) - 2 + 127;
    return pack(values, e);
  }

  /// Encodes 32 values with a low squared error, that of value i weighted by `importance[i]`: 32
  /// finite numbers, none negative. No importance, or only zeros, means that all values matter
  /// alike. Never a larger error than without a search.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto plain = encode(values);
    if (!plain.ok()) return plain;
    const detail::BlockWeights<block_size> weights(importance);
    const int e = detail::load_u8(plain.bytes().data());
    return pack(values,
                detail::best_fp4_scale(values, weights.span(), e, 2, 1, 254,
                                       [](std::uint8_t bits) { return detail::e8m0_half(bits); }));
  }

private:
  /// Every value at the code nearest to it under scale e.
  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::span<const float, block_size> values, int e) noexcept {
    const float d = detail::e8m0_half(static_cast<std::uint8_t>(e));
    std::array<std::byte, bytes_per_block> block{};
    block[0] = static_cast<std::byte>(e);
    for (std::size_t j = 0; j < 16; ++j) {
      const int low = detail::fp4_code(values[j], d);
      const int high = detail::fp4_code(values[16 + j], d);
      block[1 + j] = static_cast<std::byte>(low | (high << 4));
    }
    return block;
  }
};

} // namespace quern
