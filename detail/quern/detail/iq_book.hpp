// floor: 0.2
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <quern/detail/iq_grid.hpp>

namespace quern::detail {

/// A code book in the order that a search wants: entries with the same sum of squared levels stand
/// together, largest sum first, because among them only the one that follows the values best
/// counts.
template <std::size_t Count, std::size_t Width, std::size_t Base>
struct GridBook {
  static constexpr std::size_t count = Count;
  static constexpr std::size_t width = Width;
  static constexpr std::size_t base = Base;
  /// Choices of levels for half of an entry.
  static constexpr std::size_t halves = Width == 8 ? Base * Base * Base * Base : Base * Base;

  struct Entry {
    std::uint16_t index; ///< place in the code book
    std::uint8_t low;    ///< levels of the lower half
    std::uint8_t high;   ///< levels of the upper half
  };

  std::array<std::int8_t, Base> levels{};
  std::array<Entry, Count> entries{};
  std::size_t class_count = 0;
  std::array<std::uint16_t, Count> class_end{}; ///< one past the last entry of each class
  std::array<std::uint16_t, Count> squares{};   ///< sum of squared levels of each class

  /// Level j of the entry at `place`.
  [[nodiscard]] constexpr int level(std::size_t place, std::size_t j) const noexcept {
    std::size_t digits = j < Width / 2 ? entries[place].low : entries[place].high;
    for (std::size_t skip = j % (Width / 2); skip > 0; --skip)
      digits /= Base;
    return levels[digits % Base];
  }
};

/// Sorts a code book whose points stand for the given integer levels.
template <std::size_t Count, std::size_t Width, std::size_t Base>
[[nodiscard]] constexpr GridBook<Count, Width, Base>
make_book(const Grid<Count, Width>& grid, const std::array<std::int8_t, Base>& levels) noexcept {
  // This runs in every compilation: a counting sort over plain arrays, whose elements compilers
  // reach without evaluating a call. Sums are counted in the steps in which they can differ.
  constexpr std::size_t halves = GridBook<Count, Width, Base>::halves;
  int least = levels[0] * levels[0];
  for (const std::int8_t level : levels)
    least = std::min(least, level * level);
  int step = 0;
  for (const std::int8_t level : levels)
    step = std::gcd(step, level * level - least);
  std::size_t half[halves] = {};
  for (std::size_t i = 0; i < halves; ++i) {
    std::size_t digits = i;
    for (std::size_t j = 0; j < Width / 2; ++j, digits /= Base) {
      const int level = levels[digits % Base];
      half[i] += static_cast<std::size_t>((level * level - least) / step);
    }
  }

  const std::uint16_t* const points = grid.points.data();
  std::size_t next[4096] = {};
  std::size_t most = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    const std::size_t steps = half[points[i] % halves] + half[points[i] / halves];
    if (steps > most) most = steps;
    ++next[steps];
  }
  GridBook<Count, Width, Base> book;
  book.levels = levels;
  std::size_t end = 0;
  for (std::size_t steps = most + 1; steps-- > 0;) {
    if (next[steps] == 0) continue;
    const std::size_t start = end;
    end += next[steps];
    next[steps] = start;
    book.class_end[book.class_count] = static_cast<std::uint16_t>(end);
    book.squares[book.class_count] = static_cast<std::uint16_t>(
        steps * static_cast<std::size_t>(step) + static_cast<std::size_t>(least) * Width);
    ++book.class_count;
  }
  auto* const entries = book.entries.data();
  for (std::size_t i = 0; i < Count; ++i) {
    const std::size_t low = points[i] % halves;
    const std::size_t high = points[i] / halves;
    auto& entry = entries[next[half[low] + half[high]]++];
    entry.index = static_cast<std::uint16_t>(i);
    entry.low = static_cast<std::uint8_t>(low);
    entry.high = static_cast<std::uint8_t>(high);
  }
  return book;
}

} // namespace quern::detail
