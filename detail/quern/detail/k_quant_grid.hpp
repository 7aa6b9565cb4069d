// floor: 0.2
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/half.hpp>

/// @file
/// What the searches for K-quant scales have in common: how far a run of values lies from a grid of
/// codes. The question is asked for dozens of grids per run, so it is answered in 16-bit integers:
/// eight values to a 128-bit register, and a sum that no compiler flag changes.

namespace quern::detail {

/// Fractional bits of a position between codes.
inline constexpr int grid_fraction_bits = 7;
inline constexpr int grid_code = 1 << grid_fraction_bits;
/// Integer positions that the span of a run is divided into.
inline constexpr int grid_span = 1 << 14;

/// Values that all matter alike.
struct EqualWeights {
  using Sum = std::int32_t;
  [[nodiscard]] constexpr std::int32_t operator[](std::size_t) const noexcept { return 1; }
  template <std::size_t Length>
  [[nodiscard]] constexpr EqualWeights group(std::size_t) const noexcept {
    return {};
  }
};

/// The importance of N values, as integers up to 4096 so that weighted sums stay exact.
template <std::size_t N>
struct Weights {
  using Sum = std::int64_t;
  std::int16_t weights[N];

  /// From importances that are finite and not negative, the greatest being `peak` > 0.
  [[nodiscard]] static constexpr Weights from(std::span<const float> importance,
                                              float peak) noexcept {
    Weights result{};
    for (std::size_t i = 0; i < N; ++i)
      if (importance[i] > 0.0f) {
        const auto weight = static_cast<std::int16_t>(importance[i] / peak * 4096.0f);
        result.weights[i] = weight > 0 ? weight : std::int16_t{1};
      }
    return result;
  }
  [[nodiscard]] constexpr std::int64_t operator[](std::size_t i) const noexcept {
    return weights[i];
  }
  template <std::size_t Length>
  [[nodiscard]] constexpr Weights<Length> group(std::size_t g) const noexcept {
    Weights<Length> part{};
    for (std::size_t i = 0; i < Length; ++i)
      part.weights[i] = weights[g * Length + i];
    return part;
  }
};

/// Values as integers: value = low + unit * at.
template <std::size_t N>
struct GridRun {
  std::array<std::int16_t, N> at;
  float low;
  float unit;

  /// `span` is the distance that grid_span units cover; values may reach twice as far from `low`.
  [[nodiscard]] static constexpr GridRun from(const float* values, float low, float span) noexcept {
    GridRun run{};
    run.low = low;
    run.unit = span / grid_span;
    const float inverse = grid_span / span;
    std::int16_t* at = run.at.data();
    for (std::size_t i = 0; i < N; ++i)
      at[i] = static_cast<std::int16_t>((values[i] - low) * inverse);
    return run;
  }
};

/// A grid over a run: code 0 lies at `origin`; `rate` / 2^16 turns units into 1/128 codes.
struct GridMap {
  std::int16_t origin = 0;
  std::int16_t rate = 0;
};

/// The rate at which a code is `scale` wide; 0 when the grid is too fine for a run.
[[nodiscard]] constexpr std::int16_t grid_rate(float unit, float scale) noexcept {
  const float rate = unit / scale * (65536.0f * grid_code);
  return rate < 32767.0f ? static_cast<std::int16_t>(rate) : std::int16_t{0};
}

/// Distances of a run to the nearest of codes Low..High, in 1/128 codes, and these codes. Plain
/// arrays: compilers evaluate them several times faster than std::array in constant expressions.
template <int Low, int High, std::size_t N>
constexpr void measure_grid(const std::array<std::int16_t, N>& run, GridMap map,
                            std::int16_t (&miss)[N], std::int16_t* codes = nullptr) noexcept {
  constexpr std::int16_t low = Low * grid_code;
  constexpr std::int16_t high = High * grid_code;
  const std::int16_t* at = run.data();
  const std::int16_t origin = map.origin;
  const std::int16_t rate = map.rate;
  for (std::size_t i = 0; i < N; ++i) {
    const auto from = static_cast<std::int16_t>(at[i] - origin);
    const auto place = static_cast<std::int16_t>((from * rate) >> 16);
    const std::int16_t raised = place < low ? low : place;
    const std::int16_t kept = raised > high ? high : raised;
    const auto nearest = static_cast<std::int16_t>((kept + grid_code / 2) & -grid_code);
    miss[i] = static_cast<std::int16_t>(place - nearest);
    if (codes != nullptr) codes[i] = static_cast<std::int16_t>(nearest >> grid_fraction_bits);
  }
}

/// The weighted sum of squared distances to the nearest of codes Low..High, in 1/128 codes.
template <int Low, int High, std::size_t N, class W>
[[nodiscard]] constexpr typename W::Sum grid_error(const std::array<std::int16_t, N>& run,
                                                   GridMap map, const W& weights) noexcept {
  std::int16_t miss[N] = {};
  measure_grid<Low, High>(run, map, miss);
  typename W::Sum sum = 0;
  for (std::size_t i = 0; i < N; ++i)
    sum += weights[i] * (miss[i] * miss[i]);
  return sum;
}

/// Weighted sums over the codes nearest to a run and what they miss by, in 1/128 codes.
struct GridMoments {
  float count = 0.0f;
  float codes = 0.0f;
  float squares = 0.0f;
  float miss = 0.0f;
  float miss_codes = 0.0f;
  float miss_squares = 0.0f;
};

template <int Low, int High, std::size_t N, class W>
[[nodiscard]] constexpr GridMoments grid_moments(const std::array<std::int16_t, N>& run,
                                                 GridMap map, const W& weights) noexcept {
  std::int16_t code[N] = {};
  std::int16_t miss[N] = {};
  measure_grid<Low, High>(run, map, miss, code);
  typename W::Sum count = 0, codes = 0, squares = 0, misses = 0, products = 0, miss_squares = 0;
  for (std::size_t i = 0; i < N; ++i) {
    count += weights[i];
    codes += weights[i] * code[i];
    squares += weights[i] * (code[i] * code[i]);
    misses += weights[i] * miss[i];
    products += weights[i] * (code[i] * miss[i]);
    miss_squares += weights[i] * (miss[i] * miss[i]);
  }
  return {static_cast<float>(count),    static_cast<float>(codes),
          static_cast<float>(squares),  static_cast<float>(misses),
          static_cast<float>(products), static_cast<float>(miss_squares)};
}

/// The codes nearest to N values and, in 1/4096 codes, how far the values lie from them (at most
/// two codes): finer than a grid over a run, for the grid that a block stores.
template <std::size_t N>
struct Coded {
  std::int16_t codes[N] = {};
  std::int16_t misses[N] = {};

  static constexpr int code = 4096;
};

/// The codes Low..High of value = scale * code + offset; all 0 for a scale of 0.
template <int Low, int High, std::size_t N>
[[nodiscard]] constexpr Coded<N> code_values(const float* values, float scale,
                                             float offset) noexcept {
  constexpr int one = Coded<N>::code;
  Coded<N> coded;
  const float rate = scale != 0.0f ? one / scale : 0.0f;
  constexpr float lowest = one * Low - 2 * one + 1;
  constexpr float highest = one * High + 2 * one - 1;
  std::int32_t at[N] = {};
  for (std::size_t i = 0; i < N; ++i) {
    const float place = (values[i] - offset) * rate;
    const float raised = place < lowest ? lowest : place;
    at[i] = static_cast<std::int32_t>(raised > highest ? highest : raised);
  }
  for (std::size_t i = 0; i < N; ++i) {
    const std::int32_t nearest = (at[i] + one / 2) >> 12;
    const std::int32_t raised = nearest < Low ? Low : nearest;
    const std::int32_t kept = raised > High ? High : raised;
    coded.codes[i] = static_cast<std::int16_t>(kept);
    coded.misses[i] = static_cast<std::int16_t>(at[i] - kept * one);
  }
  return coded;
}

/// The power of two at or below a normal `value` > 0.
[[nodiscard]] constexpr float power_of_two_below(float value) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7F800000u);
}

/// `scale` >= 0, in units of the power of two `unit`, as a binary16 field holds it, or infinity
/// when it does not fit. Only 0 becomes 0: what is too small becomes the least number of the field.
[[nodiscard]] constexpr float held_in_half(float scale, float unit) noexcept {
  const float whole = scale * unit;
  if (whole >= 65520.0f) return std::numeric_limits<float>::infinity();
  const float held = half_to_float(float_to_half(whole));
  return (held == 0.0f && scale > 0.0f ? 0x1p-24f : held) / unit;
}

/// The multiple that stands for `greatest`: `most`, or less where a binary16 number, in units of
/// the power of two `unit`, would else be too coarse for greatest / multiple.
[[nodiscard]] constexpr int top_multiple(float greatest, float unit, int most) noexcept {
  const float limit = greatest * unit * 0x1p20f;
  if (limit >= static_cast<float>(most)) return most;
  return limit < 1.0f ? 1 : static_cast<int>(limit);
}

} // namespace quern::detail
