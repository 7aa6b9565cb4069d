// floor: 1.2
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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
  Peak peak;
  float largest = 0.0f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_finite(values[i])) {
      const auto fault = is_nan(values[i]) ? EncodeFault::not_a_number : EncodeFault::infinite;
      return {values[i], i, fault};
    }
    if (magnitude(values[i]) > largest) {
      largest = magnitude(values[i]);
      peak.value = values[i];
      peak.lane = i;
    }
  }
  return peak;
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
