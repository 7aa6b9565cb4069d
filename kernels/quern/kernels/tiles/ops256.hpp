// floor: 4.25
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include <quern/kernels/avx2/ops.hpp>

/// @file
/// What the text under tiles/ asks of registers of 256 bits; see ops512.hpp for what each does.

namespace quern::kernels::lanes256 {
inline namespace QUERN_BUILD_TAG {

using Integers = __m256i;
using Floats = __m256;
inline constexpr std::size_t lanes = 8;
inline constexpr std::size_t lane_bytes = 32;
inline constexpr std::size_t columns_of_cell = 2;
inline constexpr std::size_t rows_of_cell = 4;

QUERN_AVX2_INLINE Integers load(const void* at) noexcept {
  return avx2::load(at);
}
QUERN_AVX2_INLINE void store(void* at, Integers v) noexcept {
  _mm256_store_si256(static_cast<__m256i*>(at), v);
}
QUERN_AVX2_INLINE Floats load_floats(const void* at) noexcept {
  return _mm256_load_ps(static_cast<const float*>(at));
}
QUERN_AVX2_INLINE void store_floats(void* at, Floats v) noexcept {
  _mm256_store_ps(static_cast<float*>(at), v);
}
QUERN_AVX2_INLINE Floats load_some(const float* at, std::size_t count) noexcept {
  return avx2::load_floats(at, count);
}
QUERN_AVX2_INLINE void store_some(float* at, Floats v, std::size_t count) noexcept {
  avx2::store_floats(at, v, count);
}

QUERN_AVX2_INLINE Integers zero() noexcept {
  return _mm256_setzero_si256();
}
QUERN_AVX2_INLINE Integers every8(int v) noexcept {
  return _mm256_set1_epi8(static_cast<char>(v));
}
QUERN_AVX2_INLINE Integers every16(int v) noexcept {
  return _mm256_set1_epi16(static_cast<short>(v));
}
QUERN_AVX2_INLINE Integers every32(int v) noexcept {
  return _mm256_set1_epi32(v);
}
QUERN_AVX2_INLINE Integers broadcast(const void* at) noexcept {
  return avx2::broadcast4(at);
}
QUERN_AVX2_INLINE Floats every(float v) noexcept {
  return _mm256_set1_ps(v);
}
QUERN_AVX2_INLINE Integers table(const void* at) noexcept {
  return _mm256_broadcastsi128_si256(avx2::load_half(at));
}

template <int N>
QUERN_AVX2_INLINE Integers up(Integers v) noexcept {
  return N == 0 ? v : _mm256_slli_epi32(v, N);
}
template <int N>
QUERN_AVX2_INLINE Integers down(Integers v) noexcept {
  return N == 0 ? v : _mm256_srli_epi32(v, N);
}
template <int N>
QUERN_AVX2_INLINE Integers down_signed(Integers v) noexcept {
  return _mm256_srai_epi32(v, N);
}
QUERN_AVX2_INLINE Integers add8(Integers a, Integers b) noexcept {
  return _mm256_add_epi8(a, b);
}
QUERN_AVX2_INLINE Integers sub8(Integers a, Integers b) noexcept {
  return _mm256_sub_epi8(a, b);
}
QUERN_AVX2_INLINE Integers add32(Integers a, Integers b) noexcept {
  return _mm256_add_epi32(a, b);
}
QUERN_AVX2_INLINE Integers sub32(Integers a, Integers b) noexcept {
  return _mm256_sub_epi32(a, b);
}
QUERN_AVX2_INLINE Integers mul32(Integers a, Integers b) noexcept {
  return _mm256_mullo_epi32(a, b);
}
QUERN_AVX2_INLINE Integers min32(Integers a, Integers b) noexcept {
  return _mm256_min_epi32(a, b);
}
QUERN_AVX2_INLINE Integers max32(Integers a, Integers b) noexcept {
  return _mm256_max_epi32(a, b);
}
QUERN_AVX2_INLINE Integers look_up(Integers bytes, Integers index) noexcept {
  return _mm256_shuffle_epi8(bytes, index);
}
QUERN_AVX2_INLINE Integers where(Integers bytes, Integers bits, int value) noexcept {
  const Integers none = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), zero());
  return _mm256_andnot_si256(none, every8(value));
}
QUERN_AVX2_INLINE Integers reached(Integers v, int a, int b) noexcept {
  const Integers first = _mm256_cmpeq_epi8(_mm256_max_epu8(v, every8(a)), v);
  const Integers second = _mm256_cmpeq_epi8(_mm256_max_epu8(v, every8(b)), v);
  return _mm256_sub_epi8(zero(), _mm256_add_epi8(first, second));
}
QUERN_AVX2_INLINE Integers widen(const void* at) noexcept {
  return _mm256_cvtepi16_epi32(avx2::load_half(at));
}
QUERN_AVX2_INLINE __m128i lower_words(Integers v) noexcept {
  const Integers words = _mm256_and_si256(v, every32(0xFFFF));
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08));
}
QUERN_AVX2_INLINE void store_words(void* at, Integers v) noexcept {
  _mm_storeu_si128(static_cast<__m128i*>(at), lower_words(v));
}
QUERN_AVX2_INLINE Integers add_pairs(Integers words) noexcept {
  return _mm256_madd_epi16(words, every16(1));
}

QUERN_AVX2_INLINE Floats to_floats(Integers v) noexcept {
  return _mm256_cvtepi32_ps(v);
}
QUERN_AVX2_INLINE Floats as_floats(Integers v) noexcept {
  return _mm256_castsi256_ps(v);
}
QUERN_AVX2_INLINE Floats mul(Floats a, Floats b) noexcept {
  return _mm256_mul_ps(a, b);
}
QUERN_AVX2_INLINE Floats fma(Floats a, Floats b, Floats c) noexcept {
  return _mm256_fmadd_ps(a, b, c);
}
QUERN_AVX2_INLINE Floats fnma(Floats a, Floats b, Floats c) noexcept {
  return _mm256_fnmadd_ps(a, b, c);
}
QUERN_AVX2_INLINE Floats halves(Integers v) noexcept {
  return _mm256_cvtph_ps(lower_words(v));
}

QUERN_AVX2_INLINE void transpose(const std::byte* at, std::size_t step,
                                 Integers (&out)[4]) noexcept {
  Integers row[4];
  QUERN_UNROLL
  for (std::size_t k = 0; k < 4; ++k)
    row[k] = _mm256_inserti128_si256(_mm256_castsi128_si256(avx2::load_half(at + k * step)),
                                     avx2::load_half(at + (k + 4) * step), 1);
  const Integers low01 = _mm256_unpacklo_epi32(row[0], row[1]);
  const Integers high01 = _mm256_unpackhi_epi32(row[0], row[1]);
  const Integers low23 = _mm256_unpacklo_epi32(row[2], row[3]);
  const Integers high23 = _mm256_unpackhi_epi32(row[2], row[3]);
  out[0] = _mm256_unpacklo_epi64(low01, low23);
  out[1] = _mm256_unpackhi_epi64(low01, low23);
  out[2] = _mm256_unpacklo_epi64(high01, high23);
  out[3] = _mm256_unpackhi_epi64(high01, high23);
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::lanes256

#endif
