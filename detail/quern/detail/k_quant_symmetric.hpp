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

/// @file
/// The search behind K-quants with a signed scale per group:
///
///     value = scale * scales[g] * code
///
/// with a binary16 scale and small signed integers for the rest. There is one more code below zero
/// than above, so the scale of a group takes the sign that puts its largest value there. For a few
/// block scales all multiples that fit a group's range are tried; the best block scale is then
/// adjusted by least squares for the codes found.

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
    float widest = 0.0f;
    for (std::size_t g = 0; g < Shape::groups; ++g)
      widest = std::max(widest, line_scale(g));
    const int top = top_multiple(widest, unit_, -Shape::field_low);
    Choice best;
    bool found = false;
    for (const int step : steps) {
      if (step >= top && step > 0) break;
      Choice choice;
      choice.scale = held_in_half(widest / static_cast<float>(top - step), unit_);
      if (!is_finite(choice.scale)) continue;
      choice.error = 0.0f;
      for (std::size_t g = 0; g < Shape::groups && choice.error < best.error; ++g)
        search_group(g, choice);
      if (choice.error < best.error) best = choice;
      found = true;
    }
    if (!found) return std::nullopt;
    refine(best);
    return block_of(best);
  }

private:
  static constexpr float code_span = -Shape::code_low;
  // Multiples below the widest one that are tried for the super-block scale.
  static constexpr std::array steps{0, 1, 2, 3};

  struct Group {
    float peak = 0.0f; ///< largest magnitude
    int side = 1;      ///< sign of the scale that turns the peak negative
    std::array<std::int16_t, Shape::length> run{};
  };
  struct Choice {
    float scale = 0.0f;
    float error = 1e30f;
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

  /// The scale of least squares for the codes that put the peak on the last code.
  constexpr float line_scale(std::size_t g) const noexcept {
    const Group& group = groups_[g];
    if (group.peak == 0.0f) return 0.0f;
    constexpr int rate = 65536 / grid_span * grid_code * -Shape::code_low;
    const auto moments = grid_moments<Shape::code_low, Shape::code_high>(
        group.run, {0, rate}, weights_.template group<Shape::length>(g));
    const float scale = group.peak / code_span;
    if (moments.squares <= 0.0f) return scale;
    return scale + rounded(scale * (moments.miss_codes / moments.squares)) / grid_code;
  }

  /// Takes the multiple with the least error among those that put the peak near the last code.
  constexpr void search_group(std::size_t g, Choice& choice) const noexcept {
    const Group& group = groups_[g];
    if (group.peak == 0.0f) return;
    const auto weights = weights_.template group<Shape::length>(g);
    const float whole = group.peak / choice.scale; // the multiple for code 1
    const int most = group.side > 0 ? Shape::field_high : -Shape::field_low;
    float least = 1e30f;
    const float rate = whole * (65536.0f * grid_code / grid_span);
    const auto attempt = [&](int multiple) {
      const float rate_here = std::min(rate / static_cast<float>(multiple), 32767.0f);
      const auto error = grid_error<Shape::code_low, Shape::code_high>(
          group.run, {0, static_cast<std::int16_t>(rate_here)}, weights);
      const float scaled = static_cast<float>(error) * static_cast<float>(multiple * multiple);
      if (scaled >= least) return;
      least = scaled;
      choice.scales[g] = group.side * multiple;
    };
    const auto multiple_for = [&](float code) {
      return std::clamp(static_cast<int>(whole / code), 1, most);
    };
    attempt(std::clamp(static_cast<int>(whole / code_span + 0.5f), 1, most));
    const int last = multiple_for(code_span * 0.9f);
    for (int multiple = multiple_for(code_span + 1.0f); multiple <= last; ++multiple)
      attempt(multiple);
    choice.error += least;
  }

  /// Codes of a group and, in 1/4096 codes, how far the values lie from them (at most two codes).
  struct Coded {
    std::array<std::int16_t, Shape::length> codes{};
    std::array<std::int16_t, Shape::length> misses{};
  };

  constexpr Coded code_group(const Choice& choice, std::size_t g) const noexcept {
    Coded coded;
    const float scale = scale_of(choice, g);
    if (scale == 0.0f) return coded;
    const float rate = 4096.0f / scale;
    constexpr float lowest = 4096.0f * Shape::code_low - 8191.0f;
    constexpr float highest = 4096.0f * Shape::code_high + 8191.0f;
    std::array<std::int32_t, Shape::length> at{};
    for (std::size_t i = 0; i < Shape::length; ++i) {
      const float place = group(g)[i] * rate;
      const float raised = place < lowest ? lowest : place;
      at[i] = static_cast<std::int32_t>(raised > highest ? highest : raised);
    }
    for (std::size_t i = 0; i < Shape::length; ++i) {
      const std::int32_t nearest = (at[i] + 2048) >> 12;
      const std::int32_t raised = nearest < Shape::code_low ? Shape::code_low : nearest;
      const std::int32_t code = raised > Shape::code_high ? Shape::code_high : raised;
      coded.codes[i] = static_cast<std::int16_t>(code);
      coded.misses[i] = static_cast<std::int16_t>(at[i] - (code << 12));
    }
    return coded;
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
      const Coded coded = code_group(choice, g);
      typename W::Sum error = 0, square = 0, product = 0;
      for (std::size_t i = 0; i < Shape::length; ++i) {
        error += weights[i] * (coded.misses[i] * coded.misses[i]);
        square += weights[i] * (coded.codes[i] * coded.codes[i]);
        product += weights[i] * (coded.misses[i] * coded.codes[i]);
      }
      const float unit = scale_of(choice, g) * 0x1p-12f;
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
      const Coded coded = code_group(choice, g);
      for (std::size_t i = 0; i < Shape::length; ++i)
        block.codes[g * Shape::length + i] = static_cast<std::int8_t>(coded.codes[i]);
    }
    return block;
  }

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
