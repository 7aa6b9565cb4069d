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
/// The search behind K-quants with a signed scale per group:
///
///     value = scale * scales[g] * code
///
/// with a binary16 scale and small signed integers for the rest. There is one more code below zero
/// than above, so the scale of a group takes the sign that puts its largest value there. The
/// squared error, weighted by importance, is lowered in four steps: the best scale of each group by
/// itself; the block scale whose multiples come closest to these; for each group, the multiples
/// next to its scale; the block scale once more, by least squares for the codes found.

namespace quern::detail {

/// A block format's numbers: codes CodeLow..-CodeLow - 1, multiples FieldLow..-FieldLow - 1.
template <std::size_t Groups, std::size_t Length, int CodeLow, int FieldLow>
struct SymmetricShape {
  static constexpr std::size_t groups = Groups;
  static constexpr std::size_t length = Length;
  static constexpr std::size_t values = Groups * Length;
  static constexpr int code_low = CodeLow;
  static constexpr int code_high = -CodeLow - 1;
  static constexpr int field_low = FieldLow;
  static constexpr int field_high = -FieldLow - 1;
};

/// What a block stores.
template <class Shape>
struct SymmetricBlock {
  float scale = 0.0f;
  std::array<std::int8_t, Shape::groups> scales{};
  std::array<std::int8_t, Shape::values> codes{};
};

template <class Shape, class W>
class SymmetricSearch {
public:
  /// `unit` is the power of two at or below the largest magnitude among `values`.
  constexpr SymmetricSearch(std::span<const float, Shape::values> values, const W& weights,
                            float unit) noexcept
      : unit_(unit), weights_(weights) {
    const float inverse = 1.0f / unit;
    for (std::size_t i = 0; i < Shape::values; ++i)
      values_[i] = values[i] * inverse;
    for (std::size_t g = 0; g < Shape::groups; ++g)
      measure(g);
  }

  /// The block, or nothing when its scale does not fit binary16.
  [[nodiscard]] constexpr std::optional<SymmetricBlock<Shape>> run() const noexcept {
    std::array<Line, Shape::groups> lines{};
    for (std::size_t g = 0; g < Shape::groups; ++g)
      lines[g] = fit(g);
    const std::optional<float> scale = choose_scale(lines);
    if (!scale) return std::nullopt;
    Choice best;
    best.scale = *scale;
    for (std::size_t g = 0; g < Shape::groups; ++g)
      best.scales[g] = groups_[g].side * search_multiple(g, lines[g].scale, best.scale);
    refine(best);
    return block_of(best);
  }

private:
  static constexpr float code_span = -Shape::code_low;

  struct Group {
    float peak = 0.0f; ///< largest magnitude
    int side = 1;      ///< sign of the scale that turns the peak negative
    std::array<std::int16_t, Shape::length> run{};
  };
  /// The best scale of a group by itself, positive, and what the squared error gains when the scale
  /// is off by dx: squares dx^2.
  struct Line {
    float scale = 0.0f;
    float squares = 0.0f;
  };
  struct Choice {
    float scale = 0.0f;
    std::array<int, Shape::groups> scales{};
  };

  constexpr const float* group(std::size_t g) const noexcept {
    return values_.data() + g * Shape::length;
  }
  constexpr float scale_of(const Choice& choice, std::size_t g) const noexcept {
    return choice.scale * static_cast<float>(choice.scales[g]);
  }

  constexpr void measure(std::size_t g) noexcept {
    float low = 0.0f, high = 0.0f;
    for (std::size_t i = 0; i < Shape::length; ++i) {
      low = group(g)[i] < low ? group(g)[i] : low;
      high = group(g)[i] > high ? group(g)[i] : high;
    }
    Group& measured = groups_[g];
    measured.side = high > -low ? -1 : 1;
    measured.peak = std::max(high, -low);
    if (measured.peak < 0x1p-60f) measured.peak = 0.0f;
    if (measured.peak == 0.0f) return;
    const float span = static_cast<float>(measured.side) * measured.peak;
    measured.run = GridRun<Shape::length>::from(group(g), 0.0f, span).at;
  }

  constexpr Line fit(std::size_t g) const noexcept {
    const Group& group = groups_[g];
    Line best;
    if (group.peak == 0.0f) return best;
    const auto weights = weights_.template group<Shape::length>(g);
    constexpr int whole = 65536 / grid_span * grid_code; // the rate that puts the peak on code 1
    float least = 1e30f;
    const auto attempt = [&](int eighths) {
      // The peak lies that far beyond the last code, or short of it.
      const int rate = -Shape::code_low * whole + eighths * whole / 8;
      const auto moments = grid_moments<Shape::code_low, Shape::code_high>(
          group.run, {0, static_cast<std::int16_t>(rate)}, weights);
      if (moments.squares <= 0.0f) return;
      const float scale = group.peak * whole / static_cast<float>(rate);
      const float slope = moments.miss_codes / moments.squares;
      const float error =
          (moments.miss_squares - rounded(slope * moments.miss_codes)) * scale * scale;
      if (error >= least) return;
      least = error;
      best = {scale + rounded(scale * slope) / grid_code, moments.squares};
    };
    for (const int eighths : {0, 5, -5, -10, -15, -20, -25, -30})
      attempt(eighths);
    return best;
  }

  /// The block scale whose multiples come closest to all lines.
  constexpr std::optional<float>
  choose_scale(const std::array<Line, Shape::groups>& lines) const noexcept {
    float widest = 0.0f;
    for (const Line& line : lines)
      widest = std::max(widest, line.scale);
    const int top = top_multiple(widest, unit_, -Shape::field_low);
    std::optional<float> best;
    float least = 1e30f;
    for (int multiple = top; multiple >= std::max(top - scale_steps, 1); --multiple) {
      const float scale = held_in_half(widest / static_cast<float>(multiple), unit_);
      if (!is_finite(scale)) continue;
      float cost = 0.0f;
      for (std::size_t g = 0; g < Shape::groups; ++g) {
        const float held = scale * static_cast<float>(nearest(g, lines[g].scale, scale));
        const float dx = held - lines[g].scale;
        cost += rounded(dx * dx * lines[g].squares);
      }
      if (cost >= least) continue;
      least = cost;
      best = scale;
    }
    return best;
  }

  /// The multiple of `step`, at least 1, nearest to `value`.
  constexpr int nearest(std::size_t g, float value, float step) const noexcept {
    return std::clamp(static_cast<int>(value / step + 0.5f), 1, greatest(g));
  }
  constexpr int greatest(std::size_t g) const noexcept {
    return groups_[g].side > 0 ? Shape::field_high : -Shape::field_low;
  }

  /// The multiple of `scale` with the least error among those around a group's line.
  constexpr int search_multiple(std::size_t g, float line, float scale) const noexcept {
    const Group& group = groups_[g];
    if (group.peak == 0.0f) return 0;
    const auto weights = weights_.template group<Shape::length>(g);
    const float whole = group.peak / scale * (65536.0f / grid_span * grid_code);
    const int center = nearest(g, line, scale);
    int best = center;
    float least = 1e30f;
    const auto attempt = [&](int multiple) {
      if (multiple < 1 || multiple > greatest(g)) return;
      const float rate = std::min(whole / static_cast<float>(multiple), 32767.0f);
      const auto error = grid_error<Shape::code_low, Shape::code_high>(
          group.run, {0, static_cast<std::int16_t>(rate)}, weights);
      const float scaled = static_cast<float>(error) * static_cast<float>(multiple * multiple);
      if (scaled >= least) return;
      least = scaled;
      best = multiple;
    };
    attempt(center);
    for (int step = 1; step <= reach; ++step) {
      attempt(center - step);
      attempt(center + step);
    }
    return best;
  }

  constexpr Coded<Shape::length> code_group(const Choice& choice, std::size_t g) const noexcept {
    return code_values<Shape::code_low, Shape::code_high, Shape::length>(group(g),
                                                                         scale_of(choice, g), 0.0f);
  }

  /// The squared error, and how much least squares wants to add to the block scale.
  struct Tally {
    float error = 0.0f;
    float adjustment = 0.0f;
  };

  constexpr Tally count(const Choice& choice) const noexcept {
    Tally tally;
    float squares = 0.0f;
    float pull = 0.0f;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      const auto weights = weights_.template group<Shape::length>(g);
      const auto coded = code_group(choice, g);
      typename W::Sum error = 0, square = 0, product = 0;
      for (std::size_t i = 0; i < Shape::length; ++i) {
        error += weights[i] * (coded.misses[i] * coded.misses[i]);
        square += weights[i] * (coded.codes[i] * coded.codes[i]);
        product += weights[i] * (coded.misses[i] * coded.codes[i]);
      }
      const float unit = scale_of(choice, g) / Coded<Shape::length>::code;
      const auto multiple = static_cast<float>(choice.scales[g]);
      tally.error += rounded(static_cast<float>(error) * unit * unit);
      squares += rounded(static_cast<float>(square) * multiple * multiple);
      pull += rounded(static_cast<float>(product) * multiple * unit);
    }
    if (squares > 0.0f) tally.adjustment = pull / squares;
    return tally;
  }

  constexpr void refine(Choice& best) const noexcept {
    Tally tally = count(best);
    for (int round = 0; round < 2; ++round) {
      Choice refined = best;
      refined.scale = held_in_half(best.scale + tally.adjustment, unit_);
      const bool close = refined.scale >= best.scale * 0.5f && refined.scale <= best.scale * 2.0f;
      if (!close || refined.scale == best.scale) return;
      const Tally refined_tally = count(refined);
      if (refined_tally.error >= tally.error) return;
      best = refined;
      tally = refined_tally;
    }
  }

  constexpr SymmetricBlock<Shape> block_of(const Choice& choice) const noexcept {
    SymmetricBlock<Shape> block;
    block.scale = choice.scale * unit_;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      block.scales[g] = static_cast<std::int8_t>(choice.scales[g]);
      const auto coded = code_group(choice, g);
      for (std::size_t i = 0; i < Shape::length; ++i)
        block.codes[g * Shape::length + i] = static_cast<std::int8_t>(coded.codes[i]);
    }
    return block;
  }

  static constexpr int scale_steps = 15;
  static constexpr int reach = 2;

  float unit_;
  W weights_;
  std::array<float, Shape::values> values_{};
  std::array<Group, Shape::groups> groups_{};
};

/// The block of least squared error that the search finds, weighted by `importance` unless that is
/// empty or all zero; nothing when the scale does not fit binary16. Importances must be finite and
/// not negative. `peak` is the largest magnitude among `values`, above 2^-25.
template <class Shape>
[[nodiscard]] constexpr std::optional<SymmetricBlock<Shape>>
search_symmetric(std::span<const float, Shape::values> values, std::span<const float> importance,
                 float peak) noexcept {
  if (peak >= 0x1p28f) return std::nullopt;
  const float unit = power_of_two_below(peak);
  float greatest = 0.0f;
  for (const float value : importance)
    greatest = std::max(greatest, value);
  if (greatest > 0.0f) {
    const auto weights = Weights<Shape::values>::from(importance, greatest);
    return SymmetricSearch<Shape, Weights<Shape::values>>(values, weights, unit).run();
  }
  return SymmetricSearch<Shape, EqualWeights>(values, EqualWeights{}, unit).run();
}

} // namespace quern::detail
