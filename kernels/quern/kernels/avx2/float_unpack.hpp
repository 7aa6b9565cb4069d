// floor: 4.25
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <type_traits>

#include <quern/block_format.hpp>
#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/formats/mxfp4.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/codes_iq.hpp>
#include <quern/kernels/avx2/codes_k.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/int8_parts.hpp>

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// How a format becomes floats. A piece of a row is `width` values in `bytes` bytes, read in
/// `parts` parts so that a caller can take turns between rows. `Head(at)` is what all parts of a
/// piece share; `part<J>(at)` what the values of part J share, and `eight<J, K>(part, head)` values
/// 8 * K to 8 * K + 7 of it. The values are those of F::decode, bit for bit.
///
/// This one makes them of the integers: `n * d` is exact before it is rounded once, or not at all,
/// whatever the order of its factors. Bytes become floats from the top of an integer, so times
/// 2^24, and scales are kept times 2^-24.
template <BlockFormat F>
struct Floats {
  static_assert(HasInts<F>);
  using Parts = IntegerParts<F>;
  static constexpr IntLayout layout = Ints<F>::layout;
  static constexpr std::size_t width = F::block_size;
  static constexpr std::size_t bytes = F::bytes_per_block;
  static constexpr int parts = static_cast<int>(width / 32);
  static constexpr bool grouped = layout.group != 0;
  /// Scales of MXFP4 may be too small to be made smaller.
  static constexpr bool at_top = !std::is_same_v<F, MXFP4>;
  static constexpr float shrink = at_top ? 0x1p-24f : 1.0f;
  /// Halves of a part have scales of their own.
  static constexpr bool by_half = layout.group == 16 || Parts::unit == 16;

  struct Head {
    /// First those of the lower halves of each part, then of the upper.
    alignas(32) float scale[grouped ? 16 : 2 * parts];
    alignas(32) float minimum[Parts::minimum && grouped ? 16 : 1];

    /// Scales are kept times `power`, which is one of two.
    QUERN_AVX2_INLINE explicit Head(const std::byte* at, float power = shrink) noexcept {
      if constexpr (grouped) {
        const __m256 d = _mm256_set1_ps(factor(at, 0) * power);
        times(Ints<F>::scales(at), d, scale);
        if constexpr (Parts::minimum)
          times(Ints<F>::minimums(at), _mm256_set1_ps(half_at(at, Parts::m_at)), minimum);
      } else if constexpr (by_half) {
        for (std::size_t u = 0; u < 2 * parts; ++u)
          scale[u % 2 * parts + u / 2] = factor(at, u) * power;
      } else {
        scale[0] = factor(at, 0) * power;
        if constexpr (Parts::minimum) minimum[0] = half_at(at, Parts::m_at);
      }
    }
  };

  /// The 32 numbers n of a part, as bytes.
  using Part = __m256i;
  template <int J>
  QUERN_AVX2_INLINE static Part part(const std::byte* at) noexcept {
    return integers(Ints<F>::template codes<J>(at));
  }
  /// Values 8 * K to 8 * K + 7 of part J.
  template <int J, int K>
  QUERN_AVX2_INLINE static __m256 eight(Part n, const Head& head) noexcept {
    constexpr int low = grouped || by_half ? J : 0;
    constexpr int high = grouped ? 8 + J : by_half ? parts + J : 0;
    if constexpr (K < 2)
      return value<low, K * 8>(head, _mm256_broadcastsi128_si256(_mm256_castsi256_si128(n)));
    else
      return value<high, K * 8 - 16>(head, _mm256_permute2x128_si256(n, n, 0x11));
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
  /// Bytes First to First + 7 of those in both lanes, times their scale.
  template <int Scale, int First>
  QUERN_AVX2_INLINE static __m256 value(const Head& head, __m256i lanes) noexcept {
    const __m256i to_top = _mm256_setr_epi8(
        -1, -1, -1, First, -1, -1, -1, First + 1, -1, -1, -1, First + 2, -1, -1, -1, First + 3, -1,
        -1, -1, First + 4, -1, -1, -1, First + 5, -1, -1, -1, First + 6, -1, -1, -1, First + 7);
    const __m256i top = _mm256_shuffle_epi8(lanes, to_top);
    const __m256 n = _mm256_cvtepi32_ps(at_top ? top : _mm256_srai_epi32(top, 24));
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
  using Part = const std::byte*;
  template <int>
  QUERN_AVX2_INLINE static Part part(const std::byte* at) noexcept {
    return at;
  }
};

template <>
struct Floats<F32> : EightValues<4> {
  template <int, int>
  QUERN_AVX2_INLINE static __m256 eight(Part at, const Head&) noexcept {
    return _mm256_castsi256_ps(load(at));
  }
};

template <>
struct Floats<F16> : EightValues<2> {
  template <int, int>
  QUERN_AVX2_INLINE static __m256 eight(Part at, const Head&) noexcept {
    return _mm256_cvtph_ps(load_half(at));
  }
};

template <>
struct Floats<BF16> : EightValues<2> {
  template <int, int>
  QUERN_AVX2_INLINE static __m256 eight(Part at, const Head&) noexcept {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(at)), 16));
  }
};

/// Values in a part.
template <class U>
inline constexpr int part_width = static_cast<int>(U::width) / U::parts;

/// Gives values 8 * K and on of part J of each of N pieces to the sink of each, taking turns, so
/// that N sums grow at once.
template <class U, std::size_t N, int J, int K = 0, class Sink>
QUERN_AVX2_INLINE void put_eights(const typename U::Part* part, const typename U::Head* head,
                                  Sink* sink) noexcept {
  QUERN_UNROLL
  for (std::size_t i = 0; i < N; ++i)
    sink[i].put(part_width<U> * J + 8 * K, U::template eight<J, K>(part[i], head[i]));
  if constexpr (8 * (K + 1) < part_width<U>) put_eights<U, N, J, K + 1>(part, head, sink);
}

/// Decodes N pieces, part after part.
template <class U, std::size_t N, int J = 0, class Sink>
QUERN_AVX2_INLINE void decode_parts(const std::byte* const* at, const typename U::Head* head,
                                    Sink* sink) noexcept {
  typename U::Part part[N];
  QUERN_UNROLL
  for (std::size_t i = 0; i < N; ++i)
    part[i] = U::template part<J>(at[i]);
  put_eights<U, N, J>(part, head, sink);
  if constexpr (J + 1 < U::parts) decode_parts<U, N, J + 1>(at, head, sink);
}

/// Decodes four pieces side by side.
template <class U, class Sink>
QUERN_AVX2_INLINE void decode_four(const std::byte* const (&at)[4], Sink (&sink)[4]) noexcept {
  const typename U::Head head[4] = {typename U::Head(at[0]), typename U::Head(at[1]),
                                    typename U::Head(at[2]), typename U::Head(at[3])};
  decode_parts<U, 4>(at, head, sink);
}

/// Decodes one piece.
template <class U, class Sink>
QUERN_AVX2_INLINE void decode_piece(const std::byte* at, Sink& sink) noexcept {
  const typename U::Head head(at);
  decode_parts<U, 1>(&at, &head, &sink);
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
