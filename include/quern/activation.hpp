// floor: 3
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/detail/arithmetic.hpp>
#include <quern/detail/checked.hpp>
#include <quern/error.hpp>

/// @file
/// Activations as signed bytes with one float scale per block, for products in integers. They are
/// made by quantize_activations(), never silently.

namespace quern {

namespace detail {

/// Where the parts of one row of Int8Blocks lie, in bytes from the start of the row.
struct Int8RowLayout {
  std::size_t half_sums; ///< for each 16 codes two int16: sums of codes i with i % 4 < 2, >= 2
  std::size_t sums;      ///< for each 16 codes one int16: their sum
  std::size_t scales;    ///< one float per block
  std::size_t row;       ///< from a row to the next

  constexpr Int8RowLayout(std::size_t cols, std::size_t width) noexcept
      : half_sums(lines(cols)), sums(half_sums + lines(cols / 4)), scales(sums + lines(cols / 8)),
        row(scales + lines(cols / width * sizeof(float))) {
    // Rows an even number of cache lines apart would share few cache sets.
    if (row / line % 2 == 0) row += line;
  }

private:
  static constexpr std::size_t line = 64;
  static constexpr std::size_t lines(std::size_t bytes) noexcept {
    return (bytes + line - 1) / line * line;
  }
};

/// Fills in the sums of a row whose codes are set.
inline void sum_int8_row(std::byte* row, std::size_t cols, const Int8RowLayout& layout) noexcept {
  const auto* codes = reinterpret_cast<const std::int8_t*>(row);
  auto* half_sums = reinterpret_cast<std::int16_t*>(row + layout.half_sums);
  auto* sums = reinterpret_cast<std::int16_t*>(row + layout.sums);
  for (std::size_t g = 0; g < cols / 16; ++g) {
    int half[2] = {0, 0};
    for (std::size_t i = 0; i < 16; ++i)
      half[i % 4 / 2] += codes[16 * g + i];
    half_sums[2 * g] = static_cast<std::int16_t>(half[0]);
    half_sums[2 * g + 1] = static_cast<std::int16_t>(half[1]);
    sums[g] = static_cast<std::int16_t>(half[0] + half[1]);
  }
}

/// How one block of activations is scaled, from its largest magnitude `peak`, a number that is
/// infinite or NaN when a value is. Codes are `round(value * lift * inverse)`.
struct Int8Scale {
  float scale;
  float lift;
  float inverse;

  explicit Int8Scale(float peak) noexcept {
    // An infinite or NaN value makes the scale so and the codes zero: zero times that is NaN.
    const bool finite = is_finite(peak);
    scale = is_nan(peak) ? std::numeric_limits<float>::quiet_NaN() : peak / 127.0f;
    // 127 / peak overflows for tiny peaks; a power of two moves them up without rounding.
    lift = finite && peak < 0x1p-100f ? 0x1p100f : 1.0f;
    inverse = finite && peak > 0.0f ? 127.0f / (peak * lift) : 0.0f;
  }
};

/// Quantizes one row in portable code; other instruction sets give the same bytes.
template <std::size_t Width>
void quantize_int8_row(const float* x, std::size_t cols, std::byte* row,
                       const Int8RowLayout& layout) noexcept {
  auto* codes = reinterpret_cast<std::int8_t*>(row);
  auto* scales = reinterpret_cast<float*>(row + layout.scales);
  for (std::size_t b = 0; b < cols / Width; ++b) {
    // As integers, magnitudes keep their order, and a NaN is above everything.
    std::uint32_t peak = 0;
    for (std::size_t i = b * Width; i < (b + 1) * Width; ++i)
      peak = std::max(peak, std::bit_cast<std::uint32_t>(magnitude(x[i])));
    const Int8Scale scale(std::bit_cast<float>(peak));
    scales[b] = scale.scale;
    for (std::size_t i = b * Width; i < (b + 1) * Width; ++i)
      codes[i] = scale.inverse == 0.0f ? std::int8_t{0}
                                       : static_cast<std::int8_t>(round_half_even(
                                             rounded(rounded(x[i] * scale.lift) * scale.inverse)));
  }
  sum_int8_row(row, cols, layout);
}

} // namespace detail

/// Activations `[rows, cols]` as signed bytes: value (r, i) is `codes(r)[i] * scales(r)[i /
/// Width]`. A view; the bytes live in the scope given to quantize_activations().
///
/// Width 32 goes with weights in blocks of 32, 64 or 128 values, width 256 with blocks of 256.
template <std::size_t Width>
class Int8Blocks {
  static_assert(
      Width == 32 || Width == 256,
      "quern::Int8Blocks: the width is 32 or 256 values; int8_width<Format> names the one "
      "that a weight format needs");

public:
  static constexpr std::size_t width = Width; ///< values that share a scale
  /// As in kernel keys and traces.
  static constexpr std::string_view name = Width == 32 ? "Int8Blocks<32>" : "Int8Blocks<256>";

  /// Bytes that activations of `[rows, cols]` take. Throws Error(not_block_multiple) when `cols` is
  /// not a multiple of the width, and Error(size_overflow).
  [[nodiscard]] static std::size_t bytes_for(std::size_t rows, std::size_t cols) {
    if (cols % Width != 0)
      throw Error(ErrorCode::not_block_multiple,
                  "quern::Int8Blocks: rows of " + std::to_string(cols) +
                      " values are not a multiple of " + std::to_string(Width) + " (remainder " +
                      std::to_string(cols % Width) + ")");
    if (cols > std::numeric_limits<std::size_t>::max() / 4)
      throw Error(ErrorCode::size_overflow,
                  "quern::Int8Blocks: rows of " + std::to_string(cols) + " values do not fit");
    const auto bytes = detail::checked_mul(rows, detail::Int8RowLayout(cols, Width).row);
    if (!bytes)
      throw Error(ErrorCode::size_overflow, "quern::Int8Blocks: " + std::to_string(rows) +
                                                " rows of " + std::to_string(cols) +
                                                " values do not fit");
    return *bytes;
  }

  /// Views bytes that quantize_activations() filled for `[rows, cols]`. They start on a multiple of
  /// 4. Throws as bytes_for() does, and Error(size_mismatch) when there are too few or they start
  /// elsewhere.
  Int8Blocks(std::span<const std::byte> bytes, std::size_t rows, std::size_t cols)
      : data_(bytes.data()), rows_(rows), cols_(cols), layout_(cols, Width) {
    const std::size_t needed = bytes_for(rows, cols);
    if (bytes.size() < needed)
      throw Error(ErrorCode::size_mismatch, "quern::Int8Blocks: " + std::to_string(rows) +
                                                " rows of " + std::to_string(cols) +
                                                " values need " + std::to_string(needed) +
                                                " bytes, got " + std::to_string(bytes.size()));
    if (std::bit_cast<std::uintptr_t>(bytes.data()) % alignof(float) != 0)
      throw Error(ErrorCode::size_mismatch,
                  "quern::Int8Blocks: the bytes must start on a multiple of 4");
  }

  /// Rows: one per token or batch entry.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  /// Values in a row.
  [[nodiscard]] std::size_t cols() const noexcept { return cols_; }
  /// Scales in a row: cols() / width.
  [[nodiscard]] std::size_t blocks_per_row() const noexcept { return cols_ / Width; }
  /// Bytes of all rows.
  [[nodiscard]] std::size_t bytes() const noexcept { return rows_ * layout_.row; }
  /// Bytes from a row to the next; the four arrays of a row keep their distance.
  [[nodiscard]] std::size_t row_bytes() const noexcept { return layout_.row; }

  /// The codes of a row, cols() of them. Not checked: r < rows(), as below.
  [[nodiscard]] const std::int8_t* codes(std::size_t r) const noexcept {
    return at<std::int8_t>(r, 0);
  }
  /// The scales of a row, blocks_per_row() of them.
  [[nodiscard]] const float* scales(std::size_t r) const noexcept {
    return at<float>(r, layout_.scales);
  }
  /// Sums of each 16 codes.
  [[nodiscard]] const std::int16_t* sums(std::size_t r) const noexcept {
    return at<std::int16_t>(r, layout_.sums);
  }
  /// The same sums in two parts: codes i with i % 4 < 2, and the others.
  [[nodiscard]] const std::int16_t* half_sums(std::size_t r) const noexcept {
    return at<std::int16_t>(r, layout_.half_sums);
  }

  /// Rows [from, from + count). Throws Error(out_of_range).
  [[nodiscard]] Int8Blocks narrow_rows(std::size_t from, std::size_t count) const {
    if (from > rows_ || count > rows_ - from)
      throw Error(ErrorCode::out_of_range, "quern::Int8Blocks::narrow_rows: rows from " +
                                               std::to_string(from) + ", " + std::to_string(count) +
                                               " of them, do not lie within " +
                                               std::to_string(rows_));
    Int8Blocks part = *this;
    part.rows_ = count;
    if (count != 0) part.data_ += from * layout_.row;
    return part;
  }

private:
  template <class T>
  [[nodiscard]] const T* at(std::size_t r, std::size_t offset) const noexcept {
    return reinterpret_cast<const T*>(data_ + r * layout_.row + offset);
  }

  const std::byte* data_;
  std::size_t rows_;
  std::size_t cols_;
  detail::Int8RowLayout layout_;
};

/// The width of Int8Blocks that a weight format meets: 256 for blocks of 256 values, otherwise 32.
/// 0 for formats of single values, which have no integers to multiply.
template <BlockFormat F>
inline constexpr std::size_t int8_width = F::block_size == 256      ? 256
                                          : F::block_size % 32 == 0 ? 32
                                                                    : 0;

/// The int8 activations that a weight format meets.
template <BlockFormat F>
requires(int8_width<F> != 0) using Int8For = Int8Blocks<int8_width<F>>;

} // namespace quern
