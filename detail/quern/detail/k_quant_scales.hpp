// floor: 0.3
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <quern/detail/bytes.hpp>

/// @file
/// The twelve bytes in which Q4_K and Q5_K keep a 6-bit scale and a 6-bit offset for each of their
/// eight groups.
///
///     byte 0..3   byte j: bits 0..5 = scale j,      bits 6..7 = bits 4..5 of scale 4 + j
///     byte 4..7   byte j: bits 0..5 = offset j,     bits 6..7 = bits 4..5 of offset 4 + j
///     byte 8..11  byte j: low nibble = bits 0..3 of scale 4 + j, high nibble = of offset 4 + j

namespace quern::detail {

struct SixBitScales {
  static constexpr std::size_t groups = 8;
  static constexpr std::size_t bytes = 12;

  std::array<std::uint8_t, groups> scales{};
  std::array<std::uint8_t, groups> offsets{};

  [[nodiscard]] static constexpr SixBitScales load(const std::byte* at) noexcept {
    SixBitScales fields;
    for (std::size_t j = 0; j < 4; ++j) {
      const unsigned first = load_u8(at + j);
      const unsigned second = load_u8(at + 4 + j);
      const unsigned third = load_u8(at + 8 + j);
      fields.scales[j] = static_cast<std::uint8_t>(first & 63u);
      fields.offsets[j] = static_cast<std::uint8_t>(second & 63u);
      fields.scales[4 + j] = static_cast<std::uint8_t>((third & 15u) | ((first >> 6) << 4));
      fields.offsets[4 + j] = static_cast<std::uint8_t>((third >> 4) | ((second >> 6) << 4));
    }
    return fields;
  }

  constexpr void store(std::byte* at) const noexcept {
    for (std::size_t j = 0; j < 4; ++j) {
      const unsigned scale = scales[4 + j];
      const unsigned offset = offsets[4 + j];
      at[j] = static_cast<std::byte>(scales[j] | ((scale >> 4) << 6));
      at[4 + j] = static_cast<std::byte>(offsets[j] | ((offset >> 4) << 6));
      at[8 + j] = static_cast<std::byte>((scale & 15u) | ((offset & 15u) << 4));
    }
  }
};

} // namespace quern::detail
