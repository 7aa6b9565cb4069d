// floor: 0.2
#pragma once

#include <quern/detail/block_moves.hpp>

// Part of every 64-bit x86 processor, so no choice is made at run time.
#if defined(__SSE2__) || defined(_M_X64)
#define QUERN_SSE2_MOVES 1

#include <cstddef>
#include <cstring>
#include <emmintrin.h>
#include <numeric>
#include <utility>

namespace quern::kernels {

/// Moves blocks as whole registers of 16 bytes. Where two blocks meet within one, it is joined from
/// the end of the one and the start of the other: 8 blocks of 18 bytes cost 9 stores, not 16.
/// Blocks of 2, 4 and 8 bytes are transposed in squares. Reads the bytes of the blocks and no
/// others.
struct Sse2Moves {
  static constexpr bool streams = true;

  template <std::size_t BytesPerBlock>
  static constexpr bool in_squares = BytesPerBlock == 2 || BytesPerBlock == 4 || BytesPerBlock == 8;

  /// The fewest blocks that fill whole registers.
  template <std::size_t BytesPerBlock>
  static constexpr std::size_t rows = BytesPerBlock >= 16 || in_squares<BytesPerBlock>
                                          ? 16 / std::gcd(std::size_t{16}, BytesPerBlock)
                                          : 1;
  template <std::size_t BytesPerBlock>
  static constexpr std::size_t columns = in_squares<BytesPerBlock> ? 16 / BytesPerBlock : 1;

  template <std::size_t BytesPerBlock, bool Stream>
  QUERN_ALWAYS_INLINE static void move(const std::byte* from, std::size_t from_pitch, std::byte* to,
                                       std::size_t to_pitch) noexcept {
    if constexpr (in_squares<BytesPerBlock>) {
      move_square<BytesPerBlock>(from, from_pitch, to, to_pitch,
                                 std::make_index_sequence<16 / BytesPerBlock>{});
    } else if constexpr (BytesPerBlock < 16) {
      std::memcpy(to, from, BytesPerBlock);
    } else {
      move_registers<BytesPerBlock, Stream>(
          from, from_pitch, to,
          std::make_index_sequence<rows<BytesPerBlock> * BytesPerBlock / 16>{});
    }
  }

  template <bool Stream>
  QUERN_ALWAYS_INLINE static void move_line(const std::byte* from, std::byte* to) noexcept {
    const __m128i a = load(from);
    const __m128i b = load(from + 16);
    const __m128i c = load(from + 32);
    const __m128i d = load(from + 48);
    store<Stream>(to, a);
    store<Stream>(to + 16, b);
    store<Stream>(to + 32, c);
    store<Stream>(to + 48, d);
  }

  QUERN_ALWAYS_INLINE static void prefetch(const std::byte* address) noexcept {
    _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T1);
  }

  static void finish() noexcept { _mm_sfence(); }

private:
  QUERN_ALWAYS_INLINE static __m128i load(const std::byte* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  template <bool Stream>
  QUERN_ALWAYS_INLINE static void store(std::byte* to, __m128i value) noexcept {
    if constexpr (Stream)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), value);
    else
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
  }

  template <std::size_t BytesPerBlock, bool Stream, std::size_t... I>
  QUERN_ALWAYS_INLINE static void move_registers(const std::byte* from, std::size_t pitch,
                                                 std::byte* to,
                                                 std::index_sequence<I...> /*all*/) noexcept {
    (store<Stream>(to + 16 * I, join<BytesPerBlock, 16 * I>(from, pitch)), ...);
  }

  /// The 16 bytes from `Offset` on of the blocks as they will lie in memory.
  template <std::size_t BytesPerBlock, std::size_t Offset>
  QUERN_ALWAYS_INLINE static __m128i join(const std::byte* from, std::size_t pitch) noexcept {
    constexpr std::size_t within = Offset % BytesPerBlock;
    const std::byte* const block = from + Offset / BytesPerBlock * pitch;
    if constexpr (within + 16 <= BytesPerBlock) {
      return load(block + within);
    } else {
      constexpr int kept = static_cast<int>(BytesPerBlock - within);
      return _mm_or_si128(_mm_srli_si128(load(block + BytesPerBlock - 16), 16 - kept),
                          _mm_slli_si128(load(block + pitch), kept));
    }
  }

  /// A register per row. (g++ warns of std::array, whose element type would lose its attributes.)
  template <std::size_t Rows>
  struct Square {
    __m128i rows[Rows];
  };

  template <std::size_t BytesPerBlock, std::size_t... I>
  QUERN_ALWAYS_INLINE static void move_square(const std::byte* from, std::size_t from_pitch,
                                              std::byte* to, std::size_t to_pitch,
                                              std::index_sequence<I...> /*all*/) noexcept {
    const Square<sizeof...(I)> turned =
        interleave<BytesPerBlock>(Square<sizeof...(I)>{{load(from + I * from_pitch)...}});
    (store<false>(to + I * to_pitch, turned.rows[I]), ...);
  }

  /// The transposed square: row i is interleaved with row i + half of them, element by element;
  /// doing so as often as rows can be halved puts each column into one register.
  template <std::size_t BytesPerBlock, std::size_t Rows, std::size_t Left = Rows>
  QUERN_ALWAYS_INLINE static Square<Rows> interleave(const Square<Rows>& square) noexcept {
    if constexpr (Left == 1) {
      return square;
    } else {
      Square<Rows> result;
      for (std::size_t i = 0; i < Rows / 2; ++i) {
        const __m128i a = square.rows[i];
        const __m128i b = square.rows[i + Rows / 2];
        if constexpr (BytesPerBlock == 2) {
          result.rows[2 * i] = _mm_unpacklo_epi16(a, b);
          result.rows[2 * i + 1] = _mm_unpackhi_epi16(a, b);
        } else if constexpr (BytesPerBlock == 4) {
          result.rows[2 * i] = _mm_unpacklo_epi32(a, b);
          result.rows[2 * i + 1] = _mm_unpackhi_epi32(a, b);
        } else {
          result.rows[2 * i] = _mm_unpacklo_epi64(a, b);
          result.rows[2 * i + 1] = _mm_unpackhi_epi64(a, b);
        }
      }
      return interleave<BytesPerBlock, Rows, Left / 2>(result);
    }
  }
};

} // namespace quern::kernels
#endif
