// floor: 4.2
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include <quern/formats.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/int8_parts.hpp>

/// @file
/// The integers of a block in registers, for formats of 32, 64 and 128 values and for ternary ones.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// What the integers of a format look like.
struct IntLayout {
  /// Codes are bytes 0..max_code; -1: they are signed bytes.
  int max_code;
  /// Integer n is `code - zero`, times the scale of its group.
  int zero;
  /// Values that share an integer scale (and minimum): 16 or 32; 0: there are no such scales.
  std::size_t group = 0;
  /// Signed codes include -128.
  bool full_range = false;
  /// The codes count downwards: n is `zero - code`.
  bool negated = false;
};

/// How a block of F becomes integers. `codes<J>(block)` gives values 32 * J to 32 * J + 31 in their
/// order. With groups, `scales(block)` gives 16 int16: the lower lane has those of the first half
/// (16 values) of each 32, the upper lane those of the second half; `minimums(block)` likewise, so
/// that k of IntegerParts is minus the minimum. Where the factors d are no binary16,
/// `factors(head, unit)` gives those of eight blocks from their first four bytes. Specialised for
/// every format with IntegerParts.
template <BlockFormat F>
struct Ints;

/// True for formats that the AVX2 kernels for int8 activations know.
template <class F>
concept HasInts = BlockFormat<F> && requires {
  Ints<F>::layout;
};

/// The codes of 16 bytes: low nibbles in the lower lane, high nibbles in the upper.
QUERN_AVX2_INLINE __m256i nibbles(const std::byte* at) noexcept {
  const __m256i both = _mm256_broadcastsi128_si256(load_half(at));
  const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
  return _mm256_and_si256(_mm256_srlv_epi32(both, shift), _mm256_set1_epi8(15));
}

/// A 16-byte table in both lanes.
QUERN_AVX2_INLINE __m256i table(const void* at) noexcept {
  return _mm256_broadcastsi128_si256(load_half(at));
}

/// 32 bits as bytes: all ones where the bit is set.
QUERN_AVX2_INLINE __m256i spread_bits(const void* at) noexcept {
  std::int32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                           2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
}

template <>
struct Ints<Q4_0> {
  static constexpr IntLayout layout{.max_code = 15, .zero = 8};
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return nibbles(block + 2);
  }
};

template <>
struct Ints<Q4_1> {
  static constexpr IntLayout layout{.max_code = 15, .zero = 0};
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return nibbles(block + 4);
  }
};

template <>
struct Ints<Q5_0> {
  // n goes from -16 to 15. Counted downwards it ends at 16, and 16 * -128 * 16 still is an int16.
  static constexpr IntLayout layout{.max_code = 31, .zero = 15, .negated = true};
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const __m256i fifth = _mm256_and_si256(spread_bits(block + 2), _mm256_set1_epi8(16));
    return _mm256_xor_si256(_mm256_or_si256(nibbles(block + 6), fifth), _mm256_set1_epi8(31));
  }
};

template <>
struct Ints<Q5_1> {
  static constexpr IntLayout layout{.max_code = 31, .zero = 0};
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const __m256i fifth = _mm256_and_si256(spread_bits(block + 4), _mm256_set1_epi8(16));
    return _mm256_or_si256(nibbles(block + 8), fifth);
  }
};

template <>
struct Ints<Q8_0> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .full_range = true};
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return load(block + 2);
  }
};

/// The doubled values of E2M1 plus 12, so that none is negative.
alignas(16) inline constexpr std::uint8_t fp4_codes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                           12, 11, 10, 9,  8,  6,  4,  0};

template <>
struct Ints<MXFP4> {
  static constexpr IntLayout layout{.max_code = 24, .zero = 12};
  /// quern::detail::e8m0_half() of the lowest bytes: two denormals, then powers of two.
  QUERN_AVX2_INLINE static __m256 factors(__m256i head, int /*unit*/) noexcept {
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i bits = _mm256_and_si256(head, _mm256_set1_epi32(0xFF));
    const __m256i tiny = _mm256_slli_epi32(_mm256_add_epi32(_mm256_min_epi32(bits, one), one), 21);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(bits, one), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, tiny));
  }
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return _mm256_shuffle_epi8(table(fp4_codes), nibbles(block + 1));
  }
};

template <>
struct Ints<NVFP4> {
  static constexpr IntLayout layout{.max_code = 24, .zero = 12};
  /// quern::detail::ue4m3_half() of byte `unit`: bit 7 stands for nothing, 0x7F for zero.
  QUERN_AVX2_INLINE static __m256 factors(__m256i head, int unit) noexcept {
    const __m256i byte =
        _mm256_and_si256(_mm256_srli_epi32(head, 8 * unit), _mm256_set1_epi32(0xFF));
    const __m256i bits = _mm256_and_si256(byte, _mm256_set1_epi32(0x7F));
    const __m256i none = _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(0x7F));
    const __m256i normal =
        _mm256_add_epi32(_mm256_slli_epi32(bits, 20), _mm256_set1_epi32(119 << 23));
    const __m256 denormal = _mm256_mul_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(0x1p-10f));
    const __m256i is_normal = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(7));
    const __m256i factor = _mm256_blendv_epi8(_mm256_castps_si256(denormal), normal, is_normal);
    return _mm256_castsi256_ps(_mm256_andnot_si256(none, factor));
  }
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    // Lanes of nibbles() are [low of 0..7 and 8..15 | high of the same]; groups want low and high
    // of 0..7 first.
    const __m256i by_nibble = nibbles(block + 4 + 16 * J);
    const __m256i by_group = _mm256_permute4x64_epi64(by_nibble, 0xD8);
    return _mm256_shuffle_epi8(table(fp4_codes), by_group);
  }
};

template <>
struct Ints<Q1_0> {
  static constexpr IntLayout layout{.max_code = 2, .zero = 1};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return _mm256_and_si256(spread_bits(block + 2 + 4 * J), _mm256_set1_epi8(2));
  }
};

template <>
struct Ints<Q2_0> {
  static constexpr IntLayout layout{.max_code = 3, .zero = 1};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    // Each byte becomes four: 6 bits more of shift for each place leave its code at the bottom.
    const __m256i bytes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 2 + 8 * J)));
    const __m256i twice = _mm256_or_si256(bytes, _mm256_slli_epi32(bytes, 12));
    const __m256i four = _mm256_or_si256(twice, _mm256_slli_epi32(twice, 6));
    return _mm256_and_si256(four, _mm256_set1_epi8(3));
  }
};

template <>
struct Ints<TQ2_0> {
  static constexpr IntLayout layout{.max_code = 3, .zero = 1};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const __m256i bits = load(block + 32 * (J / 4));
    return _mm256_and_si256(_mm256_srli_epi16(bits, 2 * (J % 4)), _mm256_set1_epi8(3));
  }
};

template <>
struct Ints<TQ1_0> {
  static constexpr IntLayout layout{.max_code = 2, .zero = 1};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    if constexpr (J < 5) {
      return digit(times3<J>(load(block)));
    } else if constexpr (J < 7) {
      const __m256i first = times3<2 * J - 10>(table(block + 32));
      return digit(_mm256_blend_epi32(first, times3<1>(first), 0xF0));
    } else {
      std::int32_t last;
      std::memcpy(&last, block + 48, sizeof last);
      const __m256i zeroth = _mm256_set1_epi32(last);
      const __m256i first = times3<1>(zeroth);
      const __m256i second = times3<1>(first);
      const __m256i low = _mm256_blend_epi32(zeroth, first, 0x20);
      const __m256i high = _mm256_blend_epi32(second, times3<1>(second), 0x80);
      const __m256i tail = _mm256_blend_epi32(low, high, 0xC0);
      return digit(_mm256_blend_epi32(times3<4>(table(block + 32)), tail, 0xF0));
    }
  }

private:
  /// Fractions after N digits are gone: times 3^N, modulo 256.
  template <int N>
  QUERN_AVX2_INLINE static __m256i times3(__m256i fraction) noexcept {
    QUERN_UNROLL
    for (int i = 0; i < N; ++i)
      fraction = _mm256_add_epi8(_mm256_add_epi8(fraction, fraction), fraction);
    return fraction;
  }
  /// The first digit: 1 from 256 / 3 on, 2 from 512 / 3 on.
  QUERN_AVX2_INLINE static __m256i digit(__m256i fraction) noexcept {
    const __m256i one = _mm256_set1_epi8(86);
    const __m256i two = _mm256_set1_epi8(static_cast<char>(171));
    const __m256i has_one = _mm256_cmpeq_epi8(_mm256_max_epu8(fraction, one), fraction);
    const __m256i has_two = _mm256_cmpeq_epi8(_mm256_max_epu8(fraction, two), fraction);
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(has_one, has_two));
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
