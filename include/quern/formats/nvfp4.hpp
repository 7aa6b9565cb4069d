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
#include <quern/detail/encode.hpp>
#include <quern/detail/fp4.hpp>
#include <quern/detail/fp4_search.hpp>
#include <quern/detail/iq_sweep.hpp>

namespace quern {

/// NVFP4: 64 values as 4-bit floats, a scale for each 16 of them, 4.5 bits per weight.
///
///     byte  0..3   s    UE4M3 scale of values 16 * g to 16 * g + 15
///     byte  4..35  q    byte 8 * g + j: low nibble = value 16 * g + j,
///                       high nibble = value 16 * g + 8 + j, j in 0..7
///
///     value = s[g] * E2M1[code], E2M1 = 0 0.5 1 1.5 2 3 4 6 and their negatives
///
/// Scale bit 7 is ignored; scale 0x7F counts as zero.
///
/// Source: GGUF type 40.
struct NVFP4 {
  static constexpr std::string_view name = "NVFP4";  ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 64;      ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 36; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 40;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 64 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    for (std::size_t g = 0; g < 4; ++g) {
      const float d = detail::ue4m3_half(detail::load_u8(block.data() + g));
      for (std::size_t j = 0; j < 8; ++j) {
        const std::size_t codes = detail::load_u8(block.data() + 4 + 8 * g + j);
        values[16 * g + j] = static_cast<float>(detail::fp4_doubled[codes & 15]) * d;
        values[16 * g + 8 + j] = static_cast<float>(detail::fp4_doubled[codes >> 4]) * d;
      }
    }
    return values;
  }

  /// Nothing makes a block invalid: a scale of 0x7F, NaN in E4M3, is zero here and in files in use.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> /*block*/) noexcept {
    return BlockFault::none;
  }

  /// Encodes 64 values as files in use are written. A scale is a sixth of the largest magnitude, 6
  /// being the largest code. Scales saturate: magnitudes beyond 2688 become 2688, since the format
  /// is meant to be used under a scale of the whole tensor.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    const auto fault = detail::find_peak(values);
    if (fault.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(fault.fault, fault.lane);
    std::array<std::byte, bytes_per_block> block{};
    for (std::size_t g = 0; g < 4; ++g)
      pack(block, values, g, plain_scale(values.subspan(16 * g, 16)));
    return block;
  }

  /// Encodes 64 values with a low squared error, that of value i weighted by `importance[i]`: 64
  /// finite numbers, none negative. No importance, or only zeros, means that all values matter
  /// alike. Never a larger error than without a search.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto fault = detail::find_peak(values);
    if (fault.fault != EncodeFault::none)
      return Encoded<bytes_per_block>::failure(fault.fault, fault.lane);
    const detail::BlockWeights<block_size> weights(importance);
    std::array<std::byte, bytes_per_block> block{};
    for (std::size_t g = 0; g < 4; ++g) {
      const std::span<const float> group = values.subspan(16 * g, 16);
      const std::span<const float> all = weights.span();
      const int scale = detail::best_fp4_scale(
          group, all.empty() ? all : all.subspan(16 * g, 16), plain_scale(group), 10, 6, 0x7E,
          [](std::uint8_t bits) { return detail::ue4m3_half(bits); });
      pack(block, values, g, static_cast<std::uint8_t>(scale));
    }
    return block;
  }

private:
  static constexpr std::uint8_t plain_scale(std::span<const float> group) noexcept {
    float largest = 0.0f;
    for (const float value : group)
      largest = detail::magnitude(value) > largest ? detail::magnitude(value) : largest;
    return detail::to_ue4m3(largest / 6.0f);
  }

  /// Every value of group g at the code nearest to it under a scale.
  static constexpr void pack(std::array<std::byte, bytes_per_block>& block,
                             std::span<const float, block_size> values, std::size_t g,
                             std::uint8_t scale) noexcept {
    const float d = detail::ue4m3_half(scale);
    block[g] = static_cast<std::byte>(scale);
    for (std::size_t j = 0; j < 8; ++j) {
      const int low = detail::fp4_code(values[16 * g + j], d);
      const int high = detail::fp4_code(values[16 * g + 8 + j], d);
      block[4 + 8 * g + j] = static_cast<std::byte>(low | (high << 4));
    }
  }
};

} // namespace quern
