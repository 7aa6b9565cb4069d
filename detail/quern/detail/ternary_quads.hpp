// floor: 0.3
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <quern/detail/bytes.hpp>

/// @file
/// Sums of values with signs that lie four to a byte.

namespace quern::detail {

/// The four digits of a byte, lowest bits first, as floats.
struct TernaryQuads {
  alignas(16) std::array<std::array<float, 4>, 256> digits{};

  constexpr TernaryQuads() noexcept {
    for (std::size_t byte = 0; byte < 256; ++byte)
      for (std::size_t k = 0; k < 4; ++k)
        digits[byte][k] = static_cast<float>(static_cast<int>((byte >> (2 * k)) & 3u) - 1);
  }
};
inline constexpr TernaryQuads ternary_quads;

/// The sum of x[i] times the digit of value `first + i`. From the first whole byte on there are
/// eight partial sums, added at the end: one order of additions, and products that are exact.
[[nodiscard]] inline float ternary_dot(const std::byte* codes, std::size_t first,
                                       std::span<const float> x) noexcept {
  const auto digit = [&](std::size_t i) {
    return ternary_quads.digits[load_u8(codes + (first + i) / 4)][(first + i) % 4];
  };
  float rest = 0.0f;
  std::size_t i = 0;
  for (; i < x.size() && (first + i) % 4 != 0; ++i)
    rest += x[i] * digit(i);
  std::array<float, 4> even{};
  std::array<float, 4> odd{};
  const std::byte* at = codes + (first + i) / 4;
  for (; x.size() - i >= 8; i += 8, at += 2) {
    const auto& low = ternary_quads.digits[load_u8(at)];
    const auto& high = ternary_quads.digits[load_u8(at + 1)];
    for (std::size_t k = 0; k < 4; ++k) {
      even[k] += x[i + k] * low[k];
      odd[k] += x[i + 4 + k] * high[k];
    }
  }
  for (; i < x.size(); ++i)
    rest += x[i] * digit(i);
  for (std::size_t k = 0; k < 4; ++k)
    even[k] += odd[k];
  return (even[0] + even[2]) + (even[1] + even[3]) + rest;
}

} // namespace quern::detail
