// floor: 4.23
#pragma once

#include <cstddef>
#include <cstdint>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/kernels/int8_parts.hpp>

#if defined(QUERN_X86_KERNELS)
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/ops.hpp>

/// @file
/// Weights unpacked so that the lanes of a register are as many outputs. This folder holds one
/// driver and one unpacker for each format, as text that each instruction set includes for itself:
/// a target attribute can't be a template parameter.

namespace quern::kernels::tiles {
inline namespace QUERN_BUILD_TAG {

/// How one unit (values that share a `d`, see IntegerParts) lies in a tile, all parts being rows of
/// 32-bit lanes: `codes`, four unsigned bytes to a lane; `scales`, the integer scale of each group;
/// `minimums`, those of two neighbouring groups as int16; `d`; `m`.
template <std::size_t Unit, std::size_t Group, bool Minimum, bool Wide, std::size_t LaneBytes>
struct TileUnit {
  static constexpr std::size_t unit = Unit;
  static constexpr std::size_t group = Group;
  static constexpr bool minimum = Minimum;
  /// Codes reach above 127, where the instruction set cares.
  static constexpr bool wide = Wide;
  /// Values whose products are added up without a scale.
  static constexpr std::size_t fold = Group != 0 ? Group : Unit;
  static constexpr std::size_t groups = Group != 0 ? Unit / fold : 0;
  static constexpr std::size_t pairs = Minimum ? groups / 2 : 0;
  /// Values of a tile.
  static constexpr std::size_t values = Unit < 256 ? 512 : 256;

  static constexpr std::size_t scales = Unit / 4 * LaneBytes;
  static constexpr std::size_t minimums = scales + groups * LaneBytes;
  static constexpr std::size_t d = minimums + pairs * LaneBytes;
  static constexpr std::size_t m = d + LaneBytes;
  static constexpr std::size_t bytes = m + (Minimum ? LaneBytes : 0);
};

/// What the integers of a format look like here: n is `code - zero`, codes being 0..255, times the
/// scale of the group.
template <BlockFormat F>
inline constexpr int zero_of = [] {
  constexpr avx2::IntLayout layout = avx2::Ints<F>::layout;
  // The entries of code books of two and three bits are below 64.
  if constexpr (layout.max_code < 0) return F::bits_per_weight < 4.0 ? 64 : 128;
  return layout.negated ? layout.zero + 1 : layout.zero;
}();

/// `AnyByte`: the instruction set multiplies bytes above 127 as well as others.
template <BlockFormat F, bool AnyByte, std::size_t LaneBytes>
using UnitOf = TileUnit<IntegerParts<F>::unit, avx2::Ints<F>::layout.group,
                        IntegerParts<F>::minimum, !AnyByte && zero_of<F> == 128, LaneBytes>;

/// `count` blocks of as many rows as there are lanes: `row_step` bytes from a row to the next,
/// `step` from a block to the next.
struct Pieces {
  const std::byte* at;
  std::size_t row_step;
  std::size_t step;
  std::size_t count;
  const std::byte* next; ///< what will be read later, to be fetched meanwhile
};

/// What a driver has to know of a format besides the shape of its units.
template <class Row>
struct Packed {
  /// Writes the pieces to a tile.
  void (*unpack)(const Pieces& pieces, std::byte* to) noexcept;
  /// Multiplies them with one row of activations and adds to y. The first block meets the values
  /// from `first` on, each next one those `value_step` and the outputs `y_step` further.
  void (*multiply)(const Pieces& pieces, const Row& x, std::size_t width, std::size_t first,
                   std::size_t value_step, float* y, std::size_t y_step) noexcept;
  std::size_t block_size;
  std::size_t block_bytes;
  int zero;
};

/// Int8Blocks of any width.
struct Activations {
  const std::byte* data;
  std::size_t rows;
  std::size_t row_bytes;
  std::size_t sums;   ///< bytes from the start of a row
  std::size_t scales; ///< bytes from the start of a row
  std::size_t width;

  template <std::size_t Width>
  explicit Activations(const Int8Blocks<Width>& x) noexcept
      : data(reinterpret_cast<const std::byte*>(x.codes(0))), rows(x.rows()),
        row_bytes(x.row_bytes()),
        sums(static_cast<std::size_t>(reinterpret_cast<const std::byte*>(x.sums(0)) - data)),
        scales(static_cast<std::size_t>(reinterpret_cast<const std::byte*>(x.scales(0)) - data)),
        width(Width) {}

  [[nodiscard]] const std::int8_t* codes_of(std::size_t row, std::size_t value) const noexcept {
    return reinterpret_cast<const std::int8_t*>(data + row * row_bytes) + value;
  }
  [[nodiscard]] const std::int16_t* sums_of(std::size_t row, std::size_t value) const noexcept {
    return reinterpret_cast<const std::int16_t*>(data + row * row_bytes + sums) + value / 16;
  }
  [[nodiscard]] const float* scales_of(std::size_t row, std::size_t value) const noexcept {
    return reinterpret_cast<const float*>(data + row * row_bytes + scales) + value / width;
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::tiles

#endif
