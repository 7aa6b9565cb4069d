// floor: 0.3
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <quern/detail/half.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// Blocks whose sub-blocks have small positive scales under one binary16 scale:
/// value = d * unit * (2 * scale[sub-block] + 1) * level, scale in 0..Scales - 1.

namespace quern::detail {

/// The scales of such a block. `d` is zero when nothing of the values can be kept, and infinite
/// when it does not fit.
template <std::size_t Subs>
struct OddScales {
  std::uint16_t d = 0;
  std::array<std::uint8_t, Subs> scales{};

  /// The factor of the levels of a sub-block.
  [[nodiscard]] constexpr double full(std::size_t sub, double unit) const noexcept {
    return half_to_float(d) * unit * (2 * scales[sub] + 1);
  }
};

/// The search for the scales of least squared error, given the envelope of each sub-block.
template <std::size_t Scales, std::size_t Subs, std::size_t Capacity>
class OddScaleSearch {
public:
  using Envelopes = std::array<Envelope<Capacity>, Subs>;

  constexpr OddScaleSearch(const Envelopes& envelopes, double unit) noexcept
      : envelopes_(envelopes), unit_(unit) {
    for (std::size_t s = Subs; s-- > 0;) {
      ideal_[s] = envelopes[s].best_scale();
      rest_[s] = rest_[s + 1] + (ideal_[s] > 0.0 ? envelopes[s].cost(ideal_[s]) : 0.0);
    }
  }

  [[nodiscard]] constexpr OddScales<Subs> run() const noexcept {
    OddScales<Subs> result;
    double widest = 0.0;
    for (const double ideal : ideal_)
      if (ideal > widest) widest = ideal;
    if (widest == 0.0) return result;
    if (widest / (unit_ * (2 * Scales - 1)) >= 65520.0) {
      result.d = 0x7C00;
      return result;
    }
    double cost = 0.0;
    for (std::size_t factor = 2 * Scales + Scales / 2; factor > Scales / 2; --factor)
      attempt(widest / (unit_ * static_cast<double>(factor)), cost, result);
    // Then the scale that is best for the codes in use, as long as that helps.
    for (int round = 0; round < 8 && result.d != 0; ++round) {
      double a = 0.0;
      double b = 0.0;
      for (std::size_t s = 0; s < Subs; ++s) {
        const double factor = unit_ * (2 * result.scales[s] + 1);
        const std::size_t line = envelopes_[s].line(result.full(s, unit_));
        a += rounded_product(envelopes_[s].a[line], factor);
        b += rounded_product(envelopes_[s].b[line], factor * factor);
      }
      if (a <= 0.0 || !attempt(a / b, cost, result)) break;
    }
    return result;
  }

private:
  /// Keeps d, rounded to binary16, if it is better than the result so far.
  constexpr bool attempt(double d, double& cost, OddScales<Subs>& result) const noexcept {
    if (d >= 65520.0) return false;
    OddScales<Subs> next;
    next.d = float_to_half(static_cast<float>(d));
    if (next.d == 0) return false;
    const double base = half_to_float(next.d) * unit_;
    double total = 0.0;
    for (std::size_t s = 0; s < Subs; ++s) {
      const double ratio = ideal_[s] / base;
      const int floor = ratio >= 2.0 * Scales ? static_cast<int>(Scales) - 1
                        : ratio < 1.0         ? 0
                                              : (static_cast<int>(ratio) - 1) / 2;
      double best = 0.0;
      for (int scale = floor; scale <= floor + 1; ++scale) {
        if (scale >= static_cast<int>(Scales)) break;
        const double own = envelopes_[s].cost(base * (2 * scale + 1));
        if (scale > floor && own >= best) continue;
        best = own;
        next.scales[s] = static_cast<std::uint8_t>(scale);
      }
      total += best;
      if (total + rest_[s + 1] >= cost) return false;
    }
    cost = total;
    result = next;
    return true;
  }

  const Envelopes& envelopes_;
  double unit_;
  std::array<double, Subs> ideal_{};    // scale of least error of each sub-block
  std::array<double, Subs + 1> rest_{}; // least error of a sub-block and all after it
};

/// The scales of least squared error for codes that are settled: `lines` are those of the
/// sub-blocks.
template <std::size_t Scales, std::size_t Subs>
[[nodiscard]] constexpr OddScales<Subs>
settle_scales(OddScales<Subs> scales, const std::array<Line, Subs>& lines, double unit) noexcept {
  const auto cost_of = [&](const OddScales<Subs>& candidate) {
    double cost = 0.0;
    for (std::size_t s = 0; s < Subs; ++s)
      cost += lines[s].cost(candidate.full(s, unit));
    return cost;
  };
  double cost = cost_of(scales);
  for (int round = 0; round < 4; ++round) {
    OddScales<Subs> next = scales;
    double a = 0.0;
    double b = 0.0;
    for (std::size_t s = 0; s < Subs; ++s) {
      const double base = half_to_float(scales.d) * unit;
      for (std::size_t scale = 0; scale < Scales; ++scale)
        if (lines[s].cost(base * static_cast<double>(2 * scale + 1)) <
            lines[s].cost(next.full(s, unit)))
          next.scales[s] = static_cast<std::uint8_t>(scale);
      const double factor = unit * (2 * next.scales[s] + 1);
      a += rounded_product(lines[s].a, factor);
      b += rounded_product(lines[s].b, factor * factor);
    }
    if (a <= 0.0 || a / b >= 65520.0) break;
    next.d = float_to_half(static_cast<float>(a / b));
    const double next_cost = cost_of(next);
    if (next.d == 0 || next_cost >= cost) break;
    cost = next_cost;
    scales = next;
  }
  return scales;
}

} // namespace quern::detail
