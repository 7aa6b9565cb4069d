// floor: 0.3
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/half.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// Blocks whose sub-blocks have integer scales of either sign under one binary16 scale:
/// value = d * scale[sub-block] * level[code].

namespace quern::detail {

/// What such a block stores. `d` is zero when nothing of the values can be kept, and infinite when
/// it does not fit.
template <std::size_t Subs, std::size_t PerSub>
struct SuperCodes {
  std::uint16_t d = 0;
  std::array<int, Subs> scales{};
  std::array<std::array<std::uint8_t, PerSub>, Subs> codes{};
};

/// The search for the codes of least squared error of one block. `Lowest` and `Highest` bound the
/// integer scales.
template <std::size_t Subs, std::size_t PerSub, std::size_t Count, int Lowest, int Highest>
class SuperScaleSearch {
public:
  using Values = std::span<const float, Subs * PerSub>;

  constexpr SuperScaleSearch(Values values, std::span<const float> weights,
                             const LevelBook<Count>& book) noexcept
      : values_(values), weights_(weights), book_(book) {}

  [[nodiscard]] constexpr SuperCodes<Subs, PerSub> run() noexcept {
    SuperCodes<Subs, PerSub> result;
    double widest = 0.0;
    std::size_t widest_sub = 0;
    for (std::size_t s = 0; s < Subs; ++s) {
      const auto own = sub_values(s);
      const float largest = largest_of(own, sub_weights(s));
      positive_[s] = ScaleCurve(own, sub_weights(s), book_, largest, 1);
      negative_[s] = ScaleCurve(own, sub_weights(s), book_, largest, -1);
      const Line& up = positive_[s].best();
      const Line& down = negative_[s].best();
      up_[s] = up.a == 0.0 ? 0.0 : up.a / up.b;
      down_[s] = down.a == 0.0 ? 0.0 : -down.a / down.b;
      const Line& best = down.beats(up) ? down : up;
      if (best.a > 0.0) rest_[s] = -best.a * best.a / best.b;
      const double scale = down.beats(up) ? -down_[s] : up_[s];
      if (scale <= widest) continue;
      widest = scale;
      widest_sub = s;
    }
    if (widest == 0.0) return result;
    for (std::size_t s = Subs; s-- > 0;)
      rest_[s] += rest_[s + 1];

    // The widest sub-block gets a scale from the upper half of the range, or is cut a little.
    double cost = 0.0;
    bool fits = false;
    for (int scale = -Lowest + Highest / 4; scale > Highest / 2; --scale)
      for (const double d : {up_[widest_sub] / scale, up_[widest_sub] / -scale,
                             down_[widest_sub] / scale, down_[widest_sub] / -scale}) {
        if (d >= 65520.0 || d <= -65520.0) continue;
        fits = true;
        const std::uint16_t bits = float_to_half(static_cast<float>(d));
        if ((bits & 0x7FFFu) == 0) continue;
        const double own = estimate(half_to_float(bits), cost);
        if (own >= cost) continue;
        cost = own;
        result.d = bits;
      }
    if (!fits) result.d = 0x7C00;
    if (!fits || result.d == 0) return result;
    refine(result);
    return result;
  }

private:
  [[nodiscard]] constexpr std::span<const float, PerSub> sub_values(std::size_t s) const noexcept {
    return values_.subspan(s * PerSub).template first<PerSub>();
  }
  [[nodiscard]] constexpr std::span<const float> sub_weights(std::size_t s) const noexcept {
    return weights_.empty() ? weights_ : weights_.subspan(s * PerSub, PerSub);
  }

  /// Calls `f` with the integers around the ideal scale of a sub-block, for each sign of the scale.
  template <class F>
  constexpr void around(std::size_t s, double d, int reach, F f) const noexcept {
    for (const double ideal : {up_[s], down_[s]}) {
      if (ideal == 0.0) continue;
      const double ratio = ideal / d;
      const int floor = ratio >= Highest  ? Highest
                        : ratio <= Lowest ? Lowest
                                          : static_cast<int>(ratio + 1024.0) - 1024;
      for (int scale = floor - reach + 1; scale <= floor + reach; ++scale)
        if (scale >= Lowest && scale <= Highest && scale != 0) f(scale);
    }
  }

  /// The error of the block with scale d, by the curves.
  /// Gives up, with 0, when it can't be below `limit`.
  [[nodiscard]] constexpr double estimate(double d, double limit) const noexcept {
    double total = 0.0;
    for (std::size_t s = 0; s < Subs; ++s) {
      double best = 0.0;
      around(s, d, 1, [&](int scale) {
        const double full = d * scale;
        const double cost =
            full > 0.0 ? positive_[s].at(full).cost(full) : negative_[s].at(-full).cost(-full);
        if (cost < best) best = cost;
      });
      total += best;
      if (total + rest_[s + 1] >= limit) return 0.0;
    }
    return total;
  }

  /// The codes for scale d, found with the values themselves. Returns their error, and in `line`
  /// how it depends on d.
  [[nodiscard]] constexpr double encode(std::uint16_t bits, SuperCodes<Subs, PerSub>& result,
                                        Line& line) const noexcept {
    const float d = half_to_float(bits);
    result.d = bits;
    double total = 0.0;
    for (std::size_t s = 0; s < Subs; ++s) {
      const auto own = sub_values(s);
      double best = 0.0;
      Line best_line;
      result.scales[s] = 0;
      around(s, d, 1, [&](int scale) {
        const float full = d * static_cast<float>(scale);
        const auto codes = book_.nearest(own, full);
        const Line sub_line = line_of(own, sub_weights(s), book_.levels, codes);
        const double cost = sub_line.cost(full);
        if (cost >= best) return;
        best = cost;
        best_line = {sub_line.a * scale, sub_line.b * (scale * scale)};
        result.scales[s] = scale;
        result.codes[s] = codes;
      });
      if (best == 0.0) result.codes[s] = book_.nearest(own, 0.0f);
      total += best;
      line.a += best_line.a;
      line.b += best_line.b;
    }
    return total;
  }

  constexpr void refine(SuperCodes<Subs, PerSub>& result) const noexcept {
    Line line;
    double cost = encode(result.d, result, line);
    for (int round = 0; round < 4 && line.b > 0.0; ++round) {
      const std::uint16_t bits = float_to_half(static_cast<float>(line.a / line.b));
      if (bits == result.d || (bits & 0x7FFFu) == 0 || (bits & 0x7C00u) == 0x7C00u) return;
      SuperCodes<Subs, PerSub> next;
      Line next_line;
      const double next_cost = encode(bits, next, next_line);
      if (next_cost >= cost) return;
      cost = next_cost;
      result = next;
      line = next_line;
    }
  }

  Values values_;
  std::span<const float> weights_;
  const LevelBook<Count>& book_;
  std::array<ScaleCurve, Subs> positive_;
  std::array<ScaleCurve, Subs> negative_;
  std::array<double, Subs> up_{};       // ideal positive scale of each sub-block, 0 for none
  std::array<double, Subs> down_{};     // ideal negative scale
  std::array<double, Subs + 1> rest_{}; // least error of this sub-block and all after it
};

} // namespace quern::detail
