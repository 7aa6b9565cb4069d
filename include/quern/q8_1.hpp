// floor: 2
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/detail/arithmetic.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/encode.hpp>

namespace quern {

/// Q8_1: 32 activations as signed bytes with one scale and their sum.
///
///     byte  0..1   d    binary16 scale
///     byte  2..3   s    binary16 number, the scale times the sum of the codes
///     byte  4..35  q    signed codes
///
///     value = d * code
///
/// No weights are stored so: it is the other side of products with Q4_1 and Q5_1, whose minimum
/// meets the sum. There is no PackedView of it. Products of quern take Int8Blocks<32> instead,
/// whose scales and sums can't overflow; this type is for bytes that come from elsewhere or go
/// there.
///
/// Source: GGUF type 9.
struct Q8_1 {
  /// Says that this is no BlockFormat: it holds activations.
  using NoBlockGrid = void;
  static constexpr std::string_view name = "Q8_1"; ///< as in messages and GGUF type lists
  static constexpr std::size_t width = 32;         ///< values
  static constexpr std::size_t bytes = 36;         ///< bytes of a block: scale, sum and codes
  static constexpr std::uint32_t gguf_type = 9;    ///< id of the type in GGUF files

  /// The 32 values of one block.
  [[nodiscard]] static constexpr std::array<float, width>
  decode(std::span<const std::byte, bytes> block) noexcept {
    std::array<float, width> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t i = 0; i < width; ++i)
      values[i] = d * static_cast<float>(detail::load_i8(block.data() + 4 + i));
    return values;
  }

  /// The stored sum of the values, as rounded as it is.
  [[nodiscard]] static constexpr float sum(std::span<const std::byte, bytes> block) noexcept {
    return detail::load_half(block.data() + 2);
  }

  /// Encodes 32 values: the scale is the largest magnitude / 127, codes are the nearest, halves
  /// away from zero. Fails for values that are not finite, and with scale_overflow when the scale
  /// or the sum is beyond binary16: from a mean of about 2047 on, values of one sign are.
  static constexpr Encoded<bytes> encode(std::span<const float, width> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none) return Encoded<bytes>::failure(peak.fault, peak.lane);
    const float d = detail::magnitude(peak.value) / 127.0f;
    if (!detail::fits_half(d))
      return Encoded<bytes>::failure(EncodeFault::scale_overflow, peak.lane);
    const auto scaled = detail::rounded_products(values, 0.0f, detail::inverse_or_zero(d));
    std::array<std::byte, bytes> block{};
    int total = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const int code = detail::round_half_away(scaled[i]);
      total += code;
      block[4 + i] = static_cast<std::byte>(code);
    }
    const float sum = static_cast<float>(total) * d;
    if (!detail::fits_half(sum))
      return Encoded<bytes>::failure(EncodeFault::scale_overflow, peak.lane);
    detail::store_half(block.data(), d);
    detail::store_half(block.data() + 2, sum);
    return block;
  }
};

} // namespace quern
