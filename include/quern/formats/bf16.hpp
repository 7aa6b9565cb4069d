// floor: 2
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/arithmetic.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/check_scale.hpp>
#include <quern/detail/encode.hpp>
#include <quern/detail/half.hpp>

namespace quern {

/// BF16: the upper half of an IEEE binary32, one value per block, little-endian.
/// Source: GGUF type 30.
struct BF16 {
  static constexpr std::string_view name = "BF16";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 1;      ///< values in a block: each stands alone
  static constexpr std::size_t bytes_per_block = 2; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 30;    ///< id of the type in GGUF files
  /// Bits stored for one value: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The value of one block, exactly.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    return {detail::bf16_to_float(detail::load_le<std::uint16_t>(block.data()))};
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_magnitude(detail::load_le<std::uint16_t>(block.data()) & 0x7FFFu, 0x7F80u);
  }

  /// Encodes a finite value, rounded to nearest even. Fails for the few values above the largest
  /// BF16, 0x1.FEp127, that would round to infinity.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(peak.fault, peak.lane);
    const std::uint16_t bits = detail::float_to_bf16(values[0]);
    if (!detail::is_finite(detail::bf16_to_float(bits)))
      return Encoded<bytes_per_block>::failure(EncodeFault::scale_overflow, 0);
    std::array<std::byte, bytes_per_block> block{};
    detail::store_le(block.data(), bits);
    return block;
  }
};

} // namespace quern
