#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/order.hpp>

#include "any_format.hpp"

/// @file
/// Weights to test with. Block places are spelled out here once more, apart from quern's own
/// functions, so that a fault there can't hide in the tests.

namespace support {

/// A small generator of numbers that are the same everywhere.
class Random {
public:
  explicit Random(std::uint32_t seed) : state_(seed * 2654435761u + 1u) {}
  [[nodiscard]] std::uint32_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_;
  }
  /// In [-1, 1), a multiple of 2^-15.
  [[nodiscard]] float value() {
    return static_cast<float>(static_cast<int>(bits() >> 16) - 32768) / 32768.0f;
  }

private:
  std::uint32_t state_;
};

[[nodiscard]] inline std::vector<float> random_values(std::size_t count, std::uint32_t seed = 1) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = random.value();
  return values;
}

/// `count` blocks of all kinds of bytes, apart from those that decode to a NaN or an infinity.
template <quern::BlockFormat F>
[[nodiscard]] std::vector<std::byte> finite_blocks(std::size_t count, std::uint32_t seed = 1) {
  Random random(seed);
  std::vector<std::byte> bytes(count * F::bytes_per_block);
  for (std::size_t block = 0; block < count; ++block) {
    const std::span<std::byte, F::bytes_per_block> here{bytes.data() + block * F::bytes_per_block,
                                                        F::bytes_per_block};
    const auto finite = [&] {
      const auto values = decode_blocks(F::gguf_type, here);
      return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    };
    do
      for (std::byte& byte : here)
        byte = static_cast<std::byte>(random.bits() >> 24);
    while (!finite());
  }
  return bytes;
}

/// `count` blocks in which F::encode packed values of about [-1, 1).
template <quern::BlockFormat F>
[[nodiscard]] std::vector<std::byte> encoded_blocks(std::size_t count, std::uint32_t seed = 1) {
  return encode_blocks(F::gguf_type, random_values(count * F::block_size, seed));
}

/// Flat place of block (o, b) of an `out x blocks_per_row` grid.
template <quern::BlockOrder O>
[[nodiscard]] constexpr std::size_t place(std::size_t o, std::size_t b, std::size_t out,
                                          std::size_t blocks_per_row) noexcept {
  return std::is_same_v<O, quern::RowMajor> ? o * blocks_per_row + b : b * out + o;
}

/// The same blocks, given row after row, in order O.
template <quern::BlockFormat F, quern::BlockOrder O>
[[nodiscard]] std::vector<std::byte> laid_out(std::span<const std::byte> row_major, std::size_t out,
                                              std::size_t blocks_per_row) {
  std::vector<std::byte> bytes(row_major.size());
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t b = 0; b < blocks_per_row; ++b)
      std::memcpy(bytes.data() + place<O>(o, b, out, blocks_per_row) * F::bytes_per_block,
                  row_major.data() + (o * blocks_per_row + b) * F::bytes_per_block,
                  F::bytes_per_block);
  return bytes;
}

/// The matrix that blocks mean which are given row after row.
template <quern::BlockFormat F>
[[nodiscard]] std::vector<float> decoded(std::span<const std::byte> row_major) {
  return decode_blocks(F::gguf_type, row_major);
}

/// x * W^T by plain loops in double: x is `[m, in]`, the matrix `[out, in]`, the result `[m, out]`.
[[nodiscard]] inline std::vector<double> product(std::span<const float> x,
                                                 std::span<const float> matrix, std::size_t m,
                                                 std::size_t out, std::size_t in) {
  std::vector<double> y(m * out, 0.0);
  for (std::size_t r = 0; r < m; ++r)
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i)
        y[r * out + o] +=
            static_cast<double>(x[r * in + i]) * static_cast<double>(matrix[o * in + i]);
  return y;
}

/// The bits of floats, for comparisons in which -0 differs from 0 and a NaN equals itself.
[[nodiscard]] inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

/// A Q4_0 weight to reckon with by hand, row after row: every weight in block (o, b) is exactly
/// `1 + blocks_per_row * o + b`. The scale is that number as binary16, all codes are 9, which
/// means 1.
[[nodiscard]] inline std::vector<std::byte> counting_weight(std::size_t out,
                                                            std::size_t blocks_per_row) {
  // 1 to 27 as binary16: sign 0, exponent and mantissa of small integers.
  static constexpr std::array<std::uint16_t, 28> half = {
      0x0000, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800, 0x4880,
      0x4900, 0x4980, 0x4A00, 0x4A80, 0x4B00, 0x4B80, 0x4C00, 0x4C40, 0x4C80, 0x4CC0,
      0x4D00, 0x4D40, 0x4D80, 0x4DC0, 0x4E00, 0x4E40, 0x4E80, 0x4EC0};
  std::vector<std::byte> bytes;
  for (std::size_t number = 1; number <= out * blocks_per_row; ++number) {
    bytes.push_back(static_cast<std::byte>(half.at(number) & 0xFF));
    bytes.push_back(static_cast<std::byte>(half.at(number) >> 8));
    bytes.insert(bytes.end(), 16, std::byte{0x99});
  }
  return bytes;
}

} // namespace support
