// floor: 4.22
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include <quern/detail/iq1_grid.hpp>
#include <quern/detail/iq2_s_grid.hpp>
#include <quern/detail/iq2_xs_grid.hpp>
#include <quern/detail/iq2_xxs_grid.hpp>
#include <quern/detail/iq3_s_grid.hpp>
#include <quern/detail/iq3_xxs_grid.hpp>
#include <quern/detail/iq4_levels.hpp>
#include <quern/formats/iq1_m.hpp>
#include <quern/formats/iq1_s.hpp>
#include <quern/formats/iq2_s.hpp>
#include <quern/formats/iq2_xs.hpp>
#include <quern/formats/iq2_xxs.hpp>
#include <quern/formats/iq3_s.hpp>
#include <quern/formats/iq3_xxs.hpp>
#include <quern/formats/iq4_nl.hpp>
#include <quern/formats/iq4_xs.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/codes_k.hpp>
#include <quern/kernels/avx2/ops.hpp>

/// @file
/// The integers of a block of the formats with code books in registers; see Ints.

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

QUERN_AVX2_INLINE std::size_t load_byte(const std::byte* at) noexcept {
  return static_cast<std::size_t>(*at);
}
QUERN_AVX2_INLINE std::uint32_t load_short(const std::byte* at) noexcept {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// 128 for nibbles with an odd number of ones.
alignas(16) inline constexpr std::uint8_t nibble_parity[16] = {
    0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0};

/// `values`, negated where a bit is set.
QUERN_AVX2_INLINE __m256i with_signs(__m256i values, __m256i all_ones_where_negative) noexcept {
  return _mm256_sub_epi8(_mm256_xor_si256(values, all_ones_where_negative),
                         all_ones_where_negative);
}

/// Words whose low bytes have seven sign bits get an eighth, which makes the number of ones even.
QUERN_AVX2_INLINE __m256i even_signs(__m256i seven) noexcept {
  const __m256i parity = table(nibble_parity);
  const __m256i upper = _mm256_srli_epi16(seven, 4);
  const __m256i low = _mm256_shuffle_epi8(parity, _mm256_and_si256(seven, _mm256_set1_epi16(15)));
  return _mm256_or_si256(seven, _mm256_xor_si256(low, _mm256_shuffle_epi8(parity, upper)));
}

/// The bits of the low bytes of words 4 * Q to 4 * Q + 3 as bytes: all ones where the bit is set.
template <int Q>
QUERN_AVX2_INLINE __m256i spread_words(__m256i words) noexcept {
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4,
                                           4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(words, 0x55 * Q), byte_of);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
}

/// Sign bits of IQ2_XXS and IQ3_XXS for four times 32 values: each 64-bit lane has a number twice,
/// whose lower 28 bits are seven signs for each eight values.
QUERN_AVX2_INLINE __m256i signs_of_pairs(__m256i twice) noexcept {
  const __m256i two = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 14, 0, 14, 0, 14, 0, 14));
  const __m256i low = _mm256_and_si256(two, _mm256_set1_epi32(0x7F));
  const __m256i high = _mm256_and_si256(_mm256_slli_epi32(two, 9), _mm256_set1_epi32(0x7F0000));
  return even_signs(_mm256_or_si256(low, high));
}

/// Eight scales in 32-bit lanes as words, in both lanes.
QUERN_AVX2_INLINE __m256i group_scales(__m256i eight) noexcept {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(eight, eight), 0xD8);
}
/// 2 * s + 1.
QUERN_AVX2_INLINE __m256i odd(__m256i s) noexcept {
  return _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1));
}
/// Eight bytes of two 4-bit scales each as 2 * s + 1, those in low nibbles in the lower lane.
QUERN_AVX2_INLINE __m256i odd_nibble_scales(const std::byte* at) noexcept {
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  return odd(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), _mm_and_si128(bytes, _mm_set1_epi16(15))));
}

/// Eight values of each of four entries of a code book.
template <class Words>
QUERN_AVX2_INLINE __m256i four_entries(const Words& words, std::size_t a, std::size_t b,
                                       std::size_t c, std::size_t d) noexcept {
  return _mm256_setr_epi64x(static_cast<long long>(words[a]), static_cast<long long>(words[b]),
                            static_cast<long long>(words[c]), static_cast<long long>(words[d]));
}
/// Four values of each of eight entries: byte i of `at`, and above it bit i of `upper`.
template <class Words>
QUERN_AVX2_INLINE __m256i eight_entries(const Words& words, const std::byte* at,
                                        std::size_t upper) noexcept {
  int entries[8];
  QUERN_UNROLL
  for (int i = 0; i < 8; ++i)
    entries[i] = static_cast<int>(words[load_byte(at + i) | ((upper << (8 - i)) & 0x100u)]);
  return _mm256_setr_epi32(entries[0], entries[1], entries[2], entries[3], entries[4], entries[5],
                           entries[6], entries[7]);
}

template <>
struct Ints<IQ4_NL> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0};
  template <int>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return _mm256_shuffle_epi8(table(quern::detail::iq4_levels.levels.data()), nibbles(block + 2));
  }
};

template <>
struct Ints<IQ4_XS> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return _mm256_shuffle_epi8(table(quern::detail::iq4_levels.levels.data()),
                               nibbles(block + 8 + 16 * J));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    const __m256i upper =
        _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(load_short(block + 2))),
                          _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i lower =
        _mm256_srlv_epi32(broadcast4(block + 4), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i scale =
        _mm256_or_si256(_mm256_and_si256(lower, _mm256_set1_epi32(15)),
                        _mm256_slli_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(3)), 4));
    return group_scales(_mm256_sub_epi32(scale, _mm256_set1_epi32(32)));
  }
};

template <>
struct Ints<IQ2_XXS> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const std::byte* at = block + 2 + 8 * J;
    const __m256i twice = _mm256_shuffle_epi32(load(block + 2 + 32 * (J / 4)), 0xF5);
    return with_signs(four_entries(quern::detail::iq2_xxs_grid.words, load_byte(at),
                                   load_byte(at + 1), load_byte(at + 2), load_byte(at + 3)),
                      spread_words<J % 4>(signs_of_pairs(twice)));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    const __m256i odd_words = _mm256_castps_si256(_mm256_shuffle_ps(
        _mm256_castsi256_ps(load(block + 2)), _mm256_castsi256_ps(load(block + 34)), 0xDD));
    const __m256i in_order = _mm256_permute4x64_epi64(odd_words, 0xD8);
    return odd(group_scales(_mm256_srli_epi32(in_order, 28)));
  }
};

template <>
struct Ints<IQ2_XS> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .group = 16};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const std::byte* at = block + 2 + 8 * J;
    const __m256i signs = even_signs(_mm256_srli_epi16(load(block + 2 + 32 * (J / 4)), 9));
    return with_signs(four_entries(quern::detail::iq2_xs_grid.words, load_short(at) & 511u,
                                   load_short(at + 2) & 511u, load_short(at + 4) & 511u,
                                   load_short(at + 6) & 511u),
                      spread_words<J % 4>(signs));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    return odd_nibble_scales(block + 66);
  }
};

template <>
struct Ints<IQ2_S> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .group = 16};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const std::byte* at = block + 2 + 4 * J;
    const std::size_t upper = load_byte(block + 66 + J);
    return with_signs(four_entries(quern::detail::iq2_s_grid.words,
                                   load_byte(at) | (upper << 8 & 0x300u),
                                   load_byte(at + 1) | (upper << 6 & 0x300u),
                                   load_byte(at + 2) | (upper << 4 & 0x300u),
                                   load_byte(at + 3) | (upper << 2 & 0x300u)),
                      spread_bits(block + 34 + 4 * J));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    return odd_nibble_scales(block + 74);
  }
};

template <>
struct Ints<IQ3_XXS> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const __m256i twice =
        _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(load_half(block + 66 + 16 * (J / 4))),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    return with_signs(eight_entries(quern::detail::iq3_xxs_grid.words, block + 2 + 8 * J, 0),
                      spread_words<J % 4>(signs_of_pairs(twice)));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    return odd(group_scales(_mm256_srli_epi32(load(block + 66), 28)));
  }
};

template <>
struct Ints<IQ3_S> {
  static constexpr IntLayout layout{.max_code = -1, .zero = 0, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    return with_signs(eight_entries(quern::detail::iq3_s_grid.words, block + 2 + 8 * J,
                                    load_byte(block + 66 + J)),
                      spread_bits(block + 74 + 4 * J));
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    const __m256i nibbles =
        _mm256_srlv_epi32(broadcast4(block + 106), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    return odd(group_scales(_mm256_and_si256(nibbles, _mm256_set1_epi32(15))));
  }
};

/// Eight times ternary values, plus 10 or, where `down` has all ones, 8: eight times their shifted
/// value, plus 9.
QUERN_AVX2_INLINE __m256i shifted_ternary(__m256i values, __m256i down) noexcept {
  const __m256i digits = _mm256_add_epi8(values, _mm256_set1_epi8(1));
  const __m256i shift = _mm256_andnot_si256(down, _mm256_set1_epi8(2));
  return _mm256_or_si256(_mm256_slli_epi16(digits, 3), shift);
}

template <>
struct Ints<IQ1_S> {
  static constexpr IntLayout layout{.max_code = 18, .zero = 9, .group = 32};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const std::byte* at = block + 2 + 4 * J;
    const std::uint32_t rest = load_short(block + 34 + 2 * J);
    const __m256i down = _mm256_set1_epi8((rest & 0x8000u) != 0 ? -1 : 0);
    return shifted_ternary(four_entries(quern::detail::iq1_grid.words,
                                        load_byte(at) | (rest << 8 & 0x700u),
                                        load_byte(at + 1) | (rest << 5 & 0x700u),
                                        load_byte(at + 2) | (rest << 2 & 0x700u),
                                        load_byte(at + 3) | (rest >> 1 & 0x700u)),
                           down);
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    const __m128i bits =
        _mm_and_si128(_mm_srli_epi16(load_half(block + 34), 12), _mm_set1_epi16(7));
    return odd(_mm256_broadcastsi128_si256(bits));
  }
};

template <>
struct Ints<IQ1_M> {
  static constexpr IntLayout layout{.max_code = 18, .zero = 9, .group = 16};
  template <int J>
  QUERN_AVX2_INLINE static __m256i codes(const std::byte* block) noexcept {
    const std::byte* at = block + 4 * J;
    const std::uint32_t rest = load_short(block + 32 + 2 * J);
    // Bit 3 of each nibble to all of its eight values.
    const __m256i bit = _mm256_setr_epi64x(0x8, 0x80, 0x800, 0x8000);
    const __m256i down = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(rest), bit), bit);
    return shifted_ternary(
        four_entries(quern::detail::iq1_grid.words, load_byte(at) | (rest << 8 & 0x700u),
                     load_byte(at + 1) | (rest << 4 & 0x700u), load_byte(at + 2) | (rest & 0x700u),
                     load_byte(at + 3) | (rest >> 4 & 0x700u)),
        down);
  }
  QUERN_AVX2_INLINE static __m256i scales(const std::byte* block) noexcept {
    // Number k has the scales 4 * k to 4 * k + 3; two of them are in each lane, next to each other.
    const __m128i numbers = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 48));
    const __m128i twice = _mm_unpacklo_epi16(numbers, numbers);
    // Words of a 32-bit lane are moved apart by multiplying: scale 0 and 2, or 1 and 3.
    const __m128i even = _mm_mullo_epi16(twice, _mm_set1_epi32(0x0080 << 16 | 0x2000));
    const __m128i uneven = _mm_mullo_epi16(twice, _mm_set1_epi32(0x0010 << 16 | 0x0400));
    return odd(_mm256_srli_epi16(_mm256_set_m128i(uneven, even), 13));
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
