// floor: 0.3
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/k_quant_grid.hpp>

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

/// A block format's numbers: codes 0..CodeMax, multiples 0..FieldMax.
template <std::size_t Groups, std::size_t Length, int CodeMax, int FieldMax>
struct AffineShape {
  static constexpr std::size_t groups = Groups;
  static constexpr std::size_t length = Length;
  static constexpr std::size_t values = Groups * Length;
  static constexpr int code_max = CodeMax;
  static constexpr int field_max = FieldMax;
};

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
  constexpr AffineSearch(std::span<const float, Shape::values> values, const W& weights,
                         float unit) noexcept
      : unit_(unit), weights_(weights) {
    const float inverse = 1.0f / unit;
    for (std::size_t i = 0; i < Shape::values; ++i)
      values_[i] = values[i] * inverse;
    orient();
  }

  /// The block, or nothing when a scale does not fit binary16.
  [[nodiscard]] constexpr std::optional<AffineBlock<Shape>> run() noexcept {
    for (std::size_t g = 0; g < Shape::groups; ++g)
      fit(g);
    const std::optional<Pair> start = choose_pair();
    if (!start) return std::nullopt;
    Choice best;
    best.pair = *start;
    for (std::size_t g = 0; g < Shape::groups; ++g)
      search_group(g, best);
    Tally tally = count(best);
    for (int round = 0; round < 2; ++round) {
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

  /// The line code -> scale * code + offset through a group: its squared error, and what that gains
  /// when the line moves: count dy^2 when it is off by dy at code `mean`, spread dx^2 when its
  /// scale is off by dx.
  struct Line {
    float scale = 0.0f;
    float offset = 0.0f;
    float error = 0.0f;
    float count = 0.0f;
    float mean = 0.0f;
    float spread = 0.0f;
  };
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
    return sign_ * choice.pair.offset * static_cast<float>(choice.offsets[g]);
  }
  constexpr const float* group(std::size_t g) const noexcept {
    return values_.data() + g * Shape::length;
  }

  /// Multiples have no sign, so one sign of the offsets serves all groups; the sign of the scales
  /// decides whether offsets lie at the low or the high end. Takes the signs for which the ranges
  /// that the groups must cover are least. (0 is always covered where an offset can't pass it.)
  constexpr void orient() noexcept {
    float below = 0, above = 0, below_mirrored = 0, above_mirrored = 0;
    bool positive = true, negative = true;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      float low = group(g)[0], high = low;
      for (std::size_t i = 1; i < Shape::length; ++i) {
        low = group(g)[i] < low ? group(g)[i] : low;
        high = group(g)[i] > high ? group(g)[i] : high;
      }
      low_[g] = low;
      high_[g] = high;
      const auto square = [](float range) { return rounded(range * range); };
      below += square(high - std::min(low, 0.0f));
      below_mirrored += square(std::max(high, 0.0f) - low);
      above += square(high - low);
      positive = positive && low >= 0.0f;
      negative = negative && high <= 0.0f;
    }
    above_mirrored = above;
    const float unusable = 1e9f;
    if (!positive) above = unusable;
    if (!negative) above_mirrored = unusable;
    const bool mirror = std::min(below_mirrored, above_mirrored) < std::min(below, above);
    sign_ = (mirror ? above_mirrored < below_mirrored : above < below) ? 1.0f : -1.0f;
    if (mirror) {
      mirror_ = -1.0f;
      for (float& value : values_)
        value = -value;
      for (std::size_t g = 0; g < Shape::groups; ++g) {
        const float low = low_[g];
        low_[g] = -high_[g];
        high_[g] = -low;
      }
    }
    for (std::size_t g = 0; g < Shape::groups; ++g)
      low_[g] = sign_ < 0.0f ? std::min(low_[g], 0.0f) : std::max(low_[g], 0.0f);
  }

  constexpr void fit(std::size_t g) noexcept {
    const auto weights = weights_.template group<Shape::length>(g);
    const float range = high_[g] - low_[g];
    Line& best = lines_[g];
    if (range < 0x1p-40f) {
      best.offset = low_[g];
      for (std::size_t i = 0; i < Shape::length; ++i)
        best.count += static_cast<float>(weights[i]);
      return;
    }
    const auto run = GridRun<Shape::length>::from(group(g), low_[g], range);
    best.error = 1e30f;
    // From one code of clipping at the far end to one unused code.
    for (int fifths = -5; fifths <= 5; fifths += 2) {
      const auto rate = static_cast<std::int16_t>(Shape::code_max * 512 - fifths * 512 / 5);
      const float scale = range / (static_cast<float>(rate) / 512.0f);
      const Line line =
          line_through(grid_moments<0, Shape::code_max>(run.at, {0, rate}, weights), scale, g);
      if (line.error < best.error) best = line;
    }
  }

  /// Least squares for fixed codes; `moments` are those of a grid with code 0 at low_[g].
  constexpr Line line_through(const GridMoments& moments, float scale,
                              std::size_t g) const noexcept {
    const float unit = scale / grid_code;
    const float determinant =
        rounded(moments.squares * moments.count) - rounded(moments.codes * moments.codes);
    float slope = 0.0f;
    float shift = 0.0f;
    if (determinant > 0.0f) {
      slope =
          (rounded(moments.miss_codes * moments.count) - rounded(moments.miss * moments.codes)) /
          determinant;
      shift =
          (rounded(moments.squares * moments.miss) - rounded(moments.codes * moments.miss_codes)) /
          determinant;
    } else if (moments.count > 0.0f) {
      shift = moments.miss / moments.count;
    }
    float offset = low_[g] + rounded(unit * shift);
    if (offset * sign_ < 0.0f) { // the offset can't pass zero: the best line through zero
      offset = 0.0f;
      shift = -low_[g] / unit;
      slope = moments.squares > 0.0f
                  ? (moments.miss_codes - rounded(shift * moments.codes)) / moments.squares
                  : 0.0f;
    }
    const float error =
        moments.miss_squares +
        rounded(slope * (rounded(slope * moments.squares) + 2.0f * rounded(shift * moments.codes) -
                         2.0f * moments.miss_codes)) +
        rounded(shift * (rounded(shift * moments.count) - 2.0f * moments.miss));
    const float mean = moments.count > 0.0f ? moments.codes / moments.count : 0.0f;
    return {scale + rounded(unit * slope),
            offset,
            std::max(error, 0.0f) * unit * unit,
            moments.count,
            mean,
            moments.squares - rounded(mean * moments.codes)};
  }

  /// The block scales whose multiples come closest to all lines.
  constexpr std::optional<Pair> choose_pair() noexcept {
    float deepest = 0.0f;
    for (const Line& line : lines_)
      deepest = std::max(deepest, sign_ * line.offset);
    // Where neighbouring offsets lie codes apart, codes must reach across the gap.
    const float gap = deepest / field_max;
    float widest = 0.0f;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      if (gap > 2.0f * lines_[g].scale)
        lines_[g].scale = std::max(lines_[g].scale, (high_[g] - low_[g] + gap / 2.0f) / code_max);
      widest = std::max(widest, lines_[g].scale);
    }
    const std::optional<float> scale =
        closest(widest, scale_steps, [&](float candidate) { return scale_cost(candidate); });
    if (!scale) return std::nullopt;
    const std::optional<float> offset = closest(deepest, offset_steps, [&](float candidate) {
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
    for (const int step : steps) {
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
    for (const Line& line : lines_) {
      const float dx = rounded(scale * static_cast<float>(nearest(line.scale, scale))) - line.scale;
      cost += rounded(dx * dx * line.spread);
    }
    return cost;
  }

  /// The squared error that nearest multiples of the offset add when scales are nearest multiples.
  constexpr float offset_cost(Pair pair) const noexcept {
    float cost = 0.0f;
    for (const Line& line : lines_) {
      const int scale = nearest(line.scale, pair.scale);
      const float dx = rounded(pair.scale * static_cast<float>(scale)) - line.scale;
      const float wanted = line.offset - rounded(dx * line.mean);
      const int multiple = nearest(sign_ * wanted, pair.offset);
      const float dy = rounded(sign_ * pair.offset * static_cast<float>(multiple)) - wanted;
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
  constexpr int offset_beside(const Line& line, Pair pair, int scale) const noexcept {
    const float dx = rounded(pair.scale * static_cast<float>(scale)) - line.scale;
    return nearest(sign_ * (line.offset - rounded(dx * line.mean)), pair.offset);
  }

  /// Tries multiples around a group's line, first in steps of two, then next to the best.
  constexpr void search_group(std::size_t g, Choice& choice) noexcept {
    const Pair pair = choice.pair;
    const Line& line = lines_[g];
    const float range = high_[g] - low_[g];
    int best_scale = nearest(line.scale, pair.scale);
    int best_offset = offset_beside(line, pair, best_scale);
    if (pair.scale <= 0.0f || (range <= 0.0f && low_[g] == 0.0f)) {
      choice.offsets[g] = best_offset;
      return;
    }
    const float span = std::max({range, code_max * pair.scale, pair.offset});
    const auto weights = weights_.template group<Shape::length>(g);
    const auto run = GridRun<Shape::length>::from(group(g), low_[g], span);
    const float low = low_[g] / run.unit;
    const float step = sign_ * pair.offset / run.unit;
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
    for (int scale = center - reach; scale <= center + reach; scale += 2) {
      const int beside = offset_beside(line, pair, scale);
      attempt(scale, beside - sway, beside + sway);
    }
    const int near_scale = best_scale;
    const int near_offset = best_offset;
    for (int scale = near_scale - 1; scale <= near_scale + 1; ++scale)
      attempt(scale, near_offset - 1, near_offset + 1);
    choice.scales[g] = best_scale;
    choice.offsets[g] = best_offset;
  }

  /// Codes of a group and, in 1/4096 codes, how far the values lie from them (at most two codes).
  struct Coded {
    std::array<std::int16_t, Shape::length> codes{};
    std::array<std::int16_t, Shape::length> misses{};
  };

  constexpr Coded code_group(const Choice& choice, std::size_t g) const noexcept {
    Coded coded;
    const float scale = scale_of(choice, g);
    const float offset = offset_of(choice, g);
    const float rate = scale > 0.0f ? 4096.0f / scale : 0.0f;
    constexpr float lowest = -8191.0f;
    constexpr float highest = 4096.0f * code_max + 8191.0f;
    std::array<std::int32_t, Shape::length> at{};
    for (std::size_t i = 0; i < Shape::length; ++i) {
      const float place = (group(g)[i] - offset) * rate;
      const float raised = place < lowest ? lowest : place;
      at[i] = static_cast<std::int32_t>(raised > highest ? highest : raised);
    }
    for (std::size_t i = 0; i < Shape::length; ++i) {
      const std::int32_t nearest = (at[i] + 2048) >> 12;
      const std::int32_t raised = nearest < 0 ? 0 : nearest;
      const std::int32_t code = raised > Shape::code_max ? Shape::code_max : raised;
      coded.codes[i] = static_cast<std::int16_t>(code);
      coded.misses[i] = static_cast<std::int16_t>(at[i] - (code << 12));
    }
    return coded;
  }

  constexpr Tally count(const Choice& choice) const noexcept {
    Tally tally;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      const auto weights = weights_.template group<Shape::length>(g);
      const Coded coded = code_group(choice, g);
      typename W::Sum error = 0, weight = 0, code = 0, square = 0, miss = 0, product = 0;
      for (std::size_t i = 0; i < Shape::length; ++i) {
        error += weights[i] * (coded.misses[i] * coded.misses[i]);
        weight += weights[i];
        code += weights[i] * coded.codes[i];
        square += weights[i] * (coded.codes[i] * coded.codes[i]);
        miss += weights[i] * coded.misses[i];
        product += weights[i] * (coded.misses[i] * coded.codes[i]);
      }
      const float unit = scale_of(choice, g) * 0x1p-12f;
      const std::int64_t x = choice.scales[g];
      const std::int64_t y = sign_ < 0.0f ? -choice.offsets[g] : choice.offsets[g];
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
    if (pair.scale > 0.0f) block.scale = mirror_ * pair.scale * unit_;
    if (pair.offset > 0.0f) block.offset = -mirror_ * sign_ * pair.offset * unit_;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      block.scales[g] = static_cast<std::uint8_t>(choice.scales[g]);
      block.offsets[g] = static_cast<std::uint8_t>(choice.offsets[g]);
      const Coded coded = code_group(choice, g);
      for (std::size_t i = 0; i < Shape::length; ++i)
        block.codes[g * Shape::length + i] = static_cast<std::uint8_t>(coded.codes[i]);
    }
    return block;
  }

  static constexpr std::array<int, 12> scale_steps{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  static constexpr std::array<int, 10> offset_steps{0, 1, 2, 3, 4, 5, 6, 7, 8, 31};
  static constexpr int reach = 6;
  static constexpr int sway = 3;

  float unit_;
  float mirror_ = 1.0f;
  float sign_ = -1.0f;
  W weights_;
  std::array<float, Shape::values> values_{};
  std::array<float, Shape::groups> low_{};
  std::array<float, Shape::groups> high_{};
  std::array<Line, Shape::groups> lines_{};
};

/// The block of least squared error that the search finds, weighted by `importance` unless that is
/// empty or all zero; nothing when a scale does not fit binary16. Importances must be finite and
/// not negative. `peak` is the largest magnitude among `values`.
template <class Shape>
[[nodiscard]] constexpr std::optional<AffineBlock<Shape>>
search_affine(std::span<const float, Shape::values> values, std::span<const float> importance,
              float peak) noexcept {
  // Below half of the least binary16 number, zeros are nearest.
  if (peak <= 0x1p-25f) return AffineBlock<Shape>{};
  if (peak >= 0x1p28f) return std::nullopt;
  const float unit = power_of_two_below(peak);
  float greatest = 0.0f;
  for (const float value : importance)
    greatest = std::max(greatest, value);
  if (greatest > 0.0f) {
    const auto weights = Weights<Shape::values>::from(importance, greatest);
    return AffineSearch<Shape, Weights<Shape::values>>(values, weights, unit).run();
  }
  return AffineSearch<Shape, EqualWeights>(values, EqualWeights{}, unit).run();
}

} // namespace quern::detail
