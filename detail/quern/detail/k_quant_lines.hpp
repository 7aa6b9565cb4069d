// floor: 0.3
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/k_quant_grid.hpp>

/// @file
/// The first half of the search behind K-quants with a scale and an offset per group: the best line
/// code -> scale * code + offset through each group by itself.

namespace quern::detail {

/// A block format's numbers: codes 0..CodeMax, multiples of the block scales 0..FieldMax.
template <std::size_t Groups, std::size_t Length, int CodeMax, int FieldMax>
struct AffineShape {
  static constexpr std::size_t groups = Groups;
  static constexpr std::size_t length = Length;
  static constexpr std::size_t values = Groups * Length;
  static constexpr int code_max = CodeMax;
  static constexpr int field_max = FieldMax;
};

/// How far the search goes.
struct AffineEffort {
  int first_fit; ///< fifths of a code that a line's first grid is wider than the group, below zero
  int fit_step;  ///< fifths from one grid to the next
  int steps;     ///< block scales tried for the widest group, and for the deepest offset
  int reach;     ///< scales tried on either side of a group's line, in steps of two; -1: none
  int sway;      ///< offsets tried on either side of the one that goes best with a scale
  int rounds;    ///< times that the block scales are improved
};
inline constexpr AffineEffort thorough_search{-5, 2, 12, 6, 3, 2};
inline constexpr AffineEffort quick_search{-3, 4, 6, -1, 0, 1};

/// The line through a group: its squared error, and what that gains when the line moves: count dy^2
/// when it is off by dy at code `mean`, spread dx^2 when its scale is off by dx.
struct AffineLine {
  float scale = 0.0f;
  float offset = 0.0f;
  float error = 0.0f;
  float count = 0.0f;
  float mean = 0.0f;
  float spread = 0.0f;
};

/// A block in units of a power of two near its largest magnitude, and the line of each group.
template <class Shape, class W>
class AffineLines {
public:
  /// `unit` is the power of two at or below the largest magnitude among `values`.
  constexpr AffineLines(std::span<const float, Shape::values> values, const W& weights, float unit,
                        AffineEffort effort) noexcept
      : weights_(weights) {
    const float inverse = 1.0f / unit;
    for (std::size_t i = 0; i < Shape::values; ++i)
      values_[i] = values[i] * inverse;
    orient();
    for (std::size_t g = 0; g < Shape::groups; ++g)
      lines_[g] = fit(g, effort);
    widen_for_coarse_offsets();
  }

  /// The values of group g, times mirror().
  [[nodiscard]] constexpr const float* group(std::size_t g) const noexcept {
    return values_.data() + g * Shape::length;
  }
  [[nodiscard]] constexpr auto weights(std::size_t g) const noexcept {
    return weights_.template group<Shape::length>(g);
  }
  [[nodiscard]] constexpr const std::array<AffineLine, Shape::groups>& lines() const noexcept {
    return lines_;
  }
  /// The low end of group g: what code 0 stands for when nothing is clipped.
  [[nodiscard]] constexpr float low(std::size_t g) const noexcept { return low_[g]; }
  [[nodiscard]] constexpr float range(std::size_t g) const noexcept { return high_[g] - low_[g]; }
  /// The sign of all offsets, 1 or -1.
  [[nodiscard]] constexpr float sign() const noexcept { return sign_; }
  /// 1, or -1 when the scales of the block are to be negative.
  [[nodiscard]] constexpr float mirror() const noexcept { return mirror_; }
  /// The largest scale, and the largest magnitude of an offset.
  [[nodiscard]] constexpr float widest() const noexcept {
    float widest = 0.0f;
    for (const AffineLine& line : lines_)
      widest = std::max(widest, line.scale);
    return widest;
  }
  [[nodiscard]] constexpr float deepest() const noexcept {
    float deepest = 0.0f;
    for (const AffineLine& line : lines_)
      deepest = std::max(deepest, sign_ * line.offset);
    return deepest;
  }

private:
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

  constexpr AffineLine fit(std::size_t g, AffineEffort effort) const noexcept {
    const auto group_weights = weights(g);
    AffineLine best;
    if (range(g) < 0x1p-40f) {
      best.offset = low_[g];
      for (std::size_t i = 0; i < Shape::length; ++i)
        best.count += static_cast<float>(group_weights[i]);
      return best;
    }
    const auto run = GridRun<Shape::length>::from(group(g), low_[g], range(g));
    best.error = 1e30f;
    // From one code of clipping at the far end to one unused code.
    for (int fifths = effort.first_fit; fifths <= 5; fifths += effort.fit_step) {
      constexpr int whole = 65536 / grid_span * grid_code; // the rate of one code to the range
      const int rate = Shape::code_max * whole - fifths * whole / 5;
      const auto moments = grid_moments<0, Shape::code_max>(
          run.at, {0, static_cast<std::int16_t>(rate)}, group_weights);
      const AffineLine line = line_through(moments, range(g) * whole / static_cast<float>(rate), g);
      if (line.error < best.error) best = line;
    }
    return best;
  }

  /// Least squares for fixed codes; `moments` are those of a grid with code 0 at low_[g].
  constexpr AffineLine line_through(const GridMoments& moments, float scale,
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

  /// Where neighbouring multiples of the block's offset lie codes apart, codes must reach across
  /// the gap.
  constexpr void widen_for_coarse_offsets() noexcept {
    const float gap = deepest() / static_cast<float>(Shape::field_max);
    for (std::size_t g = 0; g < Shape::groups; ++g)
      if (gap > 2.0f * lines_[g].scale)
        lines_[g].scale = std::max(lines_[g].scale,
                                   (range(g) + gap / 2.0f) / static_cast<float>(Shape::code_max));
  }

  float mirror_ = 1.0f;
  float sign_ = -1.0f;
  W weights_;
  std::array<float, Shape::values> values_{};
  std::array<float, Shape::groups> low_{};
  std::array<float, Shape::groups> high_{};
  std::array<AffineLine, Shape::groups> lines_{};
};

} // namespace quern::detail
