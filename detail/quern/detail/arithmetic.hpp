// floor: 0.1
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <quern/detail/config.hpp>

/// @file
/// Float helpers that work at compile time and give the same bits under every compiler flag that
/// quern accepts.

namespace quern::detail {

/// `value`, rounded to float here and now. Wrap a product in it before adding: a compiler that may
/// contract `a * b + c` into one fused operation would otherwise change quantizer bytes.
[[nodiscard]] constexpr float rounded(float value) noexcept {
  if (!std::is_constant_evaluated()) {
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
#if defined(__SSE__)
    asm("" : "+x"(value));
#else
    asm("" : "+m"(value));
#endif
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
    asm("" : "+w"(value));
#else
    volatile float kept = value;
    value = kept;
#endif
  }
  return value;
}

[[nodiscard]] constexpr float magnitude(float value) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu);
}

[[nodiscard]] constexpr bool is_nan(float value) noexcept {
  return (std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu) > 0x7F800000u;
}

[[nodiscard]] constexpr bool is_finite(float value) noexcept {
  return (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) != 0x7F800000u;
}

/// Nearest integer, halves away from zero. `|value|` must be below 2^31.
[[nodiscard]] constexpr std::int32_t round_half_away(float value) noexcept {
  const auto whole = static_cast<std::int32_t>(value);
  const float rest = value - static_cast<float>(whole); // exact: both have the same exponent range
  if (rest >= 0.5f) return whole + 1;
  if (rest <= -0.5f) return whole - 1;
  return whole;
}

/// Nearest integer, halves to even. `|value|` must be below 2^22.
[[nodiscard]] constexpr std::int32_t round_half_even(float value) noexcept {
  // Adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits.
  const float shifted = rounded(value + 12582912.0f);
  const auto bits = std::bit_cast<std::int32_t>(shifted);
  return (bits & 0x007FFFFF) - 0x00400000;
}

} // namespace quern::detail
