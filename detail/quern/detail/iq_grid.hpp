// floor: 0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

/// @file
/// Code books of the IQ formats. A code book is a strictly increasing list of points; a point is a
/// number whose base-B digits, lowest first, choose one of B levels for each value. The lists are
/// stored as the gaps between points, about one character for each.

namespace quern::detail {

/// One code book, expanded. Entry i has the number `points[i]`; byte j of `words[i]`, lowest first,
/// is its value j as a signed number.
template <std::size_t Count, std::size_t Width>
struct CodeBook {
  using Word = std::conditional_t<Width == 8, std::uint64_t, std::uint32_t>;
  static constexpr std::size_t count = Count;
  static constexpr std::size_t width = Width;

  std::array<std::uint16_t, Count> points{};
  alignas(64) std::array<Word, Count> words{};

  [[nodiscard]] constexpr int value(std::size_t entry, std::size_t j) const noexcept {
    return static_cast<std::int8_t>(static_cast<std::uint8_t>(words[entry] >> (8 * j)));
  }
};

/// Expands gaps. '#' is a gap of 1, '$' of 2, and so on to 'Z', which is 56; '!' adds 56 to the gap
/// that follows. Entry 0 is the gap from -1.
template <std::size_t Count, std::size_t Width, std::size_t Base>
[[nodiscard]] constexpr CodeBook<Count, Width>
expand_grid(std::string_view gaps, const std::array<std::int8_t, Base>& levels) {
  constexpr std::size_t halves = Width == 8 ? Base * Base * Base * Base : Base * Base;
  using Word = typename CodeBook<Count, Width>::Word;
  // Every half of an entry, so that the whole costs two look-ups. This runs in every compilation,
  // hence plain arrays, whose elements compilers reach without evaluating a call.
  Word half[halves] = {};
  for (std::size_t i = 0; i < halves; ++i) {
    std::size_t digits = i;
    for (std::size_t j = 0; j < Width / 2; ++j, digits /= Base)
      half[i] |= static_cast<Word>(static_cast<std::uint8_t>(levels[digits % Base])) << (8 * j);
  }
  CodeBook<Count, Width> grid;
  std::uint16_t* const points = grid.points.data();
  Word* const words = grid.words.data();
  std::size_t entry = 0;
  std::size_t next = 0; // one more than the last point
  for (const char symbol : gaps) {
    if (symbol == '!') {
      next += 56;
      continue;
    }
    const std::size_t point = next + static_cast<std::size_t>(symbol - '#');
    points[entry] = static_cast<std::uint16_t>(point);
    words[entry] = half[point % halves] | (half[point / halves] << (4 * Width));
    next = point + 1;
    ++entry;
  }
  // Too many entries would not be a constant expression; too few must not pass either.
  if (entry != Count) throw "quern: a code book has too few entries";
  return grid;
}

/// FNV-1a over the entries of a code book, a word at a time.
template <std::size_t Count, std::size_t Width>
[[nodiscard]] constexpr std::uint64_t grid_checksum(const CodeBook<Count, Width>& grid) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const auto word : grid.words)
    hash = (hash ^ word) * 0x100000001B3u;
  return hash;
}

/// Eight sign bits from the seven that a block stores: bit 7 makes the count of ones even.
[[nodiscard]] constexpr std::uint8_t even_signs(std::uint32_t seven) noexcept {
  return static_cast<std::uint8_t>(seven |
                                   ((static_cast<unsigned>(std::popcount(seven)) & 1u) << 7));
}

/// `value`, negated when bit `j` of `signs` is set.
[[nodiscard]] constexpr float with_sign(int value, std::uint32_t signs, std::size_t j) noexcept {
  return static_cast<float>(((signs >> j) & 1u) != 0 ? -value : value);
}

} // namespace quern::detail
