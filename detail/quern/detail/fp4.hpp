// floor: 1
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <quern/detail/arithmetic.hpp>

/// @file
/// The 4-bit floats of MXFP4 and NVFP4 and the 8-bit floats that scale them. Values are doubled so
/// that they are integers, and scales are halved to match: both changes are exact.

namespace quern::detail {

/// Twice the value of each E2M1 code: sign bit, two exponent bits, one mantissa bit.
inline constexpr std::array<std::int8_t, 16> fp4_doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                            0, -1, -2, -3, -4, -6, -8, -12};

/// Half of the E8M0 scale: 2^(bits - 128). Every byte is a power of two here, 255 too, which the
/// OCP definition reserves for NaN; a validator is the place to refuse that one.
[[nodiscard]] constexpr float e8m0_half(std::uint8_t bits) noexcept {
  return std::bit_cast<float>(bits < 2 ? 0x00200000u << bits
                                       : static_cast<std::uint32_t>(bits - 1) << 23);
}

/// Half of the UE4M3 scale: E4M3 without a sign, so bit 7 is ignored. 0x7F, the NaN of E4M3, is 0.
[[nodiscard]] constexpr float ue4m3_half(std::uint8_t bits) noexcept {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  if (bits == 0x7F) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>((static_cast<std::uint32_t>(exponent + 119) << 23) |
                              (static_cast<std::uint32_t>(mantissa) << 20));
}

/// The UE4M3 code of `value`, which is not negative. Halves round up. All that would round to 256
/// or more becomes 0x7E, which is 448: files in use are written so, and their bytes must be
/// matched.
[[nodiscard]] constexpr std::uint8_t to_ue4m3(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto exponent = static_cast<int>(bits >> 23) - 120;
  if (exponent >= 15) return 0x7E;
  if (exponent <= 0) {
    const int steps = static_cast<int>(rounded(value * 512.0f) + 0.5f);
    return static_cast<std::uint8_t>(steps > 7 ? 7 : steps);
  }
  // A carry out of the mantissa goes into the exponent on its own.
  const auto mantissa = static_cast<int>((bits >> 20) & 7u) + static_cast<int>((bits >> 19) & 1u);
  const int code = exponent * 8 + mantissa;
  return static_cast<std::uint8_t>(code >= 15 * 8 ? 0x7E : code);
}

/// The code nearest to `value` under the halved scale `d`; ties go to the smaller magnitude, and
/// minus zero is never chosen.
[[nodiscard]] constexpr int fp4_code(float value, float d) noexcept {
  if (d == 0.0f) return 0;
  const float size = magnitude(value);
  int code = 0;
  for (const float middle : {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f})
    code += size > middle * d ? 1 : 0;
  return value < 0.0f && code != 0 ? code + 8 : code;
}

/// The floor of log2 of a positive normal number, the logarithm being rounded to float first. That
/// rounding is part of how MXFP4 scales are defined by the files in use: a number within half a
/// float step of log2 below 2^n counts as 2^n.
[[nodiscard]] constexpr int floor_rounded_log2(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const int floor = static_cast<int>(bits >> 23) - 127;
  const int above = floor + 1;
  // Binade of the logarithm just below `above`: half a step there is 2^(binade - 24), and the
  // distance to 2^above is that times ln 2, here in units of 2^(above - 24).
  const auto size = static_cast<std::uint32_t>(above > 0 ? above - 1 : -above);
  const int binade = static_cast<int>(std::bit_width(size)) - 1;
  if (binade < 0) return floor;
  constexpr std::uint32_t ln2 = 0xB17217u; // times 2^24
  const std::uint32_t close = ((ln2 >> 8) << binade) >> 16;
  return 0x800000u - (bits & 0x7FFFFFu) <= close ? above : floor;
}

} // namespace quern::detail
