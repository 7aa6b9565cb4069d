// floor: 2
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/check_scale.hpp>
#include <quern/detail/encode.hpp>

namespace quern {

/// F32: IEEE binary32, one value per block, little-endian. Source: GGUF type 0.
struct F32 {
  static constexpr std::string_view name = "F32";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 1;      ///< values in a block: each stands alone
  static constexpr std::size_t bytes_per_block = 4; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 0;     ///< id of the type in GGUF files
  /// Bits stored for one value: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The value of one block, bit for bit.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    return {std::bit_cast<float>(detail::load_le<std::uint32_t>(block.data()))};
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_magnitude(detail::load_le<std::uint32_t>(block.data()) & 0x7FFFFFFFu,
                                   0x7F800000u);
  }

  /// Encodes a finite value, bit for bit.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), std::bit_cast<std::uint32_t>(values[0]));
    return block;
  }
};

} // namespace quern
