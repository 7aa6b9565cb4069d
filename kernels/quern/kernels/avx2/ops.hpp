// floor: 1
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

/// @file
/// Steps on 256-bit registers that several AVX2 kernels share.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// Where the blocks of a weight lie: bytes from a block to the one below it (next row) and to the
/// one beside it (next block of the row). Kernels know an order only by these.
struct Grid {
  const std::byte* data;
  std::size_t rows;   ///< outputs
  std::size_t blocks; ///< blocks in a row
  std::size_t row_step;
  std::size_t block_step;

  [[nodiscard]] const std::byte* at(std::size_t row, std::size_t block) const noexcept {
    return data + row * row_step + block * block_step;
  }
};

QUERN_AVX2_INLINE __m256i load(const void* at) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}
QUERN_AVX2_INLINE __m128i load_half(const void* at) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(at));
}
QUERN_AVX2_INLINE void store(void* at, __m256i value) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(at), value);
}

/// The lanes of four accumulators, each summed as ((l0 + l2) + (l1 + l3)) + ((l4 + l6) + (l5 +
/// l7)).
QUERN_AVX2_INLINE __m128 join4(__m256 a, __m256 b, __m256 c, __m256 d) noexcept {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256d ab_pairs = _mm256_castps_pd(ab);
  const __m256d cd_pairs = _mm256_castps_pd(cd);
  const __m256 lanes = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab_pairs, cd_pairs)),
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(ab_pairs, cd_pairs)));
  return _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
}

/// Ends an expression: integer sums must be added up in the order written, or the compiler computes
/// all summands first and runs out of registers.
QUERN_AVX2_INLINE void pin(__m256i& value) noexcept {
  __asm__("" : "+x"(value));
}

/// Four bytes at any address, in every 32-bit lane.
QUERN_AVX2_INLINE __m256i broadcast4(const void* at) noexcept {
  std::int32_t value;
  std::memcpy(&value, at, sizeof value);
  return _mm256_set1_epi32(value);
}

/// Sums of lanes in words of 16 bits (`Words`) or of 32 bits.
template <bool Words>
QUERN_AVX2_INLINE __m256i add(__m256i a, __m256i b) noexcept {
  return Words ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
}

/// For each of eight vectors the sum of its four 32-bit lanes in each half: lanes 0..3 of `low` and
/// `high` are the lower halves of v[0..3] and v[4..7], lanes 4..7 the upper halves.
struct HalfSums {
  __m256i low;
  __m256i high;
};
template <bool Words>
QUERN_AVX2_INLINE HalfSums sum_halves(const __m256i (&v)[8]) noexcept {
  __m256i pair[4];
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i)
    pair[i] = add<Words>(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                         _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  return {
      add<Words>(_mm256_unpacklo_epi64(pair[0], pair[1]), _mm256_unpackhi_epi64(pair[0], pair[1])),
      add<Words>(_mm256_unpacklo_epi64(pair[2], pair[3]), _mm256_unpackhi_epi64(pair[2], pair[3]))};
}

/// For each of eight vectors the sum of all its 32-bit lanes.
template <bool Words>
QUERN_AVX2_INLINE __m256i sum_lanes(const __m256i (&v)[8]) noexcept {
  const HalfSums halves = sum_halves<Words>(v);
  return add<Words>(_mm256_permute2x128_si256(halves.low, halves.high, 0x20),
                    _mm256_permute2x128_si256(halves.low, halves.high, 0x31));
}

/// Asks for `bytes` bytes from `at` on. Addresses past the end of a weight do no harm.
QUERN_AVX2_INLINE void prefetch(const std::byte* at, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(at + i), _MM_HINT_T0);
}

/// The first `count` of eight lanes, for masked loads and stores.
QUERN_AVX2_INLINE __m256i first_lanes(std::size_t count) noexcept {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}
QUERN_AVX2_INLINE __m256 load_floats(const float* at, std::size_t count) noexcept {
  return count >= 8 ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first_lanes(count));
}
QUERN_AVX2_INLINE void store_floats(float* at, __m256 values, std::size_t count) noexcept {
  if (count >= 8)
    _mm256_storeu_ps(at, values);
  else
    _mm256_maskstore_ps(at, first_lanes(count), values);
}

/// Transposes an 8 x 8 matrix of 32-bit lanes in place.
QUERN_AVX2_INLINE void transpose8(__m256i (&v)[8]) noexcept {
  __m256i pair[8];
  QUERN_UNROLL
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    pair[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  __m256i quad[8];
  QUERN_UNROLL
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_unpacklo_epi64(pair[i], pair[i + 2]);
    quad[i + 1] = _mm256_unpackhi_epi64(pair[i], pair[i + 2]);
    quad[i + 2] = _mm256_unpacklo_epi64(pair[i + 1], pair[i + 3]);
    quad[i + 3] = _mm256_unpackhi_epi64(pair[i + 1], pair[i + 3]);
  }
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x31);
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
