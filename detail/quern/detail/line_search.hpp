// floor: 0.4
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/half.hpp>
#include <quern/detail/k_quant_grid.hpp>

/// @file
/// The search behind blocks of one line, value = scale * code + offset, with scale and offset in
/// binary16: grids that clip more or less at either end, each improved by least squares; the best
/// of them once more by least squares with what binary16 makes of it.

namespace quern::detail {

/// What such a block stores.
template <std::size_t N>
struct HalfLine {
  std::uint16_t scale = 0;
  std::uint16_t offset = 0;
  std::array<std::uint8_t, N> codes{};
};

template <int CodeMax, std::size_t N, class W>
class LineSearch {
public:
  /// `unit` is the power of two at or below the largest magnitude among `values`.
  constexpr LineSearch(std::span<const float, N> values, const W& weights, float unit) noexcept
      : unit_(unit), weights_(weights) {
    const float inverse = 1.0f / unit;
    for (std::size_t i = 0; i < N; ++i)
      values_[i] = values[i] * inverse;
  }

  /// The block, or nothing when there is no line to look for.
  [[nodiscard]] constexpr std::optional<HalfLine<N>> run() const noexcept {
    const std::optional<Pair> start = fit();
    if (!start) return std::nullopt;
    std::optional<HalfLine<N>> best;
    float least = 1e30f;
    Pair pair = *start;
    for (int round = 0; round < rounds; ++round) {
      const Pair held{held_in_half(pair.scale, unit_), in_half(pair.offset)};
      if (!is_finite(held.scale) || !is_finite(held.offset) || held.scale <= 0.0f) break;
      const auto coded = code_values<0, CodeMax, N>(values_.data(), held.scale, held.offset);
      const Sums sums = sums_of(coded);
      const float error = sums.miss_squares * held.scale * held.scale;
      if (error >= least) break;
      least = error;
      best = block_of(held, coded);
      pair = refined(held, sums);
    }
    return best;
  }

private:
  struct Pair {
    float scale;
    float offset;
  };
  /// As GridMoments, with misses in codes.
  using Sums = GridMoments;

  [[nodiscard]] constexpr float in_half(float offset) const noexcept {
    const float whole = offset * unit_;
    return fits(whole) ? half_to_float(float_to_half(whole)) / unit_
                       : std::numeric_limits<float>::infinity();
  }
  [[nodiscard]] static constexpr bool fits(float whole) noexcept {
    return magnitude(whole) < 65520.0f;
  }

  /// The best line of all grids.
  [[nodiscard]] constexpr std::optional<Pair> fit() const noexcept {
    const auto [low, high] = std::minmax_element(values_.begin(), values_.end());
    const float range = *high - *low;
    if (range < 0x1p-20f) return std::nullopt;
    const auto run = GridRun<N>::from(values_.data(), *low, range);
    constexpr int whole = 65536 / grid_span * grid_code; // the rate of one code to the range
    std::optional<Pair> best;
    float least = 1e30f;
    for (int below = first_clip; below <= last_clip; ++below)
      for (int above = first_clip; above <= last_clip; ++above) {
        // So many fourths of a code lie beyond the first and the last one.
        const int fourths = 4 * CodeMax + below + above;
        const GridMap map{static_cast<std::int16_t>(below * grid_span / fourths),
                          static_cast<std::int16_t>(fourths * whole / 4)};
        const GridMoments moments = grid_moments<0, CodeMax>(run.at, map, weights_);
        const float scale = range * 4.0f / static_cast<float>(fourths);
        const float unit = scale / grid_code;
        const Step step = best_step(moments);
        const float error = step.rest * unit * unit;
        if (error >= least) continue;
        least = error;
        const float origin = *low + rounded(run.unit * static_cast<float>(map.origin));
        best = Pair{scale + rounded(unit * step.slope), origin + rounded(unit * step.shift)};
      }
    return best;
  }

  /// How least squares moves a line, in units of the misses, and what squared error it leaves.
  struct Step {
    float slope = 0.0f;
    float shift = 0.0f;
    float rest = 0.0f;
  };
  [[nodiscard]] static constexpr Step best_step(const GridMoments& m) noexcept {
    Step step;
    const float determinant = rounded(m.squares * m.count) - rounded(m.codes * m.codes);
    if (determinant > 0.0f) {
      step.slope = (rounded(m.miss_codes * m.count) - rounded(m.miss * m.codes)) / determinant;
      step.shift = (rounded(m.squares * m.miss) - rounded(m.codes * m.miss_codes)) / determinant;
    } else if (m.count > 0.0f) {
      step.shift = m.miss / m.count;
    }
    step.rest = m.miss_squares - rounded(step.slope * m.miss_codes) - rounded(step.shift * m.miss);
    return step;
  }

  [[nodiscard]] constexpr Sums sums_of(const Coded<N>& coded) const noexcept {
    std::int64_t count = 0, codes = 0, squares = 0, miss = 0, products = 0, miss_squares = 0;
    for (std::size_t i = 0; i < N; ++i) {
      const std::int64_t weight = weights_[i];
      count += weight;
      codes += weight * coded.codes[i];
      squares += weight * (coded.codes[i] * coded.codes[i]);
      miss += weight * coded.misses[i];
      products += weight * (coded.codes[i] * coded.misses[i]);
      miss_squares += weight * (coded.misses[i] * coded.misses[i]);
    }
    constexpr float one = 1.0f / Coded<N>::code;
    return {static_cast<float>(count),          static_cast<float>(codes),
            static_cast<float>(squares),        static_cast<float>(miss) * one,
            static_cast<float>(products) * one, static_cast<float>(miss_squares) * one * one};
  }

  /// The line of least squares for the codes that `sums` come from: first the offset, then the
  /// scale that goes with what binary16 makes of it.
  [[nodiscard]] constexpr Pair refined(Pair pair, const Sums& sums) const noexcept {
    const Step step = best_step(sums);
    const float offset = in_half(pair.offset + rounded(pair.scale * step.shift));
    const float shift = (offset - pair.offset) / pair.scale;
    const float slope =
        sums.squares > 0.0f ? (sums.miss_codes - rounded(shift * sums.codes)) / sums.squares : 0.0f;
    return {pair.scale + rounded(pair.scale * slope), offset};
  }

  [[nodiscard]] constexpr HalfLine<N> block_of(Pair pair, const Coded<N>& coded) const noexcept {
    HalfLine<N> block;
    block.scale = float_to_half(pair.scale * unit_);
    block.offset = float_to_half(pair.offset * unit_);
    for (std::size_t i = 0; i < N; ++i)
      block.codes[i] = static_cast<std::uint8_t>(coded.codes[i]);
    return block;
  }

  static constexpr int first_clip = -3;
  static constexpr int last_clip = 4;
  static constexpr int rounds = 4;

  float unit_;
  W weights_;
  std::array<float, N> values_{};
};

/// The block of least squared error that the search finds, weighted by `weights` unless that is
/// empty; nothing when it finds none. `peak` is the largest magnitude among `values`.
template <int CodeMax, std::size_t N>
[[nodiscard]] constexpr std::optional<HalfLine<N>>
search_half_line(std::span<const float, N> values, std::span<const float> weights,
                 float peak) noexcept {
  if (peak <= 0x1p-25f) return std::nullopt;
  const float unit = power_of_two_below(peak);
  if (weights.empty())
    return LineSearch<CodeMax, N, EqualWeights>(values, EqualWeights{}, unit).run();
  const float greatest = *std::max_element(weights.begin(), weights.end());
  return LineSearch<CodeMax, N, Weights<N>>(values, Weights<N>::from(weights, greatest), unit)
      .run();
}

} // namespace quern::detail
