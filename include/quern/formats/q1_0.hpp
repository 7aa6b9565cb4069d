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
#include <quern/detail/iq_sweep.hpp>
#include <quern/detail/least_error.hpp>

namespace quern {

/// Q1_0: 128 signs with one scale, 1.125 bits per weight.
///
///     byte  0..1   d    binary16 scale
///     byte  2..17  q    bit j % 8 of byte j / 8: value j
///
///     value = bit ? d : -d
///
/// Source: GGUF type 41.
struct Q1_0 {
  static constexpr std::string_view name = "Q1_0";   ///< as in messages, kernel keys and traces
  static constexpr std::size_t block_size = 128;     ///< values in a block, all of one row
  static constexpr std::size_t bytes_per_block = 18; ///< of a block as GGUF files hold it
  static constexpr std::uint32_t gguf_type = 41;     ///< id of the type in GGUF files
  /// Bits stored for one value, scales included: 8 * bytes_per_block / block_size.
  static constexpr double bits_per_weight = detail::bits_per_weight(bytes_per_block, block_size);

  /// The 128 values of one block.
  [[nodiscard]] static constexpr std::array<float, block_size>
  decode(std::span<const std::byte, bytes_per_block> block) noexcept {
    std::array<float, block_size> values{};
    const float d = detail::load_half(block.data());
    for (std::size_t j = 0; j < block_size; ++j)
      values[j] = ((detail::load_u8(block.data() + 2 + j / 8) >> (j % 8)) & 1) != 0 ? d : -d;
    return values;
  }

  /// What makes a block invalid.
  [[nodiscard]] static constexpr BlockFault
  check(std::span<const std::byte, bytes_per_block> block) noexcept {
    return detail::check_halves<0>(block.data());
  }

  /// Encodes 128 values. The scale is the mean magnitude, which is what minimizes the squared
  /// error; a value of either zero counts as positive.
  static constexpr Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    using Result = Encoded<bytes_per_block>;
    const auto peak = detail::find_peak(values);
    if (peak.fault != EncodeFault::none) return Result::failure(peak.fault, peak.lane);
    // The mean is at least peak / 128. Judged first, so that the sum can't overflow.
    if (!detail::fits_half(peak.value / 128.0f))
      return Result::failure(EncodeFault::scale_overflow, peak.lane);
    float sum = 0.0f;
    for (const float value : values)
      sum += detail::magnitude(value);
    const float d = sum / 128.0f;
    if (!detail::fits_half(d)) return Result::failure(EncodeFault::scale_overflow, peak.lane);
    return pack(values, d);
  }

  /// The same with the squared error of value i weighted by `importance[i]`: 128 finite numbers,
  /// none negative. No importance, or only zeros, means that all values matter alike; the bytes are
  /// then those without importance, for no other scale has less error.
  static constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size> values,
                                                   std::span<const float> importance) noexcept {
    const auto plain = encode(values);
    if (!plain.ok()) return plain;
    const detail::BlockWeights<block_size> weights(importance);
    if (weights.span().empty()) return plain;
    double pull = 0.0;
    double weight = 0.0;
    for (std::size_t j = 0; j < block_size; ++j) {
      pull += detail::pull_at(detail::magnitude(values[j]), weights.span()[j]);
      weight += static_cast<double>(weights.span()[j]);
    }
    const auto d = static_cast<float>(pull / weight);
    if (!detail::fits_half(d)) return plain;
    return detail::better_of<Q1_0>(values, weights.span(), plain, pack(values, d));
  }

private:
  static constexpr std::array<std::byte, bytes_per_block>
  pack(std::span<const float, block_size> values, float d) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    detail::store_half(block.data(), d);
    for (std::size_t j = 0; j < block_size; ++j)
      if (values[j] >= 0.0f) block[2 + j / 8] |= std::byte{1} << (j % 8);
    return block;
  }
};

} // namespace quern
