// floor: 5.2
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <immintrin.h>

#include <quern/block_format.hpp>
#include <quern/isa/avx2.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/float_dense.hpp>
#include <quern/kernels/avx2/float_driver.hpp>
#include <quern/kernels/avx2/float_matmul.hpp>
#include <quern/kernels/avx2/float_unpack.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/decode_scalar.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// Decoding with AVX2. A strip is blocks that decode to successive floats; formats differ in their
/// strips only. Stores are ordinary ones: measured on matrices of 4 to 256 MiB, they are as fast as
/// memset, and streaming stores gained nothing.

namespace quern::kernels {

namespace avx2 {
inline namespace QUERN_BUILD_TAG {

/// Decodes `count` blocks (single values of a dense format), `step` bytes apart, to successive
/// floats.
using DecodeStrip = void (*)(const std::byte* at, std::size_t step, std::size_t count,
                             float* to) noexcept;

/// Decodes a grid of blocks of `width` values. When the blocks of a row lie apart, a tile of rows
/// is decoded at a time, so that a line of memory is read once.
inline void decode_grid(const Grid& w, std::size_t width, std::size_t bytes, DecodeStrip strip,
                        Rows<float> to) noexcept {
  constexpr std::size_t tile_rows = 32, tile_values = 512;
  if (w.blocks == 0) return; // there may be no bytes to point at
  if (w.block_step == bytes || w.blocks == 1) {
    for (std::size_t o = 0; o < w.rows; ++o)
      strip(w.at(o, 0), bytes, w.blocks, to.row(o));
    return;
  }
  const std::size_t tile_blocks = std::max<std::size_t>(1, tile_values / width);
  for (std::size_t o = 0; o < w.rows; o += tile_rows)
    for (std::size_t b = 0; b < w.blocks; b += tile_blocks)
      for (std::size_t r = o; r < std::min(w.rows, o + tile_rows); ++r)
        strip(w.at(r, b), w.block_step, std::min(tile_blocks, w.blocks - b), to.row(r) + b * width);
}

/// Single values of a dense format whose columns are contiguous: cells of eight outputs by eight
/// inputs are transposed. Cells go along the rows for some lines, since lines of several rows often
/// fall on the same places of a cache; the columns of 32 rows are read again meanwhile.
template <BlockFormat F>
QUERN_AVX2 void decode_dense_columns(const Grid& w, Rows<float> to) noexcept {
  using U = Floats<F>;
  constexpr std::size_t tile_rows = 32, tile_columns = 64;
  for (std::size_t from = 0; from < w.rows; from += tile_rows)
    for (std::size_t first = 0; first < w.blocks; first += tile_columns)
      for (std::size_t o = from; o < std::min(w.rows, from + tile_rows); o += 8) {
        const std::size_t outputs = std::min<std::size_t>(8, w.rows - o);
        for (std::size_t k = first; k < std::min(w.blocks, first + tile_columns); k += 8) {
          const std::size_t inputs = std::min<std::size_t>(8, w.blocks - k);
          __m256i v[8];
          for (std::size_t i = 0; i < 8; ++i)
            v[i] = i < inputs ? _mm256_castps_si256(take_outputs<U>(w.at(o, k + i), outputs))
                              : _mm256_setzero_si256();
          transpose8(v);
          for (std::size_t r = 0; r < outputs; ++r)
            store_floats(to.row(o + r) + k, _mm256_castsi256_ps(v[r]), inputs);
        }
      }
}

template <BlockFormat F>
QUERN_AVX2 void decode_strip(const std::byte* at, std::size_t step, std::size_t count,
                             float* to) noexcept {
  using U = Floats<F>;
  Keep keep{to};
  if constexpr (is_dense<F>) {
    for (; count >= 8; count -= 8, at += U::bytes, keep.to += 8)
      decode_piece<U>(at, keep);
    if (count != 0) store_floats(keep.to, take_outputs<U>(at, count), count);
  } else {
    for (; count != 0; --count, at += step, keep.to += U::width)
      decode_piece<U>(at, keep);
  }
}

/// Decodes a weight with the strips given.
template <BlockFormat F, BlockOrder O>
void decode_with(DecodeStrip strip, PackedView<F, O> weight, MatrixView<float> matrix) noexcept {
  const Grid grid = grid_of(weight);
  const Rows<float> to{matrix.data(), matrix.rows(), matrix.row_stride()};
  if constexpr (is_dense<F>)
    if (grid.block_step != F::bytes_per_block && grid.blocks != 1)
      return decode_dense_columns<F>(grid, to);
  decode_grid(grid, F::block_size, F::bytes_per_block, strip, to);
}

} // namespace QUERN_BUILD_TAG
} // namespace avx2

inline namespace QUERN_BUILD_TAG {

/// The AVX2 kernel that decodes.
template <BlockFormat F, BlockOrder O>
requires(avx2::is_dense<F> || avx2::HasInts<F>) struct Decode<F, O, isa::Avx2> {
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"decode", "float", F::name, O::name, isa::Avx2::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// Writes the weight into `matrix`, whose extents must agree (see DecodeKernel).
  static void run(Weight weight, MatrixView<float> matrix) noexcept {
    avx2::decode_with(&avx2::decode_strip<F>, weight, matrix);
  }
};

} // namespace QUERN_BUILD_TAG

} // namespace quern::kernels

#endif
