// floor: 4.3
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
#include <quern/kernels/avx2/codes_iq.hpp>
#include <quern/kernels/avx2/codes_k.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/int8_parts.hpp>

/// @file
/// One row of int8 activations: eight rows of W at a time, straight from the packed bytes. Products
/// of a row of W lie in the lanes of a register; eight such registers are summed together into one
/// whose lanes are outputs.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// Eight rows of W at one block; `last` is the last row that exists.
template <bool Full>
struct EightBlocks {
  const std::byte* data;
  std::size_t step;
  std::size_t last;

  [[nodiscard]] QUERN_AVX2_INLINE const std::byte* row(std::size_t i) const noexcept {
    return data + (Full ? i : std::min(i, last)) * step;
  }
};

/// One row of activations from some block on.
struct ActivationRow {
  const std::int8_t* codes;
  const std::int16_t* sums;
  const float* scales;

  [[nodiscard]] QUERN_AVX2_INLINE ActivationRow from(std::size_t value,
                                                     std::size_t width) const noexcept {
    return {codes + value, sums + value / 16, scales + value / width};
  }
};

/// Eight binary16 numbers at the same place of eight blocks.
template <bool Full>
QUERN_AVX2_INLINE __m256 halves_at(const EightBlocks<Full>& w, std::size_t offset) noexcept {
  std::uint16_t bits[8];
  QUERN_UNROLL
  for (std::size_t i = 0; i < 8; ++i)
    std::memcpy(&bits[i], w.row(i) + offset, sizeof bits[i]);
  return _mm256_cvtph_ps(_mm_setr_epi16(static_cast<short>(bits[0]), static_cast<short>(bits[1]),
                                        static_cast<short>(bits[2]), static_cast<short>(bits[3]),
                                        static_cast<short>(bits[4]), static_cast<short>(bits[5]),
                                        static_cast<short>(bits[6]), static_cast<short>(bits[7])));
}

/// The factor d of IntegerParts for a unit of eight blocks, with the sign that the codes need.
template <BlockFormat F, bool Full>
QUERN_AVX2_INLINE __m256 factors_of(const EightBlocks<Full>& w, std::size_t unit) noexcept {
  using Parts = IntegerParts<F>;
  constexpr float sign = Ints<F>::layout.negated ? -1.0f : 1.0f;
  if constexpr (requires { Parts::d_at; }) {
    const __m256 d = halves_at(w, Parts::d_at);
    constexpr float factor = Parts::d_factor * sign;
    return factor == 1.0f ? d : _mm256_mul_ps(d, _mm256_set1_ps(factor));
  } else if constexpr (requires { Ints<F>::factors(__m256i{}, 0); }) {
    std::uint32_t heads[8];
    QUERN_UNROLL
    for (std::size_t i = 0; i < 8; ++i)
      heads[i] = load_word(w.row(i));
    const auto head = [&](int i) { return static_cast<int>(heads[i]); };
    return Ints<F>::factors(
        _mm256_setr_epi32(head(0), head(1), head(2), head(3), head(4), head(5), head(6), head(7)),
        static_cast<int>(unit));
  } else {
    alignas(32) float d[8];
    for (std::size_t i = 0; i < 8; ++i)
      d[i] = sign * Parts::d(w.row(i), unit);
    return _mm256_load_ps(d);
  }
}

/// Products of 32 codes with 32 activations: 16 lanes of int16 for bytes that can't overflow them,
/// otherwise (`full_range`) 8 lanes of int32.
template <BlockFormat F>
struct Products {
  static constexpr IntLayout layout = Ints<F>::layout;
  static constexpr bool words = !layout.full_range;
  /// Sixteen such products in a lane still fit int16.
  static constexpr bool sums_fit_words =
      layout.max_code >= 0 && layout.max_code * 128 * 16 <= 32767;

  __m256i first;
  __m256i second;

  QUERN_AVX2_INLINE explicit Products(const std::int8_t* x) noexcept {
    if constexpr (layout.full_range) {
      first = _mm256_cvtepi8_epi16(load_half(x));
      second = _mm256_cvtepi8_epi16(load_half(x + 16));
    } else {
      first = load(x);
      second = layout.max_code < 0 ? _mm256_abs_epi8(first) : first;
    }
  }

  QUERN_AVX2_INLINE __m256i with(__m256i codes) const noexcept {
    if constexpr (layout.full_range) {
      const __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(codes));
      const __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(codes, 1));
      return _mm256_add_epi32(_mm256_madd_epi16(low, first), _mm256_madd_epi16(high, second));
    } else if constexpr (layout.max_code < 0) {
      // |x| is at most 128 as an unsigned byte, and no code is -128, whose sign can't change.
      return _mm256_maddubs_epi16(second, _mm256_sign_epi8(codes, first));
    } else {
      return _mm256_maddubs_epi16(codes, first);
    }
  }
};

/// Adds the units J, J + 1, ... of blocks without groups and with units of 16 or 32 values.
template <BlockFormat F, bool Full, int J>
QUERN_AVX2_INLINE __m256 add_small_units(const EightBlocks<Full>& w, const ActivationRow& x,
                                         __m256 d, __m256 m, __m256 y) noexcept {
  using P = Products<F>;
  constexpr IntLayout layout = Ints<F>::layout;
  const __m256i ones = _mm256_set1_epi16(1);
  const P products(x.codes + 32 * J);
  __m256i v[8];
  QUERN_UNROLL
  for (std::size_t i = 0; i < 8; ++i) {
    v[i] = products.with(Ints<F>::template codes<J>(w.row(i)));
    if constexpr (P::words && !P::sums_fit_words) v[i] = _mm256_madd_epi16(v[i], ones);
  }
  const __m256 scale = _mm256_broadcast_ss(x.scales + J);
  if constexpr (IntegerParts<F>::unit == 16) {
    static_assert(layout.zero != 0 && P::sums_fit_words == false && !IntegerParts<F>::minimum);
    const HalfSums halves = sum_halves<false>(v);
    const __m256i sums[2] = {_mm256_permute2x128_si256(halves.low, halves.high, 0x20),
                             _mm256_permute2x128_si256(halves.low, halves.high, 0x31)};
    QUERN_UNROLL
    for (std::size_t half = 0; half < 2; ++half) {
      const __m256i zero = _mm256_set1_epi32(-layout.zero * x.sums[2 * J + half]);
      const __m256 n = _mm256_cvtepi32_ps(_mm256_add_epi32(sums[half], zero));
      y = _mm256_fmadd_ps(_mm256_mul_ps(n, factors_of<F>(w, 2 * J + half)), scale, y);
    }
  } else {
    __m256i sum = sum_lanes<P::sums_fit_words>(v);
    if constexpr (P::sums_fit_words) sum = _mm256_madd_epi16(sum, ones);
    const __m256i x_sums = broadcast4(x.sums + 2 * J);
    if constexpr (layout.zero != 0)
      sum = _mm256_add_epi32(
          sum, _mm256_madd_epi16(x_sums, _mm256_set1_epi16(static_cast<short>(-layout.zero))));
    __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), d);
    if constexpr (IntegerParts<F>::minimum)
      t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(x_sums, ones)), m, t);
    y = _mm256_fmadd_ps(t, scale, y);
  }
  if constexpr (J + 1 < static_cast<int>(F::block_size / 32))
    return add_small_units<F, Full, J + 1>(w, x, d, m, y);
  else
    return y;
}

/// Sums of 16 activations with those of even place in the lower lane, as scales are.
QUERN_AVX2_INLINE __m256i split_sums(const std::int16_t* sums) noexcept {
  const __m256i even_first = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                              0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(sums), even_first), 0xD8);
}

/// Scale J of each lane in all its words.
template <int J>
QUERN_AVX2_INLINE __m256i scale_of(__m256i scales) noexcept {
  return _mm256_shuffle_epi8(scales, _mm256_set1_epi16(static_cast<short>(514 * J + 256)));
}

/// Products of a block of 256 values, times their scales; `sum` is what they are added to.
template <BlockFormat F, int J>
QUERN_AVX2_INLINE __m256i add_groups(const std::byte* block, const std::int8_t* x, __m256i scales,
                                     __m256i sum) noexcept {
  const Products<F> products(x + 32 * J);
  const __m256i pairs = products.with(Ints<F>::template codes<J>(block));
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scale_of<J>(scales)));
  if constexpr (J + 1 < 8)
    return add_groups<F, J + 1>(block, x, scales, sum);
  else
    return sum;
}

/// Products of a block of 256 values without scales; `sum` are words.
template <BlockFormat F, int J>
QUERN_AVX2_INLINE __m256i add_words(const std::byte* block, const std::int8_t* x,
                                    __m256i sum) noexcept {
  static_assert(Ints<F>::layout.max_code * 128 * 16 <= 32767);
  const Products<F> products(x + 32 * J);
  sum = _mm256_add_epi16(sum, products.with(Ints<F>::template codes<J>(block)));
  if constexpr (J + 1 < 8)
    return add_words<F, J + 1>(block, x, sum);
  else
    return sum;
}

/// Adds blocks of 256 values.
template <BlockFormat F, bool Full>
QUERN_AVX2_INLINE __m256 add_large_unit(const EightBlocks<Full>& w, const ActivationRow& x,
                                        __m256 y) noexcept {
  using Parts = IntegerParts<F>;
  constexpr IntLayout layout = Ints<F>::layout;
  const __m256i sums = split_sums(x.sums);
  const __m256i zero = _mm256_set1_epi16(static_cast<short>(-layout.zero));
  __m256i v[8], k[8];
  for (std::size_t i = 0; i < 8; ++i) {
    const std::byte* block = w.row(i);
    if constexpr (layout.group == 0) {
      const __m256i words = add_words<F, 0>(block, x.codes, _mm256_setzero_si256());
      v[i] = _mm256_add_epi32(_mm256_madd_epi16(words, _mm256_set1_epi16(1)),
                              _mm256_madd_epi16(sums, zero));
    } else {
      const __m256i scales = Ints<F>::scales(block);
      __m256i start = _mm256_setzero_si256();
      if constexpr (layout.zero != 0)
        start = _mm256_madd_epi16(_mm256_mullo_epi16(scales, zero), sums);
      v[i] = add_groups<F, 0>(block, x.codes, scales, start);
      if constexpr (Parts::minimum) k[i] = _mm256_madd_epi16(Ints<F>::minimums(block), sums);
    }
  }
  __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(sum_lanes<false>(v)), factors_of<F>(w, 0));
  if constexpr (Parts::minimum)
    t = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(sum_lanes<false>(k)), halves_at(w, Parts::m_at), t);
  return _mm256_fmadd_ps(t, _mm256_broadcast_ss(x.scales), y);
}

/// Adds one block of eight rows of W to eight outputs.
template <BlockFormat F, bool Full>
QUERN_AVX2_INLINE __m256 add_block(const EightBlocks<Full>& w, const ActivationRow& x,
                                   __m256 y) noexcept {
  using Parts = IntegerParts<F>;
  if constexpr (F::block_size == 256) {
    return add_large_unit<F>(w, x, y);
  } else {
    __m256 d = _mm256_setzero_ps(), m = d;
    if constexpr (Parts::unit != 16) d = factors_of<F>(w, 0);
    if constexpr (Parts::minimum) m = halves_at(w, Parts::m_at);
    return add_small_units<F, Full, 0>(w, x, d, m, y);
  }
}

/// Eight outputs over all blocks, rows of W contiguous. The next eight rows are fetched meanwhile,
/// in the order of memory.
template <BlockFormat F, bool Full>
QUERN_AVX2 void int8_row_group(const Grid& w, std::size_t o, const ActivationRow& x,
                               float* y) noexcept {
  constexpr std::size_t ahead = 8 * F::bytes_per_block;
  EightBlocks<Full> blocks{w.at(o, 0), w.row_step, w.rows - 1 - o};
  const std::byte* next = blocks.data + 8 * w.row_step;
  __m256 sum = _mm256_setzero_ps();
  for (std::size_t b = 0; b < w.blocks; ++b) {
    prefetch(next, ahead);
    sum = add_block<F>(blocks, x.from(b * F::block_size, int8_width<F>), sum);
    blocks.data += w.block_step;
    next += ahead;
  }
  store_floats(y + o, sum, w.rows - o);
}

/// One row of activations against all of W, rows of W contiguous.
template <BlockFormat F>
QUERN_AVX2 void int8_by_rows(const Grid& w, const ActivationRow& x, float* y) noexcept {
  std::size_t o = 0;
  for (; o + 8 <= w.rows; o += 8)
    int8_row_group<F, true>(w, o, x, y);
  if (o < w.rows) int8_row_group<F, false>(w, o, x, y);
}

/// One row of activations against all of W, columns of blocks contiguous: block after block in the
/// order of memory, the sums of a strip of outputs in y.
template <BlockFormat F>
QUERN_AVX2 void int8_by_columns(const Grid& w, const ActivationRow& x, float* y) noexcept {
  constexpr std::size_t strip = 2048;
  constexpr std::size_t ahead = 8 * F::bytes_per_block;
  for (std::size_t first = 0; first < w.rows; first += strip) {
    const std::size_t end = std::min(w.rows, first + strip);
    std::fill(y + first, y + end, 0.0f);
    for (std::size_t b = 0; b < w.blocks; ++b) {
      const ActivationRow here = x.from(b * F::block_size, int8_width<F>);
      const std::byte* at = w.at(first, b);
      std::size_t o = first;
      for (; o + 8 <= end; o += 8, at += ahead) {
        prefetch(at + 2048, ahead);
        const EightBlocks<true> blocks{at, w.row_step, 7};
        _mm256_storeu_ps(y + o, add_block<F>(blocks, here, _mm256_loadu_ps(y + o)));
      }
      if (o < end) {
        const EightBlocks<false> blocks{at, w.row_step, end - 1 - o};
        store_floats(y + o, add_block<F>(blocks, here, load_floats(y + o, end - o)), end - o);
      }
    }
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
