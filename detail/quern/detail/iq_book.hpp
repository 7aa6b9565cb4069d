// floor: 0.2
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <quern/detail/iq_grid.hpp>

namespace quern::detail {

/// A code book in the order that a search wants. The digits of its points stand for integer levels,
/// in one or more ways, its variants. Entries whose squared levels have the same sum, in each
/// variant, stand together: of such a class only the entry that follows the values best counts.
template <std::size_t Count, std::size_t Width, std::size_t Base, std::size_t Variants>
struct GridBook {
  static constexpr std::size_t count = Count;
  static constexpr std::size_t width = Width;
  static constexpr std::size_t base = Base;
  static constexpr std::size_t most_classes = 64;
  /// Choices of digits for half of an entry.
  static constexpr std::size_t halves = Width == 8 ? Base * Base * Base * Base : Base * Base;

  struct Entry {
    std::uint16_t index; ///< place in the code book
    std::uint8_t low;    ///< digits of the lower half
    std::uint8_t high;   ///< digits of the upper half
  };
  struct Variant {
    std::array<std::int8_t, Base> levels{};
    std::array<std::uint16_t, most_classes> squares{}; ///< sum of squared levels, by class
    std::array<std::uint8_t, most_classes> order{};    ///< classes, largest sum first
  };

  std::array<Entry, Count> entries{};
  std::array<std::array<std::uint8_t, Width / 2>, halves> digits{};
  std::array<Variant, Variants> variants{};
  double mean_square = 0.0; ///< of the levels of variant 0
  std::size_t class_count = 0;
  std::array<std::uint16_t, most_classes> class_end{}; ///< one past the last entry of each class

  /// Level j of the entry at `place`.
  [[nodiscard]] constexpr int level(std::size_t variant, std::size_t place,
                                    std::size_t j) const noexcept {
    const Entry& entry = entries[place];
    const auto& half = digits[j < Width / 2 ? entry.low : entry.high];
    return variants[variant].levels[half[j % (Width / 2)]];
  }
};

/// Sorts a code book into classes.
template <std::size_t Count, std::size_t Width, std::size_t Base, std::size_t Variants>
[[nodiscard]] constexpr GridBook<Count, Width, Base, Variants>
make_book(const CodeBook<Count, Width>& grid,
          const std::array<std::array<std::int8_t, Base>, Variants>& levels) {
  // This runs in every compilation: it works on plain arrays, whose elements compilers reach
  // without evaluating a call, and does little for each entry.
  using Book = GridBook<Count, Width, Base, Variants>;
  constexpr std::size_t halves = Book::halves;
  // Sums of squared levels, those of further variants in further 16 bits.
  std::uint32_t squares[Base] = {};
  for (std::size_t digit = 0; digit < Base; ++digit)
    for (std::size_t v = 0; v < Variants; ++v)
      squares[digit] |= static_cast<std::uint32_t>(levels[v][digit] * levels[v][digit]) << (16 * v);

  Book book;
  constexpr std::size_t most_kinds = 36; // of halves, by their sums
  std::uint32_t sums[most_kinds] = {};
  std::size_t kind[halves] = {};
  std::size_t kinds = 0;
  for (std::size_t i = 0; i < halves; ++i) {
    std::uint32_t sum = 0;
    std::size_t rest = i;
    std::uint8_t* const digits = book.digits[i].data();
    for (std::size_t j = 0; j < Width / 2; ++j, rest /= Base) {
      digits[j] = static_cast<std::uint8_t>(rest % Base);
      sum += squares[rest % Base];
    }
    std::size_t own = 0;
    while (own < kinds && sum != sums[own])
      ++own;
    kind[i] = own;
    if (own == kinds) sums[kinds++] = sum;
  }

  const std::uint16_t* const points = grid.points.data();
  std::size_t class_of[most_kinds][most_kinds] = {}; // one more than the class
  std::uint32_t class_sum[Book::most_classes] = {};
  std::size_t members[Book::most_classes] = {};
  std::size_t classes = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    const std::size_t low = kind[points[i] % halves];
    const std::size_t high = kind[points[i] / halves];
    std::size_t own = class_of[low][high];
    if (own == 0) {
      const std::uint32_t sum = sums[low] + sums[high];
      while (own < classes && sum != class_sum[own])
        ++own;
      if (own == Book::most_classes) throw "quern: a code book has too many classes";
      if (own == classes) class_sum[classes++] = sum;
      class_of[low][high] = ++own;
    }
    ++members[own - 1];
  }

  std::size_t next[Book::most_classes] = {};
  std::uint16_t* const class_end = book.class_end.data();
  for (std::size_t c = 0, end = 0; c < classes; ++c) {
    next[c] = end;
    end += members[c];
    book.mean_square +=
        static_cast<double>(members[c] * (class_sum[c] & 0xFFFFu)) / (Count * Width);
    class_end[c] = static_cast<std::uint16_t>(end);
  }
  auto* const entries = book.entries.data();
  for (std::size_t i = 0; i < Count; ++i) {
    const std::size_t low = points[i] % halves;
    const std::size_t high = points[i] / halves;
    auto& entry = entries[next[class_of[kind[low]][kind[high]] - 1]++];
    entry.index = static_cast<std::uint16_t>(i);
    entry.low = static_cast<std::uint8_t>(low);
    entry.high = static_cast<std::uint8_t>(high);
  }

  book.class_count = classes;
  for (std::size_t v = 0; v < Variants; ++v) {
    auto& variant = book.variants[v];
    variant.levels = levels[v];
    std::uint16_t* const own = variant.squares.data();
    std::uint8_t* const order = variant.order.data();
    for (std::size_t c = 0; c < classes; ++c) {
      own[c] = static_cast<std::uint16_t>(class_sum[c] >> (16 * v));
      std::size_t place = c;
      for (; place > 0 && own[order[place - 1]] < own[c]; --place)
        order[place] = order[place - 1];
      order[place] = static_cast<std::uint8_t>(c);
    }
  }
  return book;
}

/// The same for a code book with one variant.
template <std::size_t Count, std::size_t Width, std::size_t Base>
[[nodiscard]] constexpr GridBook<Count, Width, Base, 1>
make_book(const CodeBook<Count, Width>& grid, const std::array<std::int8_t, Base>& levels) {
  return make_book(grid, std::array<std::array<std::int8_t, Base>, 1>{levels});
}

} // namespace quern::detail
