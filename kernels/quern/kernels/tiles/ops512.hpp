// floor: 4.25
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include <quern/kernels/avx2/ops.hpp>

/// @file
/// What the text under tiles/ asks of registers of 512 bits. Intrinsics with a mask of all ones
/// instead of none: the latter pass an undefined register along, of which compilers warn.

namespace quern::kernels::lanes512 {
inline namespace QUERN_BUILD_TAG {

using Integers = __m512i;
using Floats = __m512;
inline constexpr std::size_t lanes = 16;
inline constexpr std::size_t lane_bytes = 64;
/// Registers of outputs and rows of activations that a cell holds sums of.
inline constexpr std::size_t columns_of_cell = 4;
inline constexpr std::size_t rows_of_cell = 4;
inline constexpr __mmask16 all = 0xFFFF;

QUERN_AVX512_INLINE Integers load(const void* at) noexcept {
  return _mm512_loadu_si512(at);
}
QUERN_AVX512_INLINE void store(void* at, Integers v) noexcept {
  _mm512_store_si512(at, v);
}
QUERN_AVX512_INLINE Floats load_floats(const void* at) noexcept {
  return _mm512_load_ps(at);
}
QUERN_AVX512_INLINE void store_floats(void* at, Floats v) noexcept {
  _mm512_store_ps(at, v);
}
/// The first `count` lanes from or to any address; the others are zero, or stay.
QUERN_AVX512_INLINE Floats load_some(const float* at, std::size_t count) noexcept {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), at);
}
QUERN_AVX512_INLINE void store_some(float* at, Floats v, std::size_t count) noexcept {
  _mm512_mask_storeu_ps(at, static_cast<__mmask16>((1u << count) - 1u), v);
}

QUERN_AVX512_INLINE Integers zero() noexcept {
  return _mm512_setzero_si512();
}
QUERN_AVX512_INLINE Integers every8(int v) noexcept {
  return _mm512_set1_epi8(static_cast<char>(v));
}
QUERN_AVX512_INLINE Integers every16(int v) noexcept {
  return _mm512_set1_epi16(static_cast<short>(v));
}
QUERN_AVX512_INLINE Integers every32(int v) noexcept {
  return _mm512_set1_epi32(v);
}
/// Four bytes at any address, in every lane.
QUERN_AVX512_INLINE Integers broadcast(const void* at) noexcept {
  std::int32_t value;
  std::memcpy(&value, at, sizeof value);
  return _mm512_set1_epi32(value);
}
QUERN_AVX512_INLINE Floats every(float v) noexcept {
  return _mm512_set1_ps(v);
}
/// A table of 16 bytes, for look_up().
QUERN_AVX512_INLINE Integers table(const void* at) noexcept {
  return _mm512_maskz_broadcast_i32x4(all, avx2::load_half(at));
}

template <int N>
QUERN_AVX512_INLINE Integers up(Integers v) noexcept {
  return N == 0 ? v : _mm512_maskz_slli_epi32(all, v, N);
}
template <int N>
QUERN_AVX512_INLINE Integers down(Integers v) noexcept {
  return N == 0 ? v : _mm512_maskz_srli_epi32(all, v, N);
}
/// With the sign.
template <int N>
QUERN_AVX512_INLINE Integers down_signed(Integers v) noexcept {
  return _mm512_maskz_srai_epi32(all, v, N);
}
QUERN_AVX512_INLINE Integers add8(Integers a, Integers b) noexcept {
  return _mm512_add_epi8(a, b);
}
QUERN_AVX512_INLINE Integers sub8(Integers a, Integers b) noexcept {
  return _mm512_sub_epi8(a, b);
}
QUERN_AVX512_INLINE Integers add32(Integers a, Integers b) noexcept {
  return _mm512_add_epi32(a, b);
}
QUERN_AVX512_INLINE Integers sub32(Integers a, Integers b) noexcept {
  return _mm512_sub_epi32(a, b);
}
QUERN_AVX512_INLINE Integers mul32(Integers a, Integers b) noexcept {
  return _mm512_mullo_epi32(a, b);
}
QUERN_AVX512_INLINE Integers min32(Integers a, Integers b) noexcept {
  return _mm512_maskz_min_epi32(all, a, b);
}
QUERN_AVX512_INLINE Integers max32(Integers a, Integers b) noexcept {
  return _mm512_maskz_max_epi32(all, a, b);
}
/// Bytes of the table of each quarter by the lower four bits of `index`, whose bit 7 is clear.
QUERN_AVX512_INLINE Integers look_up(Integers bytes, Integers index) noexcept {
  return _mm512_shuffle_epi8(bytes, index);
}
/// `value` in the bytes that share a bit with `bits`, zero in the others.
QUERN_AVX512_INLINE Integers where(Integers bytes, Integers bits, int value) noexcept {
  return _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(bytes, bits), static_cast<char>(value));
}
/// How many of `a` and `b` each unsigned byte has reached, where a < b.
QUERN_AVX512_INLINE Integers reached(Integers v, int a, int b) noexcept {
  const Integers one = every8(1);
  const Integers first = _mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(v, every8(a)), one);
  return _mm512_mask_add_epi8(first, _mm512_cmpge_epu8_mask(v, every8(b)), first, one);
}
/// Sixteen or eight words as lanes, with their sign; and the lower words of lanes, to memory.
QUERN_AVX512_INLINE Integers widen(const void* at) noexcept {
  return _mm512_maskz_cvtepi16_epi32(all, avx2::load(at));
}
QUERN_AVX512_INLINE void store_words(void* at, Integers v) noexcept {
  avx2::store(at, _mm512_maskz_cvtepi32_epi16(all, v));
}
/// Sums of neighbouring words.
QUERN_AVX512_INLINE Integers add_pairs(Integers words) noexcept {
  return _mm512_madd_epi16(words, every16(1));
}

QUERN_AVX512_INLINE Floats to_floats(Integers v) noexcept {
  return _mm512_maskz_cvtepi32_ps(all, v);
}
QUERN_AVX512_INLINE Floats as_floats(Integers v) noexcept {
  return _mm512_castsi512_ps(v);
}
QUERN_AVX512_INLINE Floats mul(Floats a, Floats b) noexcept {
  return _mm512_mul_ps(a, b);
}
QUERN_AVX512_INLINE Floats fma(Floats a, Floats b, Floats c) noexcept {
  return _mm512_fmadd_ps(a, b, c);
}
/// c - a * b.
QUERN_AVX512_INLINE Floats fnma(Floats a, Floats b, Floats c) noexcept {
  return _mm512_fnmadd_ps(a, b, c);
}
/// The binary16 numbers in the lower halves of lanes.
QUERN_AVX512_INLINE Floats halves(Integers v) noexcept {
  return _mm512_maskz_cvtph_ps(all, _mm512_maskz_cvtepi32_epi16(all, v));
}

/// Sixteen bytes of each of 16 rows: out[k] has bytes 4 * k to 4 * k + 3 of row l in lane l.
QUERN_AVX512_INLINE void transpose(const std::byte* at, std::size_t step,
                                   Integers (&out)[4]) noexcept {
  Integers row[4];
  QUERN_UNROLL
  for (std::size_t k = 0; k < 4; ++k) {
    const std::byte* from = at + k * step;
    row[k] = _mm512_castsi128_si512(avx2::load_half(from));
    row[k] = _mm512_maskz_inserti32x4(all, row[k], avx2::load_half(from + 4 * step), 1);
    row[k] = _mm512_maskz_inserti32x4(all, row[k], avx2::load_half(from + 8 * step), 2);
    row[k] = _mm512_maskz_inserti32x4(all, row[k], avx2::load_half(from + 12 * step), 3);
  }
  const Integers low01 = _mm512_maskz_unpacklo_epi32(all, row[0], row[1]);
  const Integers high01 = _mm512_maskz_unpackhi_epi32(all, row[0], row[1]);
  const Integers low23 = _mm512_maskz_unpacklo_epi32(all, row[2], row[3]);
  const Integers high23 = _mm512_maskz_unpackhi_epi32(all, row[2], row[3]);
  out[0] = _mm512_maskz_unpacklo_epi64(0xFF, low01, low23);
  out[1] = _mm512_maskz_unpackhi_epi64(0xFF, low01, low23);
  out[2] = _mm512_maskz_unpacklo_epi64(0xFF, high01, high23);
  out[3] = _mm512_maskz_unpackhi_epi64(0xFF, high01, high23);
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::lanes512

#endif
