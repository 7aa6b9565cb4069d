// floor: 4.25
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include <quern/block_format.hpp>
#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/codes_iq.hpp>
#include <quern/kernels/avx2/codes_k.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/int8_parts.hpp>

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// How a format becomes floats. A piece of a row is `width` values in `bytes` bytes, read in
/// `parts` parts so that a caller can take turns between rows. `Head(at)` is what all parts of a
/// piece share; `decode<J>(at, head, sink)` calls `sink.put(i, v)` with values i to i + 7 of the
/// piece for each eight of part J. The values are those of F::decode, bit for bit.
///
/// This one makes them of the integers: `n * d` is exact before it is rounded once, or not at all,
/// whatever the order of its factors.
template <BlockFormat F>
struct Floats {
  static_assert(HasInts<F>);
  using Parts = IntegerParts<F>;
  static constexpr IntLayout layout = Ints<F>::layout;
  static constexpr std::size_t width = F::block_size;
  static constexpr std::size_t bytes = F::bytes_per_block;
  static constexpr int parts = static_cast<int>(width / 32);
  static constexpr bool grouped = layout.group != 0;
  /// Halves of a part have scales of their own.
  static constexpr bool by_half = layout.group == 16 || Parts::unit == 16;

  struct Head {
    /// First those of the lower halves of each part, then of the upper.
    alignas(32) float scale[grouped ? 16 : 2 * parts];
    alignas(32) float minimum[Parts::minimum && grouped ? 16 : 1];

    QUERN_AVX2_INLINE explicit Head(const std::byte* at) noexcept {
      if constexpr (grouped) {
        const __m256 d = _mm256_set1_ps(factor(at, 0));
        times(Ints<F>::scales(at), d, scale);
        if constexpr (Parts::minimum)
          times(Ints<F>::minimums(at), _mm256_set1_ps(half_at(at, Parts::m_at)), minimum);
      } else if constexpr (by_half) {
        for (std::size_t u = 0; u < 2 * parts; ++u)
          scale[u % 2 * parts + u / 2] = factor(at, u);
      } else {
        scale[0] = factor(at, 0);
        if constexpr (Parts::minimum) minimum[0] = half_at(at, Parts::m_at);
      }
    }
  };

  template <int J, class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, const Head& head, Sink& sink) noexcept {
    const __m256i n = integers(Ints<F>::template codes<J>(at));
    constexpr int low = grouped || by_half ? J : 0;
    constexpr int high = grouped ? 8 + J : by_half ? parts + J : 0;
    const __m128i first = _mm256_castsi256_si128(n);
    const __m128i second = _mm256_extracti128_si256(n, 1);
    sink.put(32 * J, value<low>(head, first));
    sink.put(32 * J + 8, value<low>(head, _mm_unpackhi_epi64(first, first)));
    sink.put(32 * J + 16, value<high>(head, second));
    sink.put(32 * J + 24, value<high>(head, _mm_unpackhi_epi64(second, second)));
  }

  QUERN_AVX2_INLINE static float half_at(const std::byte* at, std::size_t offset) noexcept {
    std::uint16_t bits;
    std::memcpy(&bits, at + offset, sizeof bits);
    return _cvtsh_ss(bits);
  }
  QUERN_AVX2_INLINE static float factor(const std::byte* at, std::size_t unit) noexcept {
    if constexpr (requires { Parts::d_at; })
      return half_at(at, Parts::d_at) * Parts::d_factor;
    else
      return Parts::d(at, unit);
  }
  /// Codes as signed integers n.
  QUERN_AVX2_INLINE static __m256i integers(__m256i codes) noexcept {
    const __m256i zero = _mm256_set1_epi8(static_cast<char>(layout.zero));
    if constexpr (layout.negated)
      return _mm256_sub_epi8(zero, codes);
    else
      return layout.zero == 0 ? codes : _mm256_sub_epi8(codes, zero);
  }

private:
  QUERN_AVX2_INLINE static void times(__m256i words, __m256 d, float* to) noexcept {
    const __m256i low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(words));
    const __m256i high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(words, 1));
    _mm256_store_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(low), d));
    _mm256_store_ps(to + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(high), d));
  }
  template <int Scale>
  QUERN_AVX2_INLINE static __m256 value(const Head& head, __m128i eight) noexcept {
    const __m256 n = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
    const __m256 d = _mm256_broadcast_ss(head.scale + Scale);
    if constexpr (!Parts::minimum)
      return _mm256_mul_ps(n, d);
    else if constexpr (grouped)
      return _mm256_fmsub_ps(n, d, _mm256_broadcast_ss(head.minimum + Scale));
    else
      return _mm256_fmadd_ps(n, d, _mm256_broadcast_ss(head.minimum));
  }
};

/// True for a format of single values, where eight neighbours are one piece.
template <BlockFormat F>
inline constexpr bool is_dense = F::block_size == 1;

/// A piece of eight single values.
template <std::size_t Bytes>
struct EightValues {
  static constexpr std::size_t width = 8;
  static constexpr std::size_t bytes = 8 * Bytes;
  static constexpr int parts = 1;

  struct Head {
    QUERN_AVX2_INLINE explicit Head(const std::byte* /*at*/) noexcept {}
  };
};

template <>
struct Floats<F32> : EightValues<4> {
  template <int, class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, const Head&, Sink& sink) noexcept {
    sink.put(0, _mm256_castsi256_ps(load(at)));
  }
};

template <>
struct Floats<F16> : EightValues<2> {
  template <int, class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, const Head&, Sink& sink) noexcept {
    sink.put(0, _mm256_cvtph_ps(load_half(at)));
  }
};

template <>
struct Floats<BF16> : EightValues<2> {
  template <int, class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, const Head&, Sink& sink) noexcept {
    const __m256i words = _mm256_cvtepu16_epi32(load_half(at));
    sink.put(0, _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
  }
};

/// Decodes all parts of one piece.
template <class U, int J = 0, class Sink>
QUERN_AVX2_INLINE void decode_parts(const std::byte* at, const typename U::Head& head,
                                    Sink& sink) noexcept {
  U::template decode<J>(at, head, sink);
  if constexpr (J + 1 < U::parts) decode_parts<U, J + 1>(at, head, sink);
}
template <class U, class Sink>
QUERN_AVX2_INLINE void decode_piece(const std::byte* at, Sink& sink) noexcept {
  const typename U::Head head(at);
  decode_parts<U>(at, head, sink);
}

/// Decodes one piece of each of four rows, taking turns, so that four sums grow at once.
template <class U, int J = 0, class Sink>
QUERN_AVX2_INLINE void decode_four(const std::byte* const (&at)[4],
                                   const typename U::Head (&head)[4], Sink (&sink)[4]) noexcept {
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i)
    U::template decode<J>(at[i], head[i], sink[i]);
  if constexpr (J + 1 < U::parts) decode_four<U, J + 1>(at, head, sink);
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
