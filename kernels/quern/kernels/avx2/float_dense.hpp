// floor: 4.4
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <immintrin.h>

#include <quern/kernels/avx2/float_driver.hpp>
#include <quern/kernels/avx2/float_unpack.hpp>
#include <quern/kernels/avx2/ops.hpp>

/// @file
/// Formats of single values in InputBlockMajor: eight neighbours in memory are eight outputs at one
/// input. The sums are those of float_driver.hpp.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// Eight outputs at one input.
template <class U>
QUERN_AVX2_INLINE __m256 eight_outputs(const std::byte* at) noexcept {
  return U::template eight<0, 0>(U::template part<0>(at), typename U::Head(at));
}

/// The same; those from `count` on are zero.
template <class U>
QUERN_AVX2_INLINE __m256 take_outputs(const std::byte* at, std::size_t count) noexcept {
  if (count >= 8) return eight_outputs<U>(at);
  Padded<U> last;
  last.take_weights(at, count);
  return eight_outputs<U>(last.weights);
}

/// decode_tile() for this layout.
template <class U>
QUERN_AVX2 void decode_dense_tile(const Grid& w, std::size_t o, std::size_t k, std::size_t end,
                                  float* tile) noexcept {
  for (; k < end; k += 8, tile += 8) {
    __m256i v[8];
    for (std::size_t i = 0; i < 8; ++i)
      v[i] = k + i < end ? _mm256_castps_si256(take_outputs<U>(w.at(o, k + i), w.rows - o))
                         : _mm256_setzero_si256();
    transpose8(v);
    for (std::size_t i = 0; i < 8; ++i)
      store(tile + i * float_piece, v[i]);
  }
}

/// One row of x. A register holds one lane of eight outputs, so the lanes need no transposing.
template <class U>
QUERN_AVX2 void float_dense_row(const Grid& w, std::size_t in, const float* x, float* y) noexcept {
  constexpr std::size_t strip = 256;
  alignas(32) float lanes[8][strip];
  for (std::size_t o = 0; o < w.rows; o += strip) {
    const std::size_t count = std::min(strip, w.rows - o);
    for (std::size_t k = 0; k < in; k += float_piece) {
      std::memset(lanes, 0, sizeof lanes);
      const std::size_t end = std::min(in, k + float_piece);
      for (std::size_t at_k = k; at_k < end; ++at_k) {
        const std::byte* at = w.at(o, at_k);
        float* lane = lanes[at_k % 8];
        const __m256 value = _mm256_broadcast_ss(x + at_k);
        for (std::size_t i = 0; i < count; i += 8, at += U::bytes)
          _mm256_store_ps(lane + i, _mm256_fmadd_ps(take_outputs<U>(at, count - i), value,
                                                    _mm256_load_ps(lane + i)));
      }
      for (std::size_t i = 0; i < count; i += 8) {
        __m256 l[8];
        QUERN_UNROLL
        for (int j = 0; j < 8; ++j)
          l[j] = _mm256_load_ps(lanes[j] + i);
        const __m256 low = _mm256_add_ps(_mm256_add_ps(l[0], l[2]), _mm256_add_ps(l[1], l[3]));
        const __m256 high = _mm256_add_ps(_mm256_add_ps(l[4], l[6]), _mm256_add_ps(l[5], l[7]));
        const __m256 sums = _mm256_add_ps(low, high);
        put_sums(y + o + i, _mm256_castps256_ps128(sums), std::min<std::size_t>(4, count - i),
                 k == 0);
        if (count - i > 4)
          put_sums(y + o + i + 4, _mm256_extractf128_ps(sums, 1),
                   std::min<std::size_t>(4, count - i - 4), k == 0);
      }
    }
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
