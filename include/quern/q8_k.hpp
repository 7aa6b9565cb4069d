// floor: 2
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/detail/arithmetic.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/encode.hpp>

namespace quern {

/// Q8_K: 256 activations as signed bytes with one scale and the sums of 16 codes each.
///
///     byte   0..3    d    binary32 scale
///     byte   4..259  q    signed codes
///     byte 260..291  s    sixteen signed 16-bit numbers: s[g] = sum of codes 16 * g to 16 * g + 15
///
///     value = d * code
///
/// No weights are stored so: it is the other side of products with the formats of 256 values. There
/// is no PackedView of it. Products of quern take Int8Blocks<256> instead; this type is for bytes
/// that come from elsewhere or go there.
///
/// Source: GGUF type 15.
struct Q8_K {
  /// Says that this is no BlockFormat: it holds activations.
  using NoBlockGrid = void;
  static constexpr std::string_view name = "Q8_K"; ///< as in messages and GGUF type lists
  static constexpr std::size_t width = 256;        ///< values
  static constexpr std::size_t bytes = 292;      ///< bytes of a block: scale, codes and their sums
  static constexpr std::uint32_t gguf_type = 15; ///< id of the type in GGUF files

  /// The 256 values of one block.
  [[nodiscard]] static constexpr std::array<float, width>
  decode(std::span<const std::byte, bytes> block) noexcept {
    std::array<float, width> values{};
    const auto d = std::bit_cast<float>(detail::load_le<std::uint32_t>(block.data()));
    for (std::size_t i = 0; i < width; ++i)
      values[i] = d * static_cast<float>(detail::load_i8(block.data() + 4 + i));
    return values;
  }

  /// The stored sum of the codes of group g, in 0..15.
  [[nodiscard]] static constexpr int sum(std::span<const std::byte, bytes> block,
                                         std::size_t g) noexcept {
    return std::bit_cast<std::int16_t>(detail::load_le<std::uint16_t>(block.data() + 260 + 2 * g));
  }

  /// Encodes 256 values. The scale makes the first value of largest magnitude code -127, so its
  /// sign decides the sign of the scale; codes are the nearest, halves to even. A block without a
  /// magnitude of 2^-120 or more counts as zeros, since the inverse of its scale could be infinite.
  /// Fails for values that are not finite.
  static constexpr Encoded<bytes> encode(std::span<const float, width> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none) return Encoded<bytes>::failure(peak.fault, peak.lane);
    std::array<std::byte, bytes> block{};
    if (detail::magnitude(peak.value) < 0x1p-120f) return block;
    const float inverse = -127.0f / peak.value;
    const auto scaled = detail::rounded_products(values, 0.0f, inverse);
    for (std::size_t g = 0; g < width / 16; ++g) {
      int total = 0;
      for (std::size_t i = 16 * g; i < 16 * g + 16; ++i) {
        const std::int32_t nearest = detail::round_half_even(scaled[i]);
        const std::int32_t code = nearest > 127 ? 127 : nearest;
        total += code;
        block[4 + i] = static_cast<std::byte>(code);
      }
      detail::store_le(block.data() + 260 + 2 * g,
                       static_cast<std::uint16_t>(static_cast<std::uint32_t>(total)));
    }
    detail::store_le(block.data(), std::bit_cast<std::uint32_t>(1.0f / inverse));
    return block;
  }
};

} // namespace quern
