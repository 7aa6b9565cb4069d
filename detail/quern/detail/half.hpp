// floor: 0.1
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include <quern/detail/config.hpp>

/// @file
/// Conversion between float and the two 16-bit formats found in GGUF files, in integer
/// arithmetic only, so that the result does not depend on rounding mode or instruction set.

namespace quern::detail {

static_assert(std::numeric_limits<float>::is_iec559, "quern: float must be IEEE binary32");

/// IEEE binary16 bits to float. Exact; a NaN keeps its sign and payload and becomes quiet.
[[nodiscard]] constexpr float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1Fu) {
    const std::uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    // A subnormal half is mantissa * 2^-24, which float holds exactly.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

/// Float to IEEE binary16 bits, round to nearest even. Values from 65520 on become infinity;
/// every NaN becomes 0x7E00 with its sign kept.
[[nodiscard]] constexpr std::uint16_t float_to_half(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude >= 0x38800000u) {
    const std::uint32_t rebased = magnitude - 0x38000000u;
    const std::uint32_t odd = (rebased >> 13) & 1u;
    return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFu + odd) >> 13));
  }
  if (magnitude <= 0x33000000u) return sign; // at most 2^-25: ties to even, which is zero
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const std::uint32_t shift = 126u - exponent;
  const std::uint32_t kept = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
  const std::uint32_t halfway = 1u << (shift - 1u);
  const std::uint32_t up = (rest > halfway || (rest == halfway && (kept & 1u) != 0)) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (kept + up));
}

/// bfloat16 bits to float. Exact.
[[nodiscard]] constexpr float bf16_to_float(std::uint16_t value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// Float to bfloat16 bits, round to nearest even; a NaN stays a (quiet) NaN of the same sign.
[[nodiscard]] constexpr std::uint16_t float_to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

} // namespace quern::detail
