// floor: 4.3
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <immintrin.h>

#include <quern/kernels/avx2/float_unpack.hpp>
#include <quern/kernels/avx2/ops.hpp>

/// @file
/// Loops of the AVX2 kernels for float activations. Each output is summed in pieces of 512 inputs:
/// eight lanes within a piece (lane l takes the inputs with index l mod 8), fused multiply-adds in
/// ascending order, lanes joined by join4(), pieces added in ascending order. All loops below keep
/// to that, so the number of rows of x and the block order change no bit.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// Inputs summed in lanes before the lanes are joined.
inline constexpr std::size_t float_piece = 512;

/// A dense matrix of floats, by address and distance of its rows.
template <class T>
struct Rows {
  T* data;
  std::size_t count;
  std::size_t step;
  [[nodiscard]] T* row(std::size_t r) const noexcept { return data + r * step; }
};

/// A sink that multiplies with M rows of x and adds to eight lanes for each.
template <int M>
struct Dot {
  const float* x;
  std::size_t step;
  __m256 sum[M];

  QUERN_AVX2_INLINE void clear() noexcept {
    QUERN_UNROLL
    for (int m = 0; m < M; ++m)
      sum[m] = _mm256_setzero_ps();
  }
  QUERN_AVX2_INLINE void put(std::size_t i, __m256 w) noexcept {
    QUERN_UNROLL
    for (int m = 0; m < M; ++m)
      sum[m] =
          _mm256_fmadd_ps(w, _mm256_loadu_ps(x + static_cast<std::size_t>(m) * step + i), sum[m]);
  }
};

/// A sink that writes the values down.
struct Keep {
  float* to;
  QUERN_AVX2_INLINE void put(std::size_t i, __m256 w) noexcept { _mm256_storeu_ps(to + i, w); }
};

/// Up to seven single values at the end of a row, padded with zeros to eight.
template <class U>
struct Padded {
  alignas(32) std::byte weights[U::bytes] = {};
  alignas(32) float x[8] = {};

  void take_weights(const std::byte* at, std::size_t count) noexcept {
    std::memcpy(weights, at, count * (U::bytes / U::width));
  }
  void take_x(const float* at, std::size_t count) noexcept {
    std::memcpy(x, at, count * sizeof(float));
  }
};

/// Writes or adds `count` <= 4 joined sums.
QUERN_AVX2_INLINE void put_sums(float* y, __m128 sums, std::size_t count, bool first) noexcept {
  alignas(16) float values[4];
  if (count == 4) {
    _mm_storeu_ps(y, first ? sums : _mm_add_ps(_mm_loadu_ps(y), sums));
    return;
  }
  _mm_store_ps(values, sums);
  for (std::size_t i = 0; i < count; ++i)
    y[i] = first ? values[i] : y[i] + values[i];
}

/// Few rows of x, rows of W contiguous: four outputs at a time, straight from the packed bytes.
template <class U, int M>
QUERN_AVX2 void float_by_rows(const Grid& w, std::size_t in, Rows<const float> x,
                              Rows<float> y) noexcept {
  for (std::size_t o = 0; o < w.rows; o += 4) {
    const std::size_t count = std::min<std::size_t>(4, w.rows - o);
    const std::byte* at[4];
    for (std::size_t i = 0; i < 4; ++i)
      at[i] = w.data + (o + std::min(i, count - 1)) * w.row_step;
    // The next four rows are fetched meanwhile, in the order of memory.
    const std::byte* next = w.data + (o + 4) * w.row_step;
    std::size_t offset = 0;
    for (std::size_t k = 0; k < in; k += float_piece) {
      const std::size_t end = std::min(in, k + float_piece);
      Dot<M> dot[4];
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i)
        dot[i].clear();
      std::size_t at_k = k;
      for (; at_k + U::width <= end; at_k += U::width, offset += U::bytes) {
        const std::byte* piece[4];
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) {
          piece[i] = at[i] + offset;
          dot[i].x = x.data + at_k;
          dot[i].step = x.step;
        }
        prefetch(next, 4 * U::bytes);
        next += 4 * U::bytes;
        decode_four<U>(piece, dot);
      }
      if (U::width == 8 && at_k < end) {
        for (int m = 0; m < M; ++m) {
          Padded<U> last;
          last.take_x(x.row(static_cast<std::size_t>(m)) + at_k, end - at_k);
          for (int i = 0; i < 4; ++i) {
            last.take_weights(at[i] + offset, end - at_k);
            Dot<1> one{last.x, 0, {dot[i].sum[m]}};
            decode_piece<U>(last.weights, one);
            dot[i].sum[m] = one.sum[0];
          }
        }
      }
      QUERN_UNROLL
      for (int m = 0; m < M; ++m)
        put_sums(y.row(static_cast<std::size_t>(m)) + o,
                 join4(dot[0].sum[m], dot[1].sum[m], dot[2].sum[m], dot[3].sum[m]), count, k == 0);
    }
  }
}

/// Few rows of x, columns of blocks contiguous: a strip of outputs at a time, whose lanes wait in
/// the first-level cache while the blocks stream by in the order of memory.
template <class U, int M>
QUERN_AVX2 void float_by_columns(const Grid& w, std::size_t in, Rows<const float> x,
                                 Rows<float> y) noexcept {
  constexpr std::size_t strip = 256;
  alignas(32) float lanes[strip + 3][M][8];
  for (std::size_t o = 0; o < w.rows; o += strip) {
    const std::size_t count = std::min(strip, w.rows - o);
    for (std::size_t k = 0; k < in; k += float_piece) {
      std::memset(lanes, 0, sizeof lanes);
      const std::size_t end = std::min(in, k + float_piece);
      for (std::size_t at_k = k; at_k < end; at_k += U::width) {
        const std::byte* const at = w.at(o, at_k / U::width);
        for (std::size_t i = 0; i < count; i += 4) {
          // Rows that do not exist repeat the last; their lanes are left alone.
          const std::byte* piece[4];
          Dot<M> dot[4];
          QUERN_UNROLL
          for (std::size_t j = 0; j < 4; ++j) {
            piece[j] = at + std::min(i + j, count - 1) * w.row_step;
            dot[j].x = x.data + at_k;
            dot[j].step = x.step;
            QUERN_UNROLL
            for (int m = 0; m < M; ++m)
              dot[j].sum[m] = _mm256_load_ps(lanes[i + j][m]);
          }
          prefetch(piece[0] + w.block_step, 4 * U::bytes);
          decode_four<U>(piece, dot);
          QUERN_UNROLL
          for (std::size_t j = 0; j < 4; ++j) {
            QUERN_UNROLL
            for (int m = 0; m < M; ++m)
              _mm256_store_ps(lanes[i + j][m], dot[j].sum[m]);
          }
        }
      }
      for (std::size_t m = 0; m < M; ++m)
        for (std::size_t i = 0; i < count; i += 4)
          put_sums(y.row(m) + o + i,
                   join4(_mm256_load_ps(lanes[i][m]), _mm256_load_ps(lanes[i + 1][m]),
                         _mm256_load_ps(lanes[i + 2][m]), _mm256_load_ps(lanes[i + 3][m])),
                   std::min<std::size_t>(4, count - i), k == 0);
    }
  }
}

/// Products of R rows of x with four decoded rows of W, `steps` times eight values.
template <int R>
QUERN_AVX2_INLINE void float_cell(const float* w, Rows<const float> x, std::size_t steps, float* y,
                                  std::size_t y_step, std::size_t count, bool first) noexcept {
  __m256 sum[R][4];
  QUERN_UNROLL
  for (int r = 0; r < R; ++r) {
    QUERN_UNROLL
    for (int c = 0; c < 4; ++c)
      sum[r][c] = _mm256_setzero_ps();
  }
  for (std::size_t s = 0; s < steps; ++s) {
    __m256 weights[4];
    QUERN_UNROLL
    for (int c = 0; c < 4; ++c)
      weights[c] = _mm256_loadu_ps(w + static_cast<std::size_t>(c) * float_piece + 8 * s);
    QUERN_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m256 values = _mm256_loadu_ps(x.data + static_cast<std::size_t>(r) * x.step + 8 * s);
      QUERN_UNROLL
      for (int c = 0; c < 4; ++c)
        sum[r][c] = _mm256_fmadd_ps(weights[c], values, sum[r][c]);
    }
  }
  QUERN_UNROLL
  for (int r = 0; r < R; ++r)
    put_sums(y + static_cast<std::size_t>(r) * y_step,
             join4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]), count, first);
}

/// All rows of x against one decoded tile of at most eight rows of W, `length` values of each.
QUERN_AVX2 inline void float_tile(const float* tile, std::size_t outputs, Rows<const float> x,
                                  std::size_t length, Rows<float> y, bool first) noexcept {
  alignas(32) float padded[3][float_piece];
  const std::size_t steps = (length + 7) / 8;
  for (std::size_t r = 0; r < x.count;) {
    const std::size_t left = x.count - r;
    // Four rows go as two pairs: a single row can't hide the latency of its sums.
    const std::size_t rows = left >= 3 && left != 4 ? 3 : std::min<std::size_t>(left, 2);
    Rows<const float> part{x.row(r), rows, x.step};
    if (length % 8 != 0) {
      for (std::size_t i = 0; i < rows; ++i) {
        std::memset(padded[i] + (steps - 1) * 8, 0, 8 * sizeof(float));
        std::memcpy(padded[i], part.row(i), length * sizeof(float));
      }
      part = {padded[0], rows, float_piece};
    }
    for (std::size_t o = 0; o < outputs; o += 4) {
      const float* w = tile + o * float_piece;
      float* to = y.row(r) + o;
      const std::size_t count = std::min<std::size_t>(4, outputs - o);
      if (rows == 3)
        float_cell<3>(w, part, steps, to, y.step, count, first);
      else if (rows == 2)
        float_cell<2>(w, part, steps, to, y.step, count, first);
      else
        float_cell<1>(w, part, steps, to, y.step, count, first);
    }
    r += rows;
  }
}

/// Decodes inputs [k, end) of up to eight rows of W from row `o` on into `tile`, padded with zeros
/// to whole steps of eight. Rows that do not exist repeat the last one.
template <class U>
QUERN_AVX2 void decode_tile(const Grid& w, std::size_t o, std::size_t k, std::size_t end,
                            float* tile) noexcept {
  for (std::size_t i = 0; i < 8; ++i, tile += float_piece) {
    const std::byte* at =
        w.data + std::min(o + i, w.rows - 1) * w.row_step + (k / U::width) * w.block_step;
    Keep keep{tile};
    std::size_t at_k = k;
    for (; at_k + U::width <= end; at_k += U::width, at += w.block_step, keep.to += U::width)
      decode_piece<U>(at, keep);
    if (U::width == 8 && at_k < end) {
      Padded<U> last;
      last.take_weights(at, end - at_k);
      decode_piece<U>(last.weights, keep);
    }
  }
}

/// Many rows of x: a tile of W is decoded once and meets all of them.
template <class U, auto DecodeTile>
QUERN_AVX2 void float_by_tiles(const Grid& w, std::size_t in, Rows<const float> x,
                               Rows<float> y) noexcept {
  alignas(64) float tile[8 * float_piece];
  for (std::size_t o = 0; o < w.rows; o += 8) {
    const std::size_t outputs = std::min<std::size_t>(8, w.rows - o);
    for (std::size_t k = 0; k < in; k += float_piece) {
      const std::size_t end = std::min(in, k + float_piece);
      DecodeTile(w, o, k, end, tile);
      float_tile(tile, outputs, {x.data + k, x.count, x.step}, end - k,
                 {y.data + o, y.count, y.step}, k == 0);
    }
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
