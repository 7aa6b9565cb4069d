// floor: 1.2
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <quern/block_format.hpp>
#include <quern/detail/arithmetic.hpp>
#include <quern/detail/half.hpp>

/// @file
/// Steps that several encoders share.

namespace quern::detail {

/// The first value of largest magnitude of a block, or the first value that can't be encoded.
struct Peak {
  float value = 0.0f;
  std::size_t lane = 0;
  EncodeFault fault = EncodeFault::none;
};

template <std::size_t N>
[[nodiscard]] constexpr Peak find_peak(std::span<const float, N> values) noexcept {
  // The bits of magnitudes order like the magnitudes, and compilers vectorize an integer maximum.
  constexpr std::int32_t infinity = 0x7F800000;
  const auto bits_at = [&](std::size_t i) {
    return std::bit_cast<std::int32_t>(values[i]) & 0x7FFFFFFF;
  };
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    largest = bits_at(i) > largest ? bits_at(i) : largest;
  if (largest == 0) return {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (bits_at(i) > infinity) return {values[i], i, EncodeFault::not_a_number};
    if (bits_at(i) == infinity) return {values[i], i, EncodeFault::infinite};
    if (bits_at(i) == largest) return {values[i], i, EncodeFault::none};
  }
  return {};
}

/// The least and the greatest value of a block, or the first value that can't be encoded.
struct Range {
  float low = 0.0f;
  float high = 0.0f;
  std::size_t low_lane = 0;
  std::size_t high_lane = 0;
  Peak peak;
};

template <std::size_t N>
[[nodiscard]] constexpr Range find_range(std::span<const float, N> values) noexcept {
  Range range;
  range.peak = find_peak(values);
  if (range.peak.fault != EncodeFault::none) return range;
  range.low = range.high = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    range.low = values[i] < range.low ? values[i] : range.low;
    range.high = values[i] > range.high ? values[i] : range.high;
  }
  while (values[range.low_lane] != range.low)
    ++range.low_lane;
  while (values[range.high_lane] != range.high)
    ++range.high_lane;
  return range;
}

/// `(value - origin) * factor` of every value, each product rounded to float here and now, as
/// `rounded` does for one.
template <std::size_t N>
[[nodiscard]] constexpr std::array<float, N> rounded_products(std::span<const float, N> values,
                                                              float origin, float factor) noexcept {
  std::array<float, N> products{};
  for (std::size_t i = 0; i < N; ++i)
    products[i] = (values[i] - origin) * factor;
#if defined(__GNUC__) || defined(__clang__)
  if (!std::is_constant_evaluated()) asm("" : "+m"(products));
#else
  for (float& product : products)
    product = rounded(product);
#endif
  return products;
}

/// True when `value`, rounded to binary16, is finite.
[[nodiscard]] constexpr bool fits_half(float value) noexcept {
  return (float_to_half(value) & 0x7C00u) != 0x7C00u;
}

/// `1 / value`, or 0 for 0 and for values so small that the inverse is infinite.
[[nodiscard]] constexpr float inverse_or_zero(float value) noexcept {
  // Below 2^-128 the inverse overflows; at compile time that would not even be a constant.
  return magnitude(value) < 0x1.00001p-128f ? 0.0f : 1.0f / value;
}

} // namespace quern::detail
