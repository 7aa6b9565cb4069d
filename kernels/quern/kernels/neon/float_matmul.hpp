// floor: 5
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_ARM_KERNELS)
#include <algorithm>
#include <arm_neon.h>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

#include <quern/block_format.hpp>
#include <quern/isa/neon.hpp>
#include <quern/kernel.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// The Neon kernel for float activations: four rows of W are decoded into a tile, piece by piece,
/// and meet all rows of x. Each output is summed in pieces of 512 inputs: eight lanes within a
/// piece (lane l takes the inputs with index l mod 8), fused multiply-adds in ascending order,
/// lanes joined by join(), pieces added in ascending order. So the number of rows of x and the
/// block order change no bit.

namespace quern::kernels {

namespace neon {
inline namespace QUERN_BUILD_TAG {

/// Inputs summed in lanes before the lanes are joined.
inline constexpr std::size_t piece = 512;
/// Rows of W that are decoded together.
inline constexpr std::size_t tile_rows = 4;

/// The values of `count` blocks, `step` bytes apart. One function for both orders: decoders are
/// long.
template <BlockFormat F>
QUERN_NEVER_INLINE void decode_blocks(const std::byte* block, std::size_t step, std::size_t count,
                                      float* to) noexcept {
  for (; count != 0; --count, block += step, to += F::block_size) {
    const auto values =
        F::decode(std::span<const std::byte, F::bytes_per_block>{block, F::bytes_per_block});
    std::memcpy(to, values.data(), sizeof values);
  }
}

/// Inputs [k, end) of up to four rows of W as floats, with zeros up to a multiple of eight.
struct Tile {
  alignas(64) float values[tile_rows][piece];

  template <BlockFormat F, BlockOrder O>
  void take(const PackedView<F, O>& w, std::size_t o, std::size_t rows, std::size_t k,
            std::size_t end) noexcept {
    const std::size_t first = k / F::block_size;
    const std::size_t step =
        std::same_as<O, RowMajor> ? F::bytes_per_block : w.stride() * F::bytes_per_block;
    for (std::size_t i = 0; i < rows; ++i) {
      decode_blocks<F>(w.block_data(o + i, first), step, (end - k) / F::block_size, values[i]);
      std::fill(values[i] + (end - k), values[i] + (end - k + 7) / 8 * 8, 0.0f);
    }
  }
};

/// The lanes in one fixed order.
[[nodiscard]] inline float join(float32x4_t low, float32x4_t high) noexcept {
  const float32x4_t four = vaddq_f32(low, high);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/// R rows of x, `steps` times eight inputs of each, against the whole tile.
template <std::size_t R>
void multiply(const Tile& tile, const float* const (&x)[R], std::size_t steps,
              float (&sums)[R][tile_rows]) noexcept {
  float32x4_t low[R][tile_rows], high[R][tile_rows];
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t c = 0; c < tile_rows; ++c)
      low[r][c] = high[r][c] = vdupq_n_f32(0.0f);
  for (std::size_t i = 0; i < 8 * steps; i += 8)
    for (std::size_t r = 0; r < R; ++r) {
      const float32x4_t x_low = vld1q_f32(x[r] + i), x_high = vld1q_f32(x[r] + i + 4);
      for (std::size_t c = 0; c < tile_rows; ++c) {
        low[r][c] = vfmaq_f32(low[r][c], vld1q_f32(tile.values[c] + i), x_low);
        high[r][c] = vfmaq_f32(high[r][c], vld1q_f32(tile.values[c] + i + 4), x_high);
      }
    }
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t c = 0; c < tile_rows; ++c)
      sums[r][c] = join(low[r][c], high[r][c]);
}

/// Inputs [k, end) of R rows of x from row `r` on against the tile of rows `o` on; written or added
/// to y.
template <std::size_t R>
void add_rows(const Tile& tile, MatrixView<const float> x, std::size_t r, std::size_t k,
              std::size_t end, MatrixView<float> y, std::size_t o, std::size_t rows) noexcept {
  const std::size_t length = end - k;
  const float* at[R];
  alignas(16) float padded[R][piece];
  for (std::size_t i = 0; i < R; ++i) {
    at[i] = x.row(r + i) + k;
    if (length % 8 == 0) continue;
    std::copy_n(at[i], length, padded[i]);
    std::fill(padded[i] + length, padded[i] + (length + 7) / 8 * 8, 0.0f);
    at[i] = padded[i];
  }
  float sums[R][tile_rows];
  multiply<R>(tile, at, (length + 7) / 8, sums);
  for (std::size_t i = 0; i < R; ++i)
    for (std::size_t c = 0; c < rows; ++c) {
      float& to = y.row(r + i)[o + c];
      to = k == 0 ? sums[i][c] : to + sums[i][c];
    }
}

template <BlockFormat F, BlockOrder O>
void float_matmul(MatrixView<const float> x, const PackedView<F, O>& w,
                  MatrixView<float> y) noexcept {
  static_assert(piece % F::block_size == 0);
  if (w.in() == 0)
    for (std::size_t r = 0; r < y.rows(); ++r)
      std::fill_n(y.row(r), w.out(), 0.0f);
  Tile tile{}; // rows that do not exist stay zero
  for (std::size_t o = 0; o < w.out(); o += tile_rows) {
    const std::size_t rows = std::min(tile_rows, w.out() - o);
    for (std::size_t k = 0; k < w.in(); k += piece) {
      const std::size_t end = std::min(w.in(), k + piece);
      tile.take(w, o, rows, k, end);
      std::size_t r = 0;
      for (; r + 2 <= x.rows(); r += 2)
        add_rows<2>(tile, x, r, k, end, y, o, rows);
      if (r < x.rows()) add_rows<1>(tile, x, r, k, end, y, o, rows);
    }
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace neon

inline namespace QUERN_BUILD_TAG {

/// The Neon kernel for float activations.
template <BlockFormat F, BlockOrder O>
struct Matmul<float, F, O, isa::Neon> {
  using Input = MatrixView<const float>; ///< activations, `[m, in]`
  using Weight = PackedView<F, O>;       ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", "float", F::name, O::name, isa::Neon::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides of all three are honoured.
  static void run(MatrixView<const float> x, PackedView<F, O> w, MatrixView<float> y) noexcept {
    neon::float_matmul(x, w, y);
  }

  // clang-format off
  template <BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(MatrixView<const float>, PackedView<OtherFormat, OtherOrder>, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format and one block order, and the weight has another; call matmul_weight_transposed(x, w, y), or prepack<Order>(w, scope) first");
  // clang-format on
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels

#endif
