// floor: 2
#pragma once

#include <array>
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

/// F16: IEEE binary16, one value per block, little-endian. Source: GGUF type 1.
struct F16 {
  static constexpr std::string_view name = "F16";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 1;      ///< values in a block: each stands alone
  static constexpr std::size_t bytes_per_block = 2; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 1;     ///< id of the type in GGUF files
  /// Bits stored for one value: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The value of one block, exactly.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    return {detail::load_half(block.data())};
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes a finite value, rounded to nearest even. Fails from 65520 on, which would be infinity.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    if (!detail::fits_half(values[0]))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, 0);
    std::array<std::byte, bytes_per_block> block{};
    detail::store_half(block.data(), values[0]);
    return block;
  }
};

} // namespace quern
