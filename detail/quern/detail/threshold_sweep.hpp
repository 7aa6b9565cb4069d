// floor: 0.3
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/half.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// The best scale for codes of one or two bits. They have so few levels that every scale at which a
/// value changes its level can be looked at, so the result is the best there is before the scale is
/// rounded to binary16.

namespace quern::detail {

/// As the scale falls below `at`, a value moves one level outwards: the line of the block grows by
/// a and b.
struct Crossing {
  double at = 0.0;
  double a = 0.0;
  double b = 0.0;

  [[nodiscard]] constexpr bool before(const Crossing& other) const noexcept {
    // Told apart to the last bit, so that the order is the same with every sort.
    if (at != other.at) return at > other.at;
    return a != other.a ? a > other.a : b < other.b;
  }
};

/// The line of least error of all that scales lead to. Sorts the crossings.
[[nodiscard]] constexpr Line best_line(std::span<Crossing> crossings) noexcept {
  std::sort(crossings.begin(), crossings.end(),
            [](const Crossing& x, const Crossing& y) { return x.before(y); });
  Line line;
  Line best;
  for (const Crossing& crossing : crossings) {
    line.a += crossing.a;
    line.b += crossing.b;
    if (line.beats(best)) best = line;
  }
  return best;
}

/// The scale of least error for levels -Negative..Positive, one apart, as the bits of a binary16
/// number: zero when zeros are as good as any, infinity when the scale does not fit.
template <int Negative, int Positive, std::size_t Values>
[[nodiscard]] constexpr std::uint16_t best_small_scale(std::span<const float, Values> values,
                                                       std::span<const float> weights) noexcept {
  Line best;
  std::uint16_t sign = 0;
  // Turning the scale helps only where the levels are not the same on both sides.
  for (const int side : {1, -1}) {
    if (side < 0 && Negative == Positive) break;
    std::array<Crossing, Values * std::max(Negative, Positive)> crossings{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < Values; ++i) {
      if (values[i] == 0.0f) continue;
      const float weight = weight_at(weights, i);
      const float size = magnitude(values[i]);
      const int levels = (values[i] < 0.0f) == (side < 0) ? Positive : Negative;
      for (int level = 1; level <= levels; ++level)
        crossings[count++] = {static_cast<double>(size) / (level - 0.5), pull_at(size, weight),
                              static_cast<double>(weight) * (2 * level - 1)};
    }
    const Line line = best_line(std::span<Crossing>(crossings).first(count));
    if (!line.beats(best)) continue;
    best = line;
    sign = side < 0 ? std::uint16_t{0x8000} : std::uint16_t{0};
  }
  if (best.b <= 0.0) return 0;
  const double scale = best.a / best.b;
  if (scale >= 65520.0) return 0x7C00;
  return static_cast<std::uint16_t>(float_to_half(static_cast<float>(scale)) | sign);
}

} // namespace quern::detail
