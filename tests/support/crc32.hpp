#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace support {

/// CRC-32 of zlib and PNG: polynomial 0xEDB88320, reflected, inverted before and after.
[[nodiscard]] constexpr std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
  }
  return crc ^ 0xFFFFFFFFu;
}

// The check value of that polynomial: the CRC of "123456789".
static_assert(crc32(std::array{std::byte{'1'}, std::byte{'2'}, std::byte{'3'}, std::byte{'4'},
                               std::byte{'5'}, std::byte{'6'}, std::byte{'7'}, std::byte{'8'},
                               std::byte{'9'}}) == 0xCBF43926u);

} // namespace support
