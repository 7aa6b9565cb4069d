// floor: 4.4
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <immintrin.h>

#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/kernels/avx2/float_unpack.hpp>
#include <quern/kernels/avx2/ops.hpp>

/// @file
/// How the formats become floats; see Floats.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

template <>
struct Floats<F32> {
  static constexpr std::size_t width = 8;
  static constexpr std::size_t bytes = 32;

  template <class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, Sink& sink) noexcept {
    sink.put(0, _mm256_castsi256_ps(load(at)));
  }
};

template <>
struct Floats<F16> {
  static constexpr std::size_t width = 8;
  static constexpr std::size_t bytes = 16;

  template <class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, Sink& sink) noexcept {
    sink.put(0, _mm256_cvtph_ps(load_half(at)));
  }
};

template <>
struct Floats<BF16> {
  static constexpr std::size_t width = 8;
  static constexpr std::size_t bytes = 16;

  template <class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, Sink& sink) noexcept {
    const __m256i words = _mm256_cvtepu16_epi32(load_half(at));
    sink.put(0, _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
