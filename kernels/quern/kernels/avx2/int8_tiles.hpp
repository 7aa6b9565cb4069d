// floor: 4.5
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/int8_unpack.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/int8_parts.hpp>

/// @file
/// Several rows of int8 activations: a tile of W is unpacked once and meets all of them. Lanes are
/// outputs; the sums wait in y between the tiles of a row.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// Sizes of a tile: 32 outputs, and as many blocks as fill about half of the first-level cache.
template <BlockFormat F>
struct TileShape {
  static constexpr std::size_t groups = 4; // of eight outputs
  static constexpr std::size_t rows = 4;   // of activations that are multiplied together
  static constexpr std::size_t values = TileBlock<F>::narrow ? 512 : 256;
  static constexpr std::size_t blocks = std::max<std::size_t>(1, values / F::block_size);
  static constexpr std::size_t fold = values_per_fold<F>();
};

/// What `rows` rows of activations need besides their codes, for the blocks of one tile.
template <BlockFormat F>
struct TileRows {
  using Tile = TileBlock<F>;
  using Shape = TileShape<F>;
  static constexpr std::size_t width = int8_width<F>;
  static constexpr std::size_t values = Shape::blocks * F::block_size;

  const std::int8_t* codes[Shape::rows];
  const float* scales[Shape::rows];
  /// Wide: the codes as int16.
  alignas(32) std::int16_t words[Tile::narrow ? 1 : Shape::rows][Tile::narrow ? 16 : values];
  /// Narrow with a zero: for each fold what the two int16 sums of each lane start from.
  alignas(32) std::int32_t starts[Shape::rows][values / 16];
  /// Groups with minimums: sums of two neighbouring groups as int16.
  alignas(32) std::int32_t pairs[Shape::rows][values / 16];
  /// A minimum without groups: the sum of a unit.
  alignas(32) float unit_sums[Shape::rows][values / 16];

  QUERN_AVX2 void take(const Int8Blocks<width>& x, std::size_t first, std::size_t count,
                       std::size_t value, std::size_t length) noexcept {
    for (std::size_t r = 0; r < count; ++r) {
      codes[r] = x.codes(first + r) + value;
      scales[r] = x.scales(first + r) + value / width;
      const std::int16_t* half_sums = x.half_sums(first + r) + value / 8;
      const std::int16_t* sums = x.sums(first + r) + value / 16;
      if constexpr (!Tile::narrow)
        for (std::size_t i = 0; i < length; i += 16)
          store(words[r] + i, _mm256_cvtepi8_epi16(load_half(codes[r] + i)));
      if constexpr (Tile::narrow && Tile::layout.zero != 0)
        take_starts(half_sums, length / Shape::fold, starts[r]);
      if constexpr (Tile::pairs != 0) take_pairs(sums, length, pairs[r]);
      if constexpr (IntegerParts<F>::minimum && !Tile::grouped) {
        static_assert(IntegerParts<F>::unit == 32);
        for (std::size_t u = 0; u < length / 32; ++u)
          unit_sums[r][u] = static_cast<float>(sums[2 * u] + sums[2 * u + 1]);
      }
    }
  }

private:
  QUERN_AVX2_INLINE static void take_starts(const std::int16_t* half_sums, std::size_t folds,
                                            std::int32_t* to) noexcept {
    constexpr std::size_t parts = Shape::fold / 16;
    for (std::size_t f = 0; f < folds; ++f) {
      // Modulo 2^16, as the sums that start here.
      unsigned low = 0, high = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        low += static_cast<unsigned>(half_sums[2 * (f * parts + i)]);
        high += static_cast<unsigned>(half_sums[2 * (f * parts + i) + 1]);
      }
      constexpr auto zero = static_cast<unsigned>(-Tile::layout.zero);
      to[f] = static_cast<std::int32_t>((low * zero & 0xFFFFu) | (high * zero) << 16);
    }
  }
  QUERN_AVX2_INLINE static void take_pairs(const std::int16_t* sums, std::size_t length,
                                           std::int32_t* to) noexcept {
    constexpr std::size_t parts = Tile::layout.group / 16;
    for (std::size_t p = 0; p < length / (2 * Tile::layout.group); ++p) {
      int low = 0, high = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        low += sums[2 * p * parts + i];
        high += sums[(2 * p + 1) * parts + i];
      }
      to[p] = static_cast<std::int32_t>((static_cast<unsigned>(low) & 0xFFFFu) |
                                        static_cast<unsigned>(high) << 16);
    }
  }
};

/// Sums for R rows of activations and two groups of outputs.
template <int R>
struct Cell {
  __m256i sum[R][2];

  QUERN_AVX2_INLINE void clear() noexcept {
    QUERN_UNROLL
    for (int r = 0; r < R; ++r)
      sum[r][0] = sum[r][1] = _mm256_setzero_si256();
  }
};

/// The products of one fold of narrow codes, in words.
template <BlockFormat F, int R>
QUERN_AVX2_INLINE void add_fold(Cell<R>& words, const std::byte* left, const std::byte* right,
                                const TileRows<F>& x, std::size_t value) noexcept {
  constexpr std::size_t fold = TileShape<F>::fold;
  constexpr bool starts = TileBlock<F>::layout.zero != 0;
  QUERN_UNROLL
  for (int r = 0; r < R; ++r)
    words.sum[r][0] = words.sum[r][1] =
        starts ? _mm256_set1_epi32(x.starts[r][value / fold]) : _mm256_setzero_si256();
  QUERN_UNROLL
  for (std::size_t s = 0; s < fold; s += 4) {
    const __m256i w[2] = {load(left + 8 * s), load(right + 8 * s)};
    QUERN_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m256i four = broadcast4(x.codes[r] + value + s);
      QUERN_UNROLL
      for (int c = 0; c < 2; ++c) {
        words.sum[r][c] = _mm256_add_epi16(words.sum[r][c], _mm256_maddubs_epi16(w[c], four));
        pin(words.sum[r][c]);
      }
    }
  }
}

/// The integer sums of one unit of narrow codes; `value` counts from the start of the tile.
template <BlockFormat F, int R>
QUERN_AVX2_INLINE void narrow_unit(Cell<R>& sums, const std::byte* left, const std::byte* right,
                                   const TileRows<F>& x, std::size_t in_block,
                                   std::size_t value) noexcept {
  using Tile = TileBlock<F>;
  constexpr std::size_t fold = TileShape<F>::fold;
  sums.clear();
  for (std::size_t at = in_block; at < in_block + IntegerParts<F>::unit; at += fold) {
    Cell<R> words;
    add_fold<F, R>(words, left + 8 * at, right + 8 * at, x, value + at);
    __m256i scale[2] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    if constexpr (Tile::grouped) {
      scale[0] = load(left + Tile::scales + 32 * (at / Tile::layout.group));
      scale[1] = load(right + Tile::scales + 32 * (at / Tile::layout.group));
    }
    QUERN_UNROLL
    for (int r = 0; r < R; ++r) {
      QUERN_UNROLL
      for (int c = 0; c < 2; ++c)
        sums.sum[r][c] =
            _mm256_add_epi32(sums.sum[r][c], _mm256_madd_epi16(words.sum[r][c], scale[c]));
    }
  }
}

/// The integer sums of one block of wide codes.
template <BlockFormat F, int R>
QUERN_AVX2_INLINE void wide_block(Cell<R>& sums, const std::byte* left, const std::byte* right,
                                  const TileRows<F>& x, std::size_t value) noexcept {
  sums.clear();
  for (std::size_t at = 0; at < F::block_size; at += 2) {
    const __m256i w[2] = {load(left + 16 * at), load(right + 16 * at)};
    QUERN_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m256i two = broadcast4(x.words[r] + value + at);
      QUERN_UNROLL
      for (int c = 0; c < 2; ++c)
        sums.sum[r][c] = _mm256_add_epi32(sums.sum[r][c], _mm256_madd_epi16(w[c], two));
    }
  }
}

/// Adds `blocks` blocks of two groups of outputs for R rows to `y`.
template <BlockFormat F, int R>
QUERN_AVX2 void multiply_cell(const std::byte* left, const std::byte* right, std::size_t blocks,
                              const TileRows<F>& x, float (&y)[R][2][8]) noexcept {
  using Tile = TileBlock<F>;
  using Parts = IntegerParts<F>;
  for (std::size_t b = 0; b < blocks; ++b, left += Tile::bytes, right += Tile::bytes) {
    const std::size_t value = b * F::block_size;
    Cell<R> k;
    if constexpr (Tile::pairs != 0) {
      k.clear();
      for (std::size_t p = 0; p < Tile::pairs; ++p) {
        const __m256i m[2] = {load(left + Tile::minimums + 32 * p),
                              load(right + Tile::minimums + 32 * p)};
        QUERN_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m256i pair = _mm256_set1_epi32(x.pairs[r][b * Tile::pairs + p]);
          QUERN_UNROLL
          for (int c = 0; c < 2; ++c)
            k.sum[r][c] = _mm256_add_epi32(k.sum[r][c], _mm256_madd_epi16(m[c], pair));
        }
      }
    }
    for (std::size_t u = 0; u < Tile::units; ++u) {
      Cell<R> n;
      const std::size_t in_block = u * Parts::unit;
      if constexpr (Tile::narrow)
        narrow_unit<F, R>(n, left, right, x, in_block, value);
      else
        wide_block<F, R>(n, left, right, x, value);
      const std::byte* const of[2] = {left, right};
      QUERN_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m256 scale = _mm256_broadcast_ss(x.scales[r] + (value + in_block) / int8_width<F>);
        QUERN_UNROLL
        for (int c = 0; c < 2; ++c) {
          __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(n.sum[r][c]),
                                   _mm256_castsi256_ps(load(of[c] + Tile::d + 32 * u)));
          if constexpr (Parts::minimum) {
            const __m256 m = _mm256_castsi256_ps(load(of[c] + Tile::m));
            if constexpr (Tile::grouped)
              t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(k.sum[r][c]), m, t);
            else
              t = _mm256_fmadd_ps(_mm256_broadcast_ss(&x.unit_sums[r][b]), m, t);
          }
          _mm256_store_ps(y[r][c], _mm256_fmadd_ps(t, scale, _mm256_load_ps(y[r][c])));
        }
      }
    }
  }
}

/// R rows of activations against the `outputs` <= 32 outputs of a tile.
template <BlockFormat F, int R>
QUERN_AVX2 void multiply_rows(const std::byte* tile, std::size_t outputs, std::size_t blocks,
                              const TileRows<F>& x, float* y, std::size_t y_step,
                              bool first) noexcept {
  constexpr std::size_t group_bytes = TileShape<F>::blocks * TileBlock<F>::bytes;
  for (std::size_t o = 0; o < outputs; o += 16) {
    alignas(32) float sums[R][2][8] = {};
    const std::byte* left = tile + o / 8 * group_bytes;
    // A lone group is multiplied twice, its second result left alone.
    const std::byte* right = outputs - o > 8 ? left + group_bytes : left;
    const std::size_t count[2] = {std::min<std::size_t>(8, outputs - o),
                                  outputs - o > 8 ? std::min<std::size_t>(8, outputs - o - 8) : 0};
    for (std::size_t r = 0; r < R && !first; ++r)
      for (std::size_t c = 0; c < 2; ++c)
        if (count[c] != 0)
          _mm256_store_ps(sums[r][c], load_floats(y + r * y_step + o + 8 * c, count[c]));
    multiply_cell<F, R>(left, right, blocks, x, sums);
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t c = 0; c < 2; ++c)
        if (count[c] != 0)
          store_floats(y + r * y_step + o + 8 * c, _mm256_load_ps(sums[r][c]), count[c]);
  }
}

/// Unpacks `blocks` blocks of up to 32 rows of W, and asks for those beside them, which come next.
template <BlockFormat F>
QUERN_AVX2 void unpack_tile(const Grid& w, std::size_t o, std::size_t b, std::size_t blocks,
                            std::byte* tile) noexcept {
  using Shape = TileShape<F>;
  for (std::size_t g = 0; g < Shape::groups && o + 8 * g < w.rows; ++g) {
    const std::size_t row = o + 8 * g;
    std::byte* to = tile + g * Shape::blocks * TileBlock<F>::bytes;
    for (std::size_t i = 0; i < blocks; ++i, to += TileBlock<F>::bytes) {
      for (std::size_t r = 0; r < 8; ++r)
        prefetch(w.at(row + r, b + blocks + i), F::bytes_per_block);
      if (row + 8 <= w.rows)
        unpack_block<F>(EightBlocks<true>{w.at(row, b + i), w.row_step, 7}, to);
      else
        unpack_block<F>(EightBlocks<false>{w.at(row, b + i), w.row_step, w.rows - 1 - row}, to);
    }
  }
}

/// Any number of rows of activations against all of W, in either order.
template <BlockFormat F>
QUERN_AVX2 void int8_by_tiles(const Grid& w, const Int8Blocks<int8_width<F>>& x, float* y,
                              std::size_t y_step) noexcept {
  using Shape = TileShape<F>;
  alignas(64) std::byte tile[Shape::groups * Shape::blocks * TileBlock<F>::bytes];
  TileRows<F> part;
  for (std::size_t o = 0; o < w.rows; o += 8 * Shape::groups) {
    const std::size_t outputs = std::min(8 * Shape::groups, w.rows - o);
    for (std::size_t b = 0; b < w.blocks; b += Shape::blocks) {
      const std::size_t blocks = std::min(Shape::blocks, w.blocks - b);
      unpack_tile<F>(w, o, b, blocks, tile);
      for (std::size_t r = 0; r < x.rows(); r += Shape::rows) {
        const std::size_t rows = std::min(Shape::rows, x.rows() - r);
        part.take(x, r, rows, b * F::block_size, blocks * F::block_size);
        float* to = y + r * y_step + o;
        if (rows == 4)
          multiply_rows<F, 4>(tile, outputs, blocks, part, to, y_step, b == 0);
        else if (rows == 3)
          multiply_rows<F, 3>(tile, outputs, blocks, part, to, y_step, b == 0);
        else if (rows == 2)
          multiply_rows<F, 2>(tile, outputs, blocks, part, to, y_step, b == 0);
        else
          multiply_rows<F, 1>(tile, outputs, blocks, part, to, y_step, b == 0);
      }
    }
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
