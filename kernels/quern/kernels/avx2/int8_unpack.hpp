// floor: 4.4
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include <quern/block_format.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/int8_rows.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/int8_parts.hpp>

/// @file
/// Blocks of eight rows of W, unpacked so that the lanes of a register are eight outputs.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// True when products of `values` codes fit int16, half of them in each lane. Sums of `code - zero`
/// are what must fit; on the way there int16 may wrap.
[[nodiscard]] constexpr bool fit_words(const IntLayout& layout, std::size_t values) noexcept {
  const int lane = static_cast<int>(values / 2);
  const int above = layout.max_code - layout.zero;
  const int up = std::max(above * 127, layout.zero * 128) * lane;
  const int down = std::max(above * 128, layout.zero * 127) * lane;
  return up <= 32767 && down <= 32768;
}

/// Values whose products are added up in int16 before they are widened.
template <BlockFormat F>
[[nodiscard]] constexpr std::size_t values_per_fold() noexcept {
  constexpr IntLayout layout = Ints<F>::layout;
  constexpr std::size_t most = layout.group != 0 ? layout.group : IntegerParts<F>::unit;
  std::size_t fold = 16;
  while (fold * 2 <= most && fit_words(layout, fold * 2))
    fold *= 2;
  return fold;
}

/// One block of eight rows of W in a tile. All parts are rows of eight 32-bit lanes:
///
/// narrow (codes that are not negative): `codes`, four bytes of an output to a lane; `scales`, for
/// each group the scale twice as int16; `minimums`, those of two groups as int16 pairs
/// wide (signed codes): `codes`, two int16 to a lane, already times their scales
/// both: `d` for each unit, `m`
template <BlockFormat F>
struct TileBlock {
  static constexpr IntLayout layout = Ints<F>::layout;
  static constexpr bool narrow = layout.max_code >= 0;
  static constexpr bool grouped = narrow && layout.group != 0;
  static constexpr std::size_t lanes = 32; // bytes of eight lanes
  static constexpr std::size_t units = F::block_size / IntegerParts<F>::unit;
  static constexpr std::size_t groups = grouped ? F::block_size / layout.group : 0;
  static constexpr std::size_t pairs = grouped && IntegerParts<F>::minimum ? groups / 2 : 0;

  static constexpr std::size_t codes = 0;
  static constexpr std::size_t scales = F::block_size / (narrow ? 4 : 2) * lanes;
  static constexpr std::size_t minimums = scales + groups * lanes;
  static constexpr std::size_t d = minimums + pairs * lanes;
  static constexpr std::size_t m = d + units * lanes;
  static constexpr std::size_t bytes = m + (IntegerParts<F>::minimum ? lanes : 0);
};

/// Transposes eight rows of eight words in each half of the registers.
QUERN_AVX2_INLINE void transpose_words(__m256i (&v)[8]) noexcept {
  __m256i pair[8], quad[8];
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) {
    pair[2 * i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    pair[2 * i + 1] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  QUERN_UNROLL
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_unpacklo_epi32(pair[i], pair[i + 2]);
    quad[i + 1] = _mm256_unpackhi_epi32(pair[i], pair[i + 2]);
    quad[i + 2] = _mm256_unpacklo_epi32(pair[i + 1], pair[i + 3]);
    quad[i + 3] = _mm256_unpackhi_epi32(pair[i + 1], pair[i + 3]);
  }
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm256_unpacklo_epi64(quad[i], quad[i + 4]);
    v[2 * i + 1] = _mm256_unpackhi_epi64(quad[i], quad[i + 4]);
  }
}

/// Words a and b as pairs in 32-bit lanes: those of the lower halves, and those of the upper.
struct PairedWords {
  __m256i low;
  __m256i high;

  QUERN_AVX2_INLINE PairedWords(__m256i a, __m256i b) noexcept {
    const __m256i first = _mm256_unpacklo_epi16(a, b);
    const __m256i second = _mm256_unpackhi_epi16(a, b);
    low = _mm256_permute2x128_si256(first, second, 0x20);
    high = _mm256_permute2x128_si256(first, second, 0x31);
  }
};

/// Writes the scales of eight rows, each as Ints<F>::scales gives them.
template <std::size_t Group>
QUERN_AVX2_INLINE void store_scales(__m256i (&v)[8], std::byte* to) noexcept {
  transpose_words(v);
  QUERN_UNROLL
  for (std::size_t j = 0; j < 8; ++j) {
    const PairedWords twice(v[j], v[j]);
    if constexpr (Group == 32) {
      store(to + 32 * j, twice.low);
    } else {
      store(to + 64 * j, twice.low);
      store(to + 64 * j + 32, twice.high);
    }
  }
}

/// The same for minimums, those of two neighbouring groups side by side.
template <std::size_t Group>
QUERN_AVX2_INLINE void store_minimums(__m256i (&v)[8], std::byte* to) noexcept {
  transpose_words(v);
  if constexpr (Group == 32) {
    QUERN_UNROLL
    for (std::size_t j = 0; j < 4; ++j)
      store(to + 32 * j, PairedWords(v[2 * j], v[2 * j + 1]).low);
  } else {
    QUERN_UNROLL
    for (std::size_t j = 0; j < 8; ++j)
      store(to + 32 * j, PairedWords(v[j], _mm256_permute2x128_si256(v[j], v[j], 0x11)).low);
  }
}

/// Unpacks codes 32 * J and on.
template <BlockFormat F, int J, bool Full>
QUERN_AVX2_INLINE void unpack_codes(const EightBlocks<Full>& w, const __m256i* scales,
                                    std::byte* to) noexcept {
  using Tile = TileBlock<F>;
  __m256i v[8];
  QUERN_UNROLL
  for (std::size_t i = 0; i < 8; ++i)
    v[i] = Ints<F>::template codes<J>(w.row(i));
  if constexpr (Tile::narrow) {
    transpose8(v);
    QUERN_UNROLL
    for (std::size_t i = 0; i < 8; ++i)
      store(to + 32 * (8 * J + i), v[i]);
  } else {
    __m256i low[8], high[8];
    QUERN_UNROLL
    for (std::size_t i = 0; i < 8; ++i) {
      low[i] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v[i]));
      high[i] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v[i], 1));
      if constexpr (Tile::layout.group != 0) {
        const __m256i scale = scale_of<J>(scales[i]);
        low[i] = _mm256_mullo_epi16(low[i], _mm256_permute2x128_si256(scale, scale, 0x00));
        high[i] = _mm256_mullo_epi16(high[i], _mm256_permute2x128_si256(scale, scale, 0x11));
      }
    }
    transpose8(low);
    transpose8(high);
    QUERN_UNROLL
    for (std::size_t i = 0; i < 8; ++i) {
      store(to + 32 * (16 * J + i), low[i]);
      store(to + 32 * (16 * J + 8 + i), high[i]);
    }
  }
  if constexpr (J + 1 < static_cast<int>(F::block_size / 32)) unpack_codes<F, J + 1>(w, scales, to);
}

/// Unpacks one block of eight rows.
template <BlockFormat F, bool Full>
QUERN_AVX2 void unpack_block(EightBlocks<Full> w, std::byte* to) noexcept {
  using Tile = TileBlock<F>;
  using Parts = IntegerParts<F>;
  __m256i scales[8] = {}; // g++ without optimization warns where a format has none
  if constexpr (Tile::layout.group != 0)
    for (std::size_t i = 0; i < 8; ++i)
      scales[i] = Ints<F>::scales(w.row(i));
  unpack_codes<F, 0>(w, scales, to + Tile::codes);
  if constexpr (Tile::grouped) {
    store_scales<Tile::layout.group>(scales, to + Tile::scales);
    if constexpr (Parts::minimum) {
      __m256i minimums[8];
      for (std::size_t i = 0; i < 8; ++i)
        minimums[i] = Ints<F>::minimums(w.row(i));
      store_minimums<Tile::layout.group>(minimums, to + Tile::minimums);
    }
  }
  for (std::size_t u = 0; u < Tile::units; ++u)
    store(to + Tile::d + 32 * u, _mm256_castps_si256(factors_of<F>(w, u)));
  if constexpr (Parts::minimum) {
    // Groups have their minimum taken away, single blocks have it added.
    __m256 m = halves_at(w, Parts::m_at);
    if constexpr (Tile::grouped) m = _mm256_sub_ps(_mm256_set1_ps(-0.0f), m);
    store(to + Tile::m, _mm256_castps_si256(m));
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
