// floor: 0.4
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/k_quant_grid.hpp>
#include <quern/detail/k_quant_lines.hpp>

/// @file
/// The search behind K-quants with a scale and an offset per group:
///
///     value = scale * scales[g] * code - offset * offsets[g]
///
/// with scale and offset in binary16 and small unsigned integers for the rest. The squared error,
/// weighted by importance, is lowered in four steps: a line through each group by itself; the pair
/// of block scales whose multiples come closest to these lines; for each group, all multiples near
/// its line; the block scales once more, by least squares for the codes found.

namespace quern::detail {

/// What a block stores.
template <class Shape>
struct AffineBlock {
  float scale = 0.0f;
  float offset = 0.0f;
  std::array<std::uint8_t, Shape::groups> scales{};
  std::array<std::uint8_t, Shape::groups> offsets{};
  std::array<std::uint8_t, Shape::values> codes{};
};

template <class Shape, class W>
class AffineSearch {
public:
  /// `unit` is the power of two at or below the largest magnitude among `values`.
  constexpr AffineSearch(std::span<const float, Shape::values> values, const W& weights, float unit,
                         AffineEffort effort) noexcept
      : unit_(unit), effort_(effort), source_(values, weights, unit, effort) {}

  /// The block, or nothing when a scale does not fit binary16.
  [[nodiscard]] constexpr std::optional<AffineBlock<Shape>> run() const noexcept {
    const std::optional<Pair> start = choose_pair();
    if (!start) return std::nullopt;
    Choice best;
    best.pair = *start;
    for (std::size_t g = 0; g < Shape::groups; ++g)
      search_group(g, best);
    Tally tally = count(best);
    for (int round = 0; round < effort_.rounds; ++round) {
      Choice refined = best;
      if (!refine(refined, tally)) break;
      const Tally refined_tally = count(refined);
      if (refined_tally.error >= tally.error) break;
      best = refined;
      tally = refined_tally;
    }
    return block_of(best);
  }

private:
  static constexpr float code_max = Shape::code_max;
  static constexpr float field_max = Shape::field_max;

  /// The block's scale and offset, neither negative: signs are the source's.
  struct Pair {
    float scale = 0.0f;
    float offset = 0.0f;
  };
  struct Choice {
    Pair pair;
    std::array<int, Shape::groups> scales{};
    std::array<int, Shape::groups> offsets{};
  };
  /// The squared error of a block, and the sums that least squares needs.
  struct Tally {
    float error = 0.0f;
    std::int64_t scale_scale = 0, scale_offset = 0, offset_offset = 0;
    float scale_miss = 0.0f, offset_miss = 0.0f;
  };

  constexpr float scale_of(const Choice& choice, std::size_t g) const noexcept {
    return choice.pair.scale * static_cast<float>(choice.scales[g]);
  }
  constexpr float offset_of(const Choice& choice, std::size_t g) const noexcept {
    return source_.sign() * choice.pair.offset * static_cast<float>(choice.offsets[g]);
  }

  /// The block scales whose multiples come closest to all lines.
  constexpr std::optional<Pair> choose_pair() const noexcept {
    const auto scale = closest(source_.widest(), scale_steps,
                               [&](float candidate) { return scale_cost(candidate); });
    if (!scale) return std::nullopt;
    const auto offset = closest(source_.deepest(), offset_steps, [&](float candidate) {
      return offset_cost({*scale, candidate});
    });
    if (!offset) return std::nullopt;
    return Pair{*scale, *offset};
  }

  /// The block scale of least cost among those whose multiple, the greatest there is or some steps
  /// below, gives `greatest`.
  template <std::size_t N, class Cost>
  constexpr std::optional<float> closest(float greatest, const std::array<int, N>& steps,
                                         Cost cost) const noexcept {
    const int top = top_multiple(greatest, unit_, Shape::field_max);
    std::optional<float> best;
    float least = 1e30f;
    for (int i = 0; i < std::min(effort_.steps, static_cast<int>(N)); ++i) {
      const int step = steps[static_cast<std::size_t>(i)];
      if (step >= top && step > 0) break;
      const float candidate = held_in_half(greatest / static_cast<float>(top - step), unit_);
      if (!is_finite(candidate)) continue;
      const float own = cost(candidate);
      if (own >= least) continue;
      least = own;
      best = candidate;
    }
    return best;
  }

  /// The squared error that nearest multiples of `scale` add, each with its best offset.
  constexpr float scale_cost(float scale) const noexcept {
    float cost = 0.0f;
    for (const AffineLine& line : source_.lines()) {
      const float dx = rounded(scale * static_cast<float>(nearest(line.scale, scale))) - line.scale;
      cost += rounded(dx * dx * line.spread);
    }
    return cost;
  }

  /// The squared error that nearest multiples of the offset add when scales are nearest multiples.
  constexpr float offset_cost(Pair pair) const noexcept {
    float cost = 0.0f;
    for (const AffineLine& line : source_.lines()) {
      const int scale = nearest(line.scale, pair.scale);
      const float dx = rounded(pair.scale * static_cast<float>(scale)) - line.scale;
      const float wanted = line.offset - rounded(dx * line.mean);
      const int multiple = nearest(source_.sign() * wanted, pair.offset);
      const float dy =
          rounded(source_.sign() * pair.offset * static_cast<float>(multiple)) - wanted;
      cost += rounded(dy * dy * line.count);
    }
    return cost;
  }

  /// The multiple of `step` nearest to `value`.
  static constexpr int nearest(float value, float step) noexcept {
    if (value <= 0.0f || step <= 0.0f) return 0;
    const float multiple = value / step;
    return multiple >= field_max ? Shape::field_max : static_cast<int>(multiple + 0.5f);
  }

  /// The offset that goes best with a scale other than the line's, for the line's codes.
  constexpr int offset_beside(const AffineLine& line, Pair pair, int scale) const noexcept {
    const float dx = rounded(pair.scale * static_cast<float>(scale)) - line.scale;
    return nearest(source_.sign() * (line.offset - rounded(dx * line.mean)), pair.offset);
  }

  /// Tries multiples around a group's line, first in steps of two, then next to the best.
  constexpr void search_group(std::size_t g, Choice& choice) const noexcept {
    const Pair pair = choice.pair;
    const AffineLine& line = source_.lines()[g];
    const float range = source_.range(g);
    int best_scale = nearest(line.scale, pair.scale);
    int best_offset = offset_beside(line, pair, best_scale);
    if (pair.scale <= 0.0f || (range <= 0.0f && source_.low(g) == 0.0f)) {
      choice.offsets[g] = best_offset;
      return;
    }
    if (effort_.reach < 0) {
      choice.scales[g] = std::max(best_scale, 1);
      choice.offsets[g] = offset_beside(line, pair, choice.scales[g]);
      return;
    }
    const float span = std::max({range, code_max * pair.scale, pair.offset});
    const auto weights = source_.weights(g);
    const auto run = GridRun<Shape::length>::from(source_.group(g), source_.low(g), span);
    const float low = source_.low(g) / run.unit;
    const float step = source_.sign() * pair.offset / run.unit;
    float least = 1e30f;
    const auto attempt = [&](int scale, int first, int last) {
      if (scale < 1 || scale > Shape::field_max) return;
      const float width = pair.scale * static_cast<float>(scale);
      const std::int16_t rate = grid_rate(run.unit, width);
      if (rate == 0) return;
      last = std::min(last, Shape::field_max);
      for (int offset = std::max(first, 0); offset <= last; ++offset) {
        const float origin = rounded(step * static_cast<float>(offset)) - low;
        if (magnitude(origin) >= grid_span) continue;
        const auto error = grid_error<0, Shape::code_max>(
            run.at, {static_cast<std::int16_t>(origin), rate}, weights);
        const float scaled = static_cast<float>(error) * width * width;
        if (scaled >= least) continue;
        least = scaled;
        best_scale = scale;
        best_offset = offset;
      }
    };
    // A scale of 0 does nothing that codes of 0 can't do.
    const int center = std::max(best_scale, 1);
    attempt(center, best_offset, best_offset);
    for (int scale = center - effort_.reach; scale <= center + effort_.reach; scale += 2) {
      const int beside = offset_beside(line, pair, scale);
      attempt(scale, beside - effort_.sway, beside + effort_.sway);
    }
    const int near_scale = best_scale;
    const int near_offset = best_offset;
    for (int scale = near_scale - 1; scale <= near_scale + 1; ++scale)
      attempt(scale, near_offset - 1, near_offset + 1);
    choice.scales[g] = best_scale;
    choice.offsets[g] = best_offset;
  }

  constexpr Coded<Shape::length> code_group(const Choice& choice, std::size_t g) const noexcept {
    return code_values<0, Shape::code_max, Shape::length>(source_.group(g), scale_of(choice, g),
                                                          offset_of(choice, g));
  }

  constexpr Tally count(const Choice& choice) const noexcept {
    Tally tally;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      const auto weights = source_.weights(g);
      const auto coded = code_group(choice, g);
      typename W::Sum error = 0, weight = 0, code = 0, square = 0, miss = 0, product = 0;
      for (std::size_t i = 0; i < Shape::length; ++i) {
        error += weights[i] * (coded.misses[i] * coded.misses[i]);
        weight += weights[i];
        code += weights[i] * coded.codes[i];
        square += weights[i] * (coded.codes[i] * coded.codes[i]);
        miss += weights[i] * coded.misses[i];
        product += weights[i] * (coded.misses[i] * coded.codes[i]);
      }
      const float unit = scale_of(choice, g) / Coded<Shape::length>::code;
      const std::int64_t x = choice.scales[g];
      const std::int64_t y = source_.sign() < 0.0f ? -choice.offsets[g] : choice.offsets[g];
      tally.error += rounded(static_cast<float>(error) * unit * unit);
      tally.scale_scale += x * x * square;
      tally.scale_offset += x * y * code;
      tally.offset_offset += y * y * weight;
      tally.scale_miss += rounded(unit * static_cast<float>(x * product));
      tally.offset_miss += rounded(unit * static_cast<float>(y * miss));
    }
    return tally;
  }

  /// Block scales by least squares for the codes counted. False when they stay as they are.
  constexpr bool refine(Choice& choice, const Tally& tally) const noexcept {
    const auto a = static_cast<float>(tally.scale_scale);
    const auto b = static_cast<float>(tally.scale_offset);
    const auto c = static_cast<float>(tally.offset_offset);
    const float p = tally.scale_miss;
    const float q = tally.offset_miss;
    const float determinant = rounded(a * c) - rounded(b * b);
    Pair pair = choice.pair;
    if (determinant > rounded(a * c) * 0x1p-16f) {
      pair.scale += (rounded(p * c) - rounded(q * b)) / determinant;
      pair.offset += (rounded(q * a) - rounded(p * b)) / determinant;
    } else if (a > 0.0f) {
      pair.scale += p / a;
    } else {
      return false;
    }
    pair.scale = held_in_half(pair.scale, unit_);
    pair.offset = held_in_half(pair.offset, unit_);
    const auto close = [](float refined, float old) {
      return refined >= old * 0.5f && refined <= old * 2.0f;
    };
    if (!close(pair.scale, choice.pair.scale) || !close(pair.offset, choice.pair.offset))
      return false;
    if (pair.scale == choice.pair.scale && pair.offset == choice.pair.offset) return false;
    choice.pair = pair;
    return true;
  }

  constexpr AffineBlock<Shape> block_of(const Choice& choice) const noexcept {
    AffineBlock<Shape> block;
    const Pair pair = choice.pair;
    if (pair.scale > 0.0f) block.scale = source_.mirror() * pair.scale * unit_;
    if (pair.offset > 0.0f) block.offset = -source_.mirror() * source_.sign() * pair.offset * unit_;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      block.scales[g] = static_cast<std::uint8_t>(choice.scales[g]);
      block.offsets[g] = static_cast<std::uint8_t>(choice.offsets[g]);
      const auto coded = code_group(choice, g);
      for (std::size_t i = 0; i < Shape::length; ++i)
        block.codes[g * Shape::length + i] = static_cast<std::uint8_t>(coded.codes[i]);
    }
    return block;
  }

  static constexpr std::array<int, 12> scale_steps{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  static constexpr std::array<int, 10> offset_steps{0, 1, 2, 3, 4, 5, 6, 7, 8, 31};

  float unit_;
  AffineEffort effort_;
  AffineLines<Shape, W> source_;
};

/// The block of least squared error that the search finds, weighted by `importance` unless that is
/// empty or all zero; nothing when a scale does not fit binary16. Importances must be finite and
/// not negative. `peak` is the largest magnitude among `values`.
template <class Shape>
[[nodiscard]] constexpr std::optional<AffineBlock<Shape>>
search_affine(std::span<const float, Shape::values> values, std::span<const float> importance,
              float peak, AffineEffort effort = thorough_search) noexcept {
  // Below half of the least binary16 number, zeros are nearest.
  if (peak <= 0x1p-25f) return AffineBlock<Shape>{};
  if (peak >= 0x1p28f) return std::nullopt;
  const float unit = power_of_two_below(peak);
  float greatest = 0.0f;
  for (const float value : importance)
    greatest = std::max(greatest, value);
  if (greatest > 0.0f) {
    const auto weights = Weights<Shape::values>::from(importance, greatest);
    return AffineSearch<Shape, Weights<Shape::values>>(values, weights, unit, effort).run();
  }
  return AffineSearch<Shape, EqualWeights>(values, EqualWeights{}, unit, effort).run();
}

} // namespace quern::detail
