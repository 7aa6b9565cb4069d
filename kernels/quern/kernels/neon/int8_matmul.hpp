// floor: 5.1
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_ARM_KERNELS)
#include <algorithm>
#include <arm_neon.h>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/isa/neon.hpp>
#include <quern/isa/neon_dotprod.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/int8_parts.hpp>
#include <quern/kernels/int8_scalar.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// Neon kernels for int8 activations. The integers of a block are those of the portable kernel;
/// they are unpacked once and meet all rows of activations. Sums are exact, floats follow the
/// portable kernel step by step, so the bits are the same.

namespace quern::kernels {

namespace neon {
inline namespace QUERN_BUILD_TAG {

/// The n of a block, or its k. Those of every format fit int16. One function for all kernels of a
/// format: decoders are long.
template <HasIntegerParts F>
QUERN_NEVER_INLINE void unpack(const std::byte* block, bool minimums, std::int16_t* to) noexcept {
  const auto integers = detail::integers_of<F>(block, !minimums, minimums);
  for (std::size_t i = 0; i < F::block_size; ++i)
    to[i] = static_cast<std::int16_t>(integers[i]);
}

/// Integers of a block as they are, multiplied by SMLAL.
template <std::size_t N>
struct Words {
  alignas(16) std::int16_t values[N];

  template <HasIntegerParts F>
  void take(const std::byte* block, bool minimums) noexcept {
    unpack<F>(block, minimums, values);
  }
  /// The sum of values[at + i] * codes[i] over `count` values, a multiple of 16.
  [[nodiscard]] std::int32_t dot(std::size_t at, const std::int8_t* codes,
                                 std::size_t count) const noexcept {
    int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
    for (std::size_t i = 0; i < count; i += 16) {
      const int8x16_t c = vld1q_s8(codes + i);
      const int16x8_t c_low = vmovl_s8(vget_low_s8(c)), c_high = vmovl_high_s8(c);
      const int16x8_t w_low = vld1q_s16(values + at + i), w_high = vld1q_s16(values + at + i + 8);
      low = vmlal_s16(low, vget_low_s16(w_low), vget_low_s16(c_low));
      high = vmlal_high_s16(high, w_low, c_low);
      low = vmlal_s16(low, vget_low_s16(w_high), vget_low_s16(c_high));
      high = vmlal_high_s16(high, w_high, c_high);
    }
    return vaddvq_s32(vaddq_s32(low, high));
  }
};

#if defined(QUERN_NEON_DOTPROD)
/// Integers of a block as bytes, multiplied by SDOT. Those with scales of their own, in blocks of
/// 256, need two bytes: n = 128 * upper + lower, lower in [-64, 63].
template <std::size_t N>
struct DotBytes {
  static constexpr bool wide = N == 256;
  alignas(16) std::int8_t lower[N];
  alignas(16) std::int8_t upper[wide ? N : 16];

  template <HasIntegerParts F>
  void take(const std::byte* block, bool minimums) noexcept {
    alignas(16) std::int16_t words[N];
    unpack<F>(block, minimums, words);
    for (std::size_t i = 0; i < N; ++i) {
      if constexpr (wide) {
        const int above = (words[i] + 64) >> 7;
        upper[i] = static_cast<std::int8_t>(above);
        lower[i] = static_cast<std::int8_t>(words[i] - 128 * above);
      } else {
        lower[i] = static_cast<std::int8_t>(words[i]);
      }
    }
  }
  /// As Words::dot.
  [[nodiscard]] QUERN_NEON_DOTPROD std::int32_t dot(std::size_t at, const std::int8_t* codes,
                                                    std::size_t count) const noexcept {
    int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
    for (std::size_t i = 0; i < count; i += 16) {
      const int8x16_t c = vld1q_s8(codes + i);
      low = vdotq_s32(low, vld1q_s8(lower + at + i), c);
      if constexpr (wide) high = vdotq_s32(high, vld1q_s8(upper + at + i), c);
    }
    if constexpr (wide) low = vaddq_s32(low, vshlq_n_s32(high, 7));
    return vaddvq_s32(low);
  }
};
#endif

/// y = x * W^T with integers held as `Integers`.
template <template <std::size_t> class Integers, HasIntegerParts F, BlockOrder O>
void int8_matmul(const Int8For<F>& x, const PackedView<F, O>& w, MatrixView<float> y) noexcept {
  using Parts = IntegerParts<F>;
  constexpr std::size_t width = int8_width<F>;
  for (std::size_t r = 0; r < x.rows(); ++r)
    std::fill_n(y.row(r), w.out(), 0.0f);
  Integers<F::block_size> n, k;
  for (std::size_t o = 0; o < w.out(); ++o)
    for (std::size_t b = 0; b < w.blocks_per_row(); ++b) {
      const std::byte* const block = w.block_data(o, b);
      n.template take<F>(block, false);
      if constexpr (Parts::minimum) k.template take<F>(block, true);
      for (std::size_t r = 0; r < x.rows(); ++r) {
        const std::int8_t* const codes = x.codes(r) + b * F::block_size;
        const float* const scales = x.scales(r) + b * F::block_size / width;
        float sum = y.row(r)[o];
        for (std::size_t at = 0; at < F::block_size; at += Parts::unit) {
          float t = static_cast<float>(n.dot(at, codes + at, Parts::unit)) *
                    Parts::d(block, at / Parts::unit);
          if constexpr (Parts::minimum)
            t = std::fma(static_cast<float>(k.dot(at, codes + at, Parts::unit)), Parts::m(block),
                         t);
          sum = std::fma(t, scales[at / width], sum);
        }
        y.row(r)[o] = sum;
      }
    }
}

/// What the two kernels share.
template <template <std::size_t> class Integers, HasIntegerParts F, BlockOrder O, Isa I>
struct Int8Matmul {
  using Input = Int8For<F>;        ///< activations, `[m, in]`
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", Input::name, F::name, O::name, I::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides are honoured.
  static void run(const Input& x, const Weight& w, MatrixView<float> y) noexcept {
    int8_matmul<Integers>(x, w, y);
  }

  // clang-format off
  template <std::size_t OtherWidth, BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(const Int8Blocks<OtherWidth>&, const PackedView<OtherFormat, OtherOrder>&, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format, one block order and activations of one width, and something here is of another; quantize_activations<int8_width<Format>>(x, scope) and matmul_weight_transposed(x, w, y) choose what fits");
  // clang-format on
};

} // namespace QUERN_BUILD_TAG
} // namespace neon

inline namespace QUERN_BUILD_TAG {

/// The Neon kernel for int8 activations; the same bits as the portable one.
template <std::size_t Width, HasIntegerParts F, BlockOrder O>
requires(int8_width<F> == Width) struct Matmul<Int8Blocks<Width>, F, O, isa::Neon>
    : neon::Int8Matmul<neon::Words, F, O, isa::Neon> {
};

#if defined(QUERN_NEON_DOTPROD)
/// The same with dot products of bytes.
template <std::size_t Width, HasIntegerParts F, BlockOrder O>
requires(int8_width<F> == Width) struct Matmul<Int8Blocks<Width>, F, O, isa::NeonDotprod>
    : neon::Int8Matmul<neon::DotBytes, F, O, isa::NeonDotprod> {
};
#endif

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels

#endif
