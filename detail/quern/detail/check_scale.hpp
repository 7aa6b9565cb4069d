// floor: 1.1
#pragma once

#include <cstddef>
#include <cstdint>

#include <quern/block_fault.hpp>
#include <quern/detail/bytes.hpp>

/// @file
/// Whether the floats that a block stores are numbers. All exponent bits set stand for infinity
/// when the bits below are zero, else for NaN.

namespace quern::detail {

/// A number whose exponent has `exponent_bits` and whose magnitude is `bits`, without the sign.
[[nodiscard]] constexpr BlockFault check_magnitude(std::uint32_t bits,
                                                   std::uint32_t exponent_bits) noexcept {
  if (bits < exponent_bits) return BlockFault::none;
  return bits == exponent_bits ? BlockFault::infinite : BlockFault::not_a_number;
}

/// A binary16 number.
[[nodiscard]] constexpr BlockFault check_half(std::uint32_t bits) noexcept {
  return check_magnitude(bits & 0x7FFFu, 0x7C00u);
}

/// The binary16 numbers at bytes `At`... of a block: the first fault.
template <std::size_t... At>
[[nodiscard]] constexpr BlockFault check_halves(const std::byte* block) noexcept {
  BlockFault fault = BlockFault::none;
  (void)((... || ((fault = check_half(load_le<std::uint16_t>(block + At))) != BlockFault::none)));
  return fault;
}

} // namespace quern::detail
