// floor: 5.2
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <type_traits>

#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/formats/q5_k.hpp>
#include <quern/formats/q8_0.hpp>
#include <quern/formats/tq1_0.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/codes_k.hpp>
#include <quern/kernels/avx2/float_unpack.hpp>

/// @file
/// Blocks as floats in 512-bit registers. The integers are those of the AVX2 kernels and so is the
/// arithmetic: a product of an integer with a scale is exact or rounded once.

namespace quern::kernels::avx512 {
inline namespace QUERN_BUILD_TAG {

using avx2::Ints;

// Masks of all lanes. Unmasked intrinsics of this kind pass an undefined register along, of which
// some compilers then warn; the instructions are the same.
inline constexpr __mmask8 all8 = 0xFF;
inline constexpr __mmask16 all = 0xFFFF;
inline constexpr __mmask32 all32 = 0xFFFFFFFF;

QUERN_AVX512_INLINE __m512 as_floats(__m512i integers) noexcept {
  return _mm512_maskz_cvtepi32_ps(all, integers);
}
/// Sixteen bytes in memory, as 32-bit lanes.
QUERN_AVX512_INLINE __m512i sixteen_codes(const std::byte* at) noexcept {
  return _mm512_maskz_cvtepu8_epi32(all, avx2::load_half(at));
}
/// The integers from, from + 1, ... from + 15.
QUERN_AVX512_INLINE __m512 sixteen_from(int from) noexcept {
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return as_floats(_mm512_add_epi32(count, _mm512_set1_epi32(from)));
}
/// The binary16 number at any address, in all lanes.
QUERN_AVX512_INLINE __m512 half_everywhere(const std::byte* at) noexcept {
  return _mm512_maskz_cvtph_ps(
      all, _mm256_set1_epi16(static_cast<short>(quern::detail::load_le<std::uint16_t>(at))));
}

/// One block as floats: `decode(at, to)`. This one takes the integers of avx2::Ints.
template <BlockFormat F>
struct WideFloats {
  using Narrow = avx2::Floats<F>;
  using Parts = IntegerParts<F>;

  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    const Head head(at);
    decode_part<0>(at, head, to);
  }

private:
  static constexpr avx2::IntLayout layout = Ints<F>::layout;
  static constexpr bool grouped = Narrow::grouped;

  struct Grouped {
    alignas(64) float scale[16];
    alignas(64) float minimum[Parts::minimum ? 16 : 1];

    QUERN_AVX512_INLINE explicit Grouped(const std::byte* at) noexcept {
      times(Ints<F>::scales(at), Narrow::factor(at, 0), scale);
      if constexpr (Parts::minimum)
        times(Ints<F>::minimums(at), Narrow::half_at(at, Parts::m_at), minimum);
    }
    QUERN_AVX512_INLINE static void times(__m256i words, float factor, float* to) noexcept {
      _mm512_store_ps(to, _mm512_mul_ps(as_floats(_mm512_maskz_cvtepi16_epi32(all, words)),
                                        _mm512_set1_ps(factor)));
    }
  };
  /// Here bytes become floats as they are, so scales stay as they are too.
  struct Single : Narrow::Head {
    QUERN_AVX512_INLINE explicit Single(const std::byte* at) noexcept : Narrow::Head(at, 1.0f) {}
  };
  using Head = std::conditional_t<grouped, Grouped, Single>;

  template <int J>
  QUERN_AVX512_INLINE static void decode_part(const std::byte* at, const Head& head,
                                              float* to) noexcept {
    const __m256i n = Narrow::integers(Ints<F>::template codes<J>(at));
    constexpr int low = grouped || Narrow::by_half ? J : 0;
    constexpr int high = grouped ? 8 + J : Narrow::by_half ? Narrow::parts + J : 0;
    _mm512_storeu_ps(to + 32 * J, value<low>(head, _mm256_castsi256_si128(n)));
    _mm512_storeu_ps(to + 32 * J + 16, value<high>(head, _mm256_extracti128_si256(n, 1)));
    if constexpr (J + 1 < Narrow::parts) decode_part<J + 1>(at, head, to);
  }
  template <int Scale>
  QUERN_AVX512_INLINE static __m512 value(const Head& head, __m128i sixteen) noexcept {
    const __m512 n = as_floats(_mm512_maskz_cvtepi8_epi32(all, sixteen));
    const __m512 d = _mm512_set1_ps(head.scale[Scale]);
    if constexpr (!Parts::minimum)
      return _mm512_mul_ps(n, d);
    else if constexpr (grouped)
      return _mm512_fmsub_ps(n, d, _mm512_set1_ps(head.minimum[Scale]));
    else
      return _mm512_fmadd_ps(n, d, _mm512_set1_ps(head.minimum[0]));
  }
};

/// Sixteen single values.
template <>
struct WideFloats<F32> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    _mm512_storeu_si512(to, _mm512_loadu_si512(at));
  }
};
template <>
struct WideFloats<F16> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(all, avx2::load(at)));
  }
};
template <>
struct WideFloats<BF16> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    _mm512_storeu_si512(
        to, _mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, avx2::load(at)), 16));
  }
};

template <>
struct WideFloats<Q8_0> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    const __m512 d = half_everywhere(at);
    QUERN_UNROLL
    for (int i = 0; i < 32; i += 16)
      _mm512_storeu_ps(
          to + i, _mm512_mul_ps(
                      as_floats(_mm512_maskz_cvtepi8_epi32(all, avx2::load_half(at + 2 + i))), d));
  }
};

/// The scales and minimums of Q4_K and Q5_K: those of group g at g and 8 + g.
struct SixBitHead {
  alignas(64) float fields[16];

  QUERN_AVX512_INLINE explicit SixBitHead(const std::byte* at) noexcept {
    const __m128i halves = _mm_cvtsi32_si128(static_cast<int>(avx2::load_word(at)));
    const __m512 factors = _mm512_maskz_permutexvar_ps(
        all, _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
        _mm512_castps128_ps512(_mm_cvtph_ps(halves)));
    const __m512 integers = as_floats(_mm512_maskz_cvtepu8_epi32(all, avx2::six_bit_bytes(at + 4)));
    _mm512_store_ps(fields, _mm512_mul_ps(integers, factors));
  }
  /// What 16 successive codes, the first being `from`, mean in group g.
  QUERN_AVX512_INLINE __m512 levels(int g, int from) const noexcept {
    return _mm512_fmsub_ps(sixteen_from(from), _mm512_set1_ps(fields[g]),
                           _mm512_set1_ps(fields[8 + g]));
  }
};

/// Codes are looked up: the table of a group costs less than to compute its 32 values, and a lookup
/// ignores the bits above a code.
template <>
struct WideFloats<Q4_K> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    const SixBitHead head(at);
    QUERN_UNROLL
    for (int k = 0; k < 4; ++k) {
      const __m512 first = head.levels(2 * k, 0);
      const __m512 second = head.levels(2 * k + 1, 0);
      QUERN_UNROLL
      for (int i = 0; i < 32; i += 16) {
        const __m512i codes = sixteen_codes(at + 16 + 32 * k + i);
        _mm512_storeu_ps(to + 64 * k + i, _mm512_maskz_permutexvar_ps(all, codes, first));
        _mm512_storeu_ps(
            to + 64 * k + 32 + i,
            _mm512_maskz_permutexvar_ps(all, _mm512_maskz_srli_epi32(all, codes, 4), second));
      }
    }
  }
};

template <>
struct WideFloats<Q5_K> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    const SixBitHead head(at);
    const __m512i fifth[2] = {sixteen_codes(at + 16), sixteen_codes(at + 32)};
    decode_pair<0>(at, head, fifth, to);
  }

private:
  /// Groups 2 * K and 2 * K + 1.
  template <int K>
  QUERN_AVX512_INLINE static void decode_pair(const std::byte* at, const SixBitHead& head,
                                              const __m512i (&fifth)[2], float* to) noexcept {
    const __m512 low[2] = {head.levels(2 * K, 0), head.levels(2 * K + 1, 0)};
    const __m512 high[2] = {head.levels(2 * K, 16), head.levels(2 * K + 1, 16)};
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const __m512i codes = sixteen_codes(at + 48 + 32 * K + 16 * i);
      const __m512i first = with_fifth<2 * K>(codes, fifth[i]);
      const __m512i second =
          with_fifth<2 * K + 1>(_mm512_maskz_srli_epi32(all, codes, 4), fifth[i]);
      _mm512_storeu_ps(to + 64 * K + 16 * i, _mm512_permutex2var_ps(low[0], first, high[0]));
      _mm512_storeu_ps(to + 64 * K + 32 + 16 * i, _mm512_permutex2var_ps(low[1], second, high[1]));
    }
    if constexpr (K < 3) decode_pair<K + 1>(at, head, fifth, to);
  }
  /// Bit J of `bits` in the place of bit 4 of the codes; bits above are any.
  template <int J>
  QUERN_AVX512_INLINE static __m512i with_fifth(__m512i codes, __m512i bits) noexcept {
    const __m512i moved = J < 4 ? _mm512_maskz_slli_epi32(all, bits, (4 - J) & 31)
                                : _mm512_maskz_srli_epi32(all, bits, (J - 4) & 31);
    // Where the mask has a bit, that of `moved`, else that of `codes`.
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(16), moved, codes, 0xCA);
  }
};

/// Digits of base-3 fractions in words of 16 bits: times 3, the digit is above the lower byte.
template <>
struct WideFloats<TQ1_0> {
  QUERN_AVX512_INLINE static void decode(const std::byte* at, float* to) noexcept {
    const __m512 levels = _mm512_mul_ps(sixteen_from(-1), half_everywhere(at + 52));
    __m512i many = _mm512_maskz_cvtepu8_epi16(all32, avx2::load(at));
    QUERN_UNROLL
    for (int n = 0; n < 5; ++n, to += 32) {
      many = times3(many);
      const __m512i digits = _mm512_maskz_srli_epi16(all32, many, 8);
      put(_mm512_maskz_extracti64x4_epi64(all8, digits, 0), levels, to);
      put(_mm512_maskz_extracti64x4_epi64(all8, digits, 1), levels, to + 16);
    }
    __m512i some = sixteen_codes(at + 32);
    QUERN_UNROLL
    for (int n = 0; n < 5; ++n, to += 16) {
      some = times3(some);
      _mm512_storeu_ps(
          to, _mm512_maskz_permutexvar_ps(all, _mm512_maskz_srli_epi32(all, some, 8), levels));
    }
    // Four bytes in each quarter, each quarter one digit further.
    const __m512i few =
        _mm512_maskz_cvtepu8_epi32(all, _mm_set1_epi32(static_cast<int>(avx2::load_word(at + 48))));
    const __m512i powers = _mm512_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27);
    const __m512i last = times3(_mm512_mullo_epi16(few, powers));
    _mm512_storeu_ps(
        to, _mm512_maskz_permutexvar_ps(all, _mm512_maskz_srli_epi32(all, last, 8), levels));
  }

private:
  /// Three times the lower byte of each word.
  QUERN_AVX512_INLINE static __m512i times3(__m512i words) noexcept {
    const __m512i fraction = _mm512_and_si512(words, _mm512_set1_epi16(0xFF));
    return _mm512_add_epi16(_mm512_add_epi16(fraction, fraction), fraction);
  }
  QUERN_AVX512_INLINE static void put(__m256i digits, __m512 levels, float* to) noexcept {
    _mm512_storeu_ps(
        to, _mm512_maskz_permutexvar_ps(all, _mm512_maskz_cvtepu16_epi32(all, digits), levels));
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx512

#endif
