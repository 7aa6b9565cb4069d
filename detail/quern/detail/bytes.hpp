// floor: 0.2
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <quern/detail/half.hpp>

/// @file
/// Little-endian access to fields at any address. Bytes are read one by one, so alignment and
/// the byte order of the host do not matter, and the same code runs at compile time.

namespace quern::detail {

/// The byte at `at` as an unsigned number.
[[nodiscard]] constexpr std::uint8_t load_u8(const std::byte* at) noexcept {
  return std::to_integer<std::uint8_t>(*at);
}

/// The byte at `at` as a signed number.
[[nodiscard]] constexpr std::int8_t load_i8(const std::byte* at) noexcept {
  return std::bit_cast<std::int8_t>(load_u8(at));
}

/// A little-endian unsigned integer at any address.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T load_le(const std::byte* at) noexcept {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value =
        static_cast<T>(value | (static_cast<T>(std::to_integer<std::uint8_t>(at[i])) << (8 * i)));
  return value;
}

/// Writes `value` little-endian at any address.
template <std::unsigned_integral T>
constexpr void store_le(std::byte* at, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    at[i] = static_cast<std::byte>(static_cast<std::uint8_t>(value >> (8 * i)));
}

/// The binary16 number at any address, as float.
[[nodiscard]] constexpr float load_half(const std::byte* at) noexcept {
  return half_to_float(load_le<std::uint16_t>(at));
}

/// Writes `value` as binary16, rounded to nearest even.
constexpr void store_half(std::byte* at, float value) noexcept {
  store_le<std::uint16_t>(at, float_to_half(value));
}

} // namespace quern::detail
