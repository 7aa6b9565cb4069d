// floor: 0.3
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/iq_book.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// The best entry of a code book for a group of four or eight values.

namespace quern::detail {

/// Whether the signs of a group are stored apart from its code book entry.
enum class GridSigns : std::uint8_t {
  in_entry, ///< the levels have signs
  apart,    ///< the levels are magnitudes
};

/// The entry chosen for a group, with its line.
struct GroupChoice {
  std::size_t place = 0; ///< in the entries of the book
  Line line;
};

/// A group of values, prepared so that any entry of the book costs two look-ups and a sum.
template <class Book>
class GridGroup {
public:
  static constexpr std::size_t width = Book::width;
  using Values = std::span<const float, width>;

  constexpr GridGroup(const Book& book, Values values, std::span<const float> weights,
                      GridSigns signs) noexcept
      : book_(book), weighted_(!weights.empty()) {
    for (std::size_t j = 0; j < width; ++j) {
      const float weight = weight_at(weights, j);
      pulls_[j] = pull_at(signs == GridSigns::apart ? magnitude(values[j]) : values[j], weight);
      if (weighted_) weights_[j] = weight;
    }
    fill(low_, 0);
    fill(high_, width / 2);
  }

  /// The envelope over all entries. `flip` asks for one sign turned against its value, the one that
  /// costs least.
  template <std::size_t Capacity>
  constexpr void envelope(bool flip, Envelope<Capacity>& result) const noexcept {
    result.size = 0;
    if (weighted_)
      weighted_envelope(flip, result);
    else
      plain_envelope(flip, result);
    result.finish();
  }

  /// The best entry at a scale.
  [[nodiscard]] constexpr GroupChoice choose(bool flip, double scale) const noexcept {
    GroupChoice best;
    double best_cost = 0.0;
    const double half_scale = 0.5 * scale;
    std::size_t place = 0;
    for (std::size_t c = 0; c < book_.class_count; ++c) {
      const double b = book_.squares[c];
      const double shared = rounded_product(half_scale, b);
      for (; place < book_.class_end[c]; ++place) {
        const double a = follow(place, flip);
        const double own_b = weighted_ ? square(place) : b;
        const double cost = (weighted_ ? rounded_product(half_scale, own_b) : shared) - a;
        if (place != 0 && cost >= best_cost) continue;
        best_cost = cost;
        best = {place, {a, own_b}};
      }
    }
    return best;
  }

  /// The value whose sign costs least to turn, under the entry at `place`.
  [[nodiscard]] constexpr std::size_t cheapest_flip(std::size_t place) const noexcept {
    std::size_t best = 0;
    for (std::size_t j = 1; j < width; ++j)
      if (pulls_[j] * book_.level(place, j) < pulls_[best] * book_.level(place, best)) best = j;
    return best;
  }

private:
  struct Half {
    std::array<double, Book::halves> a{};    // sum of w x q
    std::array<double, Book::halves> b{};    // sum of w q^2, when weighted
    std::array<double, Book::halves> flip{}; // least w x q
  };

  constexpr void fill(Half& half, std::size_t first) const noexcept {
    std::size_t size = 1;
    half.flip[0] = 1e300;
    for (std::size_t j = first; j < first + width / 2; ++j) {
      for (std::size_t v = Book::base; v-- > 0;) {
        const int level = book_.levels[v];
        const double a = pulls_[j] * level;
        const double b = static_cast<double>(weights_[j]) * (level * level);
        for (std::size_t i = 0; i < size; ++i) {
          half.a[v * size + i] = half.a[i] + a;
          half.flip[v * size + i] = half.flip[i] < a ? half.flip[i] : a;
          if (weighted_) half.b[v * size + i] = half.b[i] + b;
        }
      }
      size *= Book::base;
    }
  }

  [[nodiscard]] constexpr double follow(std::size_t place, bool flip) const noexcept {
    const auto& entry = book_.entries[place];
    const double a = low_.a[entry.low] + high_.a[entry.high];
    if (!flip) return a;
    const double low = low_.flip[entry.low];
    const double high = high_.flip[entry.high];
    return a - 2.0 * (low < high ? low : high);
  }
  [[nodiscard]] constexpr double square(std::size_t place) const noexcept {
    return low_.b[book_.entries[place].low] + high_.b[book_.entries[place].high];
  }

  template <std::size_t Capacity>
  constexpr void plain_envelope(bool flip, Envelope<Capacity>& result) const noexcept {
    std::size_t place = 0;
    for (std::size_t c = 0; c < book_.class_count; ++c) {
      double best = follow(place, flip);
      for (++place; place < book_.class_end[c]; ++place) {
        const double a = follow(place, flip);
        if (a > best) best = a;
      }
      result.push(best, book_.squares[c], 0);
    }
  }

  // With weights no two entries share their b. Entries of nearly equal b are judged at a likely
  // scale and one of them kept.
  template <std::size_t Capacity>
  constexpr void weighted_envelope(bool flip, Envelope<Capacity>& result) const noexcept {
    constexpr std::size_t bins = 64;
    double largest = 0.0;
    double pull = 0.0;
    for (std::size_t j = 0; j < width; ++j) {
      pull += pulls_[j] < 0.0 ? -pulls_[j] : pulls_[j];
      largest += weights_[j];
    }
    int widest = 0;
    for (const std::int8_t level : book_.levels)
      widest = level * level > widest * widest ? level : widest;
    largest = rounded_product(largest, widest * widest);
    const double likely = pull == 0.0 ? 0.0 : pull * (widest < 0 ? -widest : widest) / largest;
    std::array<Line, bins> kept{};
    std::array<double, bins> cost{};
    for (std::size_t place = 0; place < Book::count; ++place) {
      const Line line{follow(place, flip), square(place)};
      auto bin = static_cast<std::size_t>(line.b / largest * bins);
      if (bin >= bins) bin = bins - 1;
      const double own = rounded_product(likely, line.b) - line.a;
      if (kept[bin].b != 0.0 && own >= cost[bin]) continue;
      kept[bin] = line;
      cost[bin] = own;
    }
    for (std::size_t bin = bins; bin-- > 0;)
      if (kept[bin].b != 0.0) result.push(kept[bin].a, kept[bin].b, 0);
  }

  const Book& book_;
  bool weighted_;
  std::array<double, width> pulls_{};
  std::array<float, width> weights_{};
  Half low_;
  Half high_;
};

/// The sign bits of a group: bit j for value j below zero.
template <std::size_t Width>
[[nodiscard]] constexpr std::uint32_t sign_bits(std::span<const float, Width> values) noexcept {
  std::uint32_t bits = 0;
  for (std::size_t j = 0; j < Width; ++j)
    bits |= static_cast<std::uint32_t>(values[j] < 0.0f ? 1 : 0) << j;
  return bits;
}

} // namespace quern::detail
