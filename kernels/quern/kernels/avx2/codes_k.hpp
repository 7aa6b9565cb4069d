// floor: 4.21
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include <quern/formats/q2_k.hpp>
#include <quern/formats/q3_k.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/formats/q5_k.hpp>
#include <quern/formats/q6_k.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/ops.hpp>

/// @file
/// The integers of a block of the K formats in registers; see Ints.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// The bits of every byte moved up by `By` (down when negative); bits of neighbours come along.
template <int By>
QUERN_AVX2_INLINE __m256i shift_bytes(__m256i v) noexcept {
  if constexpr (By > 0)
    return _mm256_slli_epi16(v, By);
  else
    return By == 0 ? v : _mm256_srli_epi16(v, -By);
}

/// Bits [from, from + size) of every byte, moved to `to`.
template <int From, int Size, int To>
QUERN_AVX2_INLINE __m256i byte_field(__m256i v) noexcept {
  return _mm256_and_si256(shift_bytes<To - From>(v),
                          _mm256_set1_epi8(static_cast<char>(((1 << Size) - 1) << To)));
}

/// Sixteen bytes as words, those of even place in the lower lane.
QUERN_AVX2_INLINE __m256i split_unsigned(__m128i bytes) noexcept {
  return _mm256_set_m128i(_mm_srli_epi16(bytes, 8), _mm_and_si128(bytes, _mm_set1_epi16(0x00FF)));
}
QUERN_AVX2_INLINE __m256i split_signed(__m128i bytes) noexcept {
  return _mm256_set_m128i(_mm_srai_epi16(bytes, 8), _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8));
}

QUERN_AVX2_INLINE std::uint32_t load_word(const std::byte* at) noexcept {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// The scales of Q4_K and Q5_K, then their minimums, eight each, from their twelve bytes. Reads
/// four bytes more.
QUERN_AVX2_INLINE __m128i six_bit_bytes(const std::byte* at) noexcept {
  const __m128i fields = load_half(at);
  // Whole fields of the first four, lower bits of the others: in the nibbles of the third dword.
  const __m128i low = _mm_and_si128(
      _mm_srlv_epi32(_mm_shuffle_epi32(fields, 0b10'01'10'00), _mm_setr_epi32(0, 0, 0, 4)),
      _mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
  // Their upper bits: above the fields of the first four.
  const __m128i high = _mm_and_si128(_mm_srli_epi32(_mm_shuffle_epi32(fields, 0b01'01'00'00), 2),
                                     _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
  return _mm_or_si128(low, high);
}

/// The same as words.
QUERN_AVX2_INLINE __m256i six_bit_fields(const std::byte* at) noexcept {
  return _mm256_cvtepu8_epi16(six_bit_bytes(at));
}

template <>
struct Ints<Q4_K> {
  static constexpr IntLayout layout{.max_code = 15, .zero = 0, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return byte_field<4 * (J % 2), 4, 0>(load(block + 16 + 32 * (J / 2)));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    const __m256i fields = six_bit_fields(block + 4);
    return _mm256_permute2x128_si256(fields, fields, 0x00);
  }
  QUERN_AVX2_INLINE static __m256i minimums(const std::byte* block) noexcept {
    const __m256i fields = six_bit_fields(block + 4);
    return _mm256_permute2x128_si256(fields, fields, 0x11);
  }
};

template <>
struct Ints<Q5_K> {
  static constexpr IntLayout layout{.max_code = 31, .zero = 0, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return _mm256_or_si256(byte_field<4 * (J % 2), 4, 0>(load(block + 48 + 32 * (J / 2))),
                           byte_field<J, 1, 4>(load(block + 16)));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    return Ints<Q4_K>::scales(block);
  }
  QUERN_AVX2_INLINE static __m256i minimums(const std::byte* block) noexcept {
    return Ints<Q4_K>::minimums(block);
  }
};

template <>
struct Ints<Q6_K> {
  // Counted downwards for the reason given at Q5_0.
  static constexpr IntLayout layout{.max_code = 63, .zero = 31, .group = 16, .negated = true};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    constexpr int half = J / 4, n = J % 4;
    const __m256i low = byte_field < n < 2 ? 0 : 4, 4, 0 > (load(block + 64 * half + 32 * (n % 2)));
    const __m256i high = byte_field<2 * n, 2, 4>(load(block + 128 + 32 * half));
    return _mm256_xor_si256(_mm256_or_si256(low, high), _mm256_set1_epi8(63));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    return split_signed(load_half(block + 192));
  }
};

template <>
struct Ints<Q2_K> {
  static constexpr IntLayout layout{.max_code = 3, .zero = 0, .group = 16};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return byte_field<2 * (J % 4), 2, 0>(load(block + 16 + 32 * (J / 4)));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    return split_unsigned(_mm_and_si128(load_half(block), _mm_set1_epi8(15)));
  }
  QUERN_AVX2_INLINE static __m256i minimums(const std::byte* block) noexcept {
    return split_unsigned(_mm_and_si128(_mm_srli_epi16(load_half(block), 4), _mm_set1_epi8(15)));
  }
};

template <>
struct Ints<Q3_K> {
  static constexpr IntLayout layout{.max_code = 7, .zero = 4, .group = 16};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return _mm256_or_si256(byte_field<2 * (J % 4), 2, 0>(load(block + 32 + 32 * (J / 4))),
                           byte_field<J, 1, 2>(load(block)));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    const std::uint32_t first = load_word(block + 96), second = load_word(block + 100);
    const std::uint32_t upper = load_word(block + 104);
    const __m128i fields = _mm_set_epi32(
        static_cast<int>(((second >> 4) & 0x0F0F0F0Fu) | ((upper >> 2) & 0x30303030u)),
        static_cast<int>(((first >> 4) & 0x0F0F0F0Fu) | (upper & 0x30303030u)),
        static_cast<int>((second & 0x0F0F0F0Fu) | ((upper << 2) & 0x30303030u)),
        static_cast<int>((first & 0x0F0F0F0Fu) | ((upper << 4) & 0x30303030u)));
    return split_signed(_mm_sub_epi8(fields, _mm_set1_epi8(32)));
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
