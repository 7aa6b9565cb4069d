// floor: 0.1
#pragma once

#include <concepts>
#include <limits>
#include <optional>

#include <quern/detail/config.hpp>

/// @file
/// Unsigned arithmetic that tells when it would wrap.

namespace quern::detail {

/// `a * b`, or nothing when it does not fit.
template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  if (b != 0 && a > std::numeric_limits<T>::max() / b) return std::nullopt;
  return static_cast<T>(a * b);
}

/// `a + b`, or nothing when it does not fit.
template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) noexcept {
  if (a > std::numeric_limits<T>::max() - b) return std::nullopt;
  return static_cast<T>(a + b);
}

} // namespace quern::detail
