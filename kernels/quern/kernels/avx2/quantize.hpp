// floor: 4.2
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <bit>
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include <quern/activation.hpp>
#include <quern/kernels/avx2/ops.hpp>

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// The largest of eight signed numbers.
QUERN_AVX2_INLINE std::int32_t largest_lane(__m256i v) noexcept {
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1));
  return _mm_cvtsi128_si32(most);
}

/// Eight codes as 32-bit numbers.
QUERN_AVX2_INLINE __m256i eight_codes(const float* x, __m256 lift, __m256 inverse) noexcept {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x), lift), inverse));
}

/// Writes the sums of 32 codes, as quern::detail::sum_int8_row does.
QUERN_AVX2_INLINE void store_sums(__m256i codes, std::int16_t* half_sums,
                                  std::int16_t* sums) noexcept {
  __m256i halves = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  halves = _mm256_add_epi16(halves, _mm256_shuffle_epi32(halves, 0x4E));
  halves = _mm256_add_epi16(halves, _mm256_shuffle_epi32(halves, 0xB1));
  const __m256i whole = _mm256_madd_epi16(halves, _mm256_set1_epi16(1));
  const std::int32_t pair[2] = {_mm256_extract_epi32(halves, 0), _mm256_extract_epi32(halves, 4)};
  std::memcpy(half_sums, pair, sizeof pair);
  sums[0] = static_cast<std::int16_t>(_mm256_extract_epi32(whole, 0));
  sums[1] = static_cast<std::int16_t>(_mm256_extract_epi32(whole, 4));
}

/// quern::detail::quantize_int8_row(), the same bytes.
template <std::size_t Width>
QUERN_AVX2 void quantize_row(const float* x, std::size_t cols, std::byte* row,
                             const quern::detail::Int8RowLayout& layout) noexcept {
  auto* half_sums = reinterpret_cast<std::int16_t*>(row + layout.half_sums);
  auto* sums = reinterpret_cast<std::int16_t*>(row + layout.sums);
  auto* scales = reinterpret_cast<float*>(row + layout.scales);
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (std::size_t at = 0; at < cols; at += Width) {
    // As integers, magnitudes keep their order, and a NaN is above everything.
    __m256i most = _mm256_setzero_si256();
    for (std::size_t i = at; i < at + Width; i += 8)
      most = _mm256_max_epi32(most, _mm256_and_si256(load(x + i), magnitude));
    const quern::detail::Int8Scale scale(std::bit_cast<float>(largest_lane(most)));
    scales[at / Width] = scale.scale;
    const __m256 lift = _mm256_set1_ps(scale.lift);
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    for (std::size_t i = at; i < at + Width; i += 32) {
      __m256i codes = _mm256_setzero_si256();
      if (scale.inverse != 0.0f) {
        const __m256i low = _mm256_packs_epi32(eight_codes(x + i, lift, inverse),
                                               eight_codes(x + i + 8, lift, inverse));
        const __m256i high = _mm256_packs_epi32(eight_codes(x + i + 16, lift, inverse),
                                                eight_codes(x + i + 24, lift, inverse));
        codes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
      }
      store(row + i, codes);
      store_sums(codes, half_sums + i / 8, sums + i / 16);
    }
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
