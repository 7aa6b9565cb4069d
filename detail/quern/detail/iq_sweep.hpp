// floor: 0.2
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/half.hpp>
#include <quern/detail/iq_envelope.hpp>

/// @file
/// The best scale for values that are coded one by one with a list of levels, value = s * level, as
/// in IQ4_NL or Q3_K. As the scale grows, each value passes from its outermost level to the one
/// nearest zero. Noting these passages gives the error at many scales for the price of a few.

namespace quern::detail {

/// A list of levels, lowest first, with the middles between neighbours.
template <std::size_t Count>
struct LevelBook {
  std::array<std::int8_t, Count> levels{};
  std::array<float, Count - 1> middles{};
  std::array<float, Count - 1> inverse_middles{}; // of their magnitudes
  float largest = 0.0f;                           // magnitude

  constexpr explicit LevelBook(const std::array<std::int8_t, Count>& list) noexcept : levels(list) {
    for (std::size_t k = 0; k + 1 < Count; ++k) {
      middles[k] = static_cast<float>(list[k] + list[k + 1]) * 0.5f;
      inverse_middles[k] = middles[k] == 0.0f ? 0.0f : 1.0f / magnitude(middles[k]);
    }
    for (const std::int8_t level : list)
      if (magnitude(level) > largest) largest = magnitude(level);
  }

  /// The indices of the levels nearest to `values / scale`; halfway goes to the lower level.
  template <std::size_t Values>
  [[nodiscard]] constexpr std::array<std::uint8_t, Values>
  nearest(std::span<const float, Values> values, float scale) const noexcept {
    std::array<std::uint8_t, Values> codes{};
    std::array<float, Values> upright{};
    for (std::size_t i = 0; i < Values && scale != 0.0f; ++i)
      upright[i] = scale < 0.0f ? -values[i] : values[i];
    const float size = scale == 0.0f ? 1.0f : magnitude(scale);
    for (const float middle : middles) {
      const float threshold = size * middle;
      for (std::size_t i = 0; i < Values; ++i)
        codes[i] = static_cast<std::uint8_t>(codes[i] + (upright[i] > threshold ? 1 : 0));
    }
    return codes;
  }
};

/// A line of the error of a block: see iq_envelope.hpp.
struct Line {
  double a = 0.0;
  double b = 0.0;

  [[nodiscard]] constexpr double cost(double scale) const noexcept {
    return line_cost(a, b, scale);
  }
  /// True when the best scale of this line saves more than that of `other`. The scales must be
  /// positive.
  [[nodiscard]] constexpr bool beats(const Line& other) const noexcept {
    if (a <= 0.0 || b <= 0.0) return false;
    return other.a <= 0.0 || a * a * other.b > other.a * other.a * b;
  }
};

/// The weight of value i; an empty span means that all weigh the same.
[[nodiscard]] constexpr float weight_at(std::span<const float> weights, std::size_t i) noexcept {
  return weights.empty() ? 1.0f : weights[i];
}

/// The importance of the values of a block as weights up to 1. Importances must be finite and not
/// negative; none at all, or only equal ones, mean that all values weigh the same.
template <std::size_t Values>
class BlockWeights {
public:
  constexpr explicit BlockWeights(std::span<const float> importance) noexcept {
    if (importance.empty()) return;
    const auto [least, most] = std::minmax_element(importance.begin(), importance.end());
    const float greatest = *most;
    if (*least == greatest) return;
    used_ = true;
    // Never near zero: among values that hardly matter, the nearer code is still the better one,
    // and searches in integers must see the difference.
    for (std::size_t i = 0; i < Values; ++i)
      weights_[i] = std::max(importance[i] / greatest, 0x1p-10f);
  }

  /// Empty when all values weigh the same.
  [[nodiscard]] constexpr std::span<const float> span() const noexcept {
    return std::span<const float>(weights_).first(used_ ? Values : 0);
  }

private:
  std::array<float, Values> weights_{};
  bool used_ = false;
};

/// The largest magnitude among the values that matter for the scale.
[[nodiscard]] constexpr float largest_of(std::span<const float> values,
                                         std::span<const float> weights) noexcept {
  double most = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double share = static_cast<double>(weight_at(weights, i)) * values[i] * values[i];
    if (share > most) most = share;
  }
  float largest = 0.0f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double share = static_cast<double>(weight_at(weights, i)) * values[i] * values[i];
    if (share * 16.0 >= most && magnitude(values[i]) > largest) largest = magnitude(values[i]);
  }
  return largest;
}

/// The weighted value, rounded to float so that its products with levels are exact in double.
[[nodiscard]] constexpr double pull_at(float value, float weight) noexcept {
  return static_cast<float>(static_cast<double>(weight) * value);
}

/// The line of given codes.
template <std::size_t Values, std::size_t Count>
[[nodiscard]] constexpr Line line_of(std::span<const float, Values> values,
                                     std::span<const float> weights,
                                     const std::array<std::int8_t, Count>& levels,
                                     const std::array<std::uint8_t, Values>& codes) noexcept {
  Line line;
  for (std::size_t i = 0; i < Values; ++i) {
    const float weight = weight_at(weights, i);
    const int level = levels[codes[i]];
    line.a += pull_at(values[i], weight) * level;
    line.b += static_cast<double>(weight) * (level * level);
  }
  return line;
}

/// The error of a block at scales of one sign, in cells of equal width around the scale at which
/// the largest value meets the largest level. Within a cell the codes are those of its middle.
class ScaleCurve {
public:
  static constexpr std::size_t cells = 40;

  constexpr ScaleCurve() noexcept = default;

  /// `side` is the sign of the scales, 1 or -1; `largest` the magnitude that sets the range.
  template <std::size_t Values, std::size_t Count>
  constexpr ScaleCurve(std::span<const float, Values> values, std::span<const float> weights,
                       const LevelBook<Count>& book, float largest, int side) noexcept
      : per_width_(largest == 0.0f
                       ? 0.0
                       : static_cast<double>(book.largest * cells_per_reference) / largest) {
    if (largest == 0.0f) return;
    const auto lowest = static_cast<float>(first_cell / per_width_ * side);
    const auto codes = book.nearest(values, lowest);
    lines_[0] = line_of(values, weights, book.levels, codes);
    lines_[0].a *= side;
    for (std::size_t i = 0; i < Values; ++i) {
      if (values[i] == 0.0f) continue;
      const float weight = weight_at(weights, i);
      const double pull = pull_at(values[i], weight) * side;
      const double size = magnitude(values[i]) * 2.0 * per_width_;
      std::size_t code = codes[i];
      const bool up = (values[i] < 0.0f) == (side > 0); // towards zero
      while (true) {
        if (up ? code + 1 >= Count : code == 0) break;
        const std::size_t gap = up ? code : code - 1;
        if (up ? book.middles[gap] >= 0.0f : book.middles[gap] <= 0.0f) break;
        const double at = size * book.inverse_middles[gap];
        if (at >= 2.0 * (first_cell + cells)) break;
        const int cell = (static_cast<int>(at) + 1) / 2 - first_cell;
        if (cell >= static_cast<int>(cells)) break;
        const int from = book.levels[code];
        code = up ? code + 1 : code - 1;
        const int to = book.levels[code];
        Line& line = lines_[static_cast<std::size_t>(cell < 0 ? 0 : cell)];
        line.a += pull * (to - from);
        line.b += static_cast<double>(weight) * (to * to - from * from);
      }
    }
    for (std::size_t k = 1; k < cells; ++k) {
      lines_[k].a += lines_[k - 1].a;
      lines_[k].b += lines_[k - 1].b;
    }
    for (const Line& line : lines_)
      if (line.beats(best_)) best_ = line;
  }

  /// The lines of the cells.
  [[nodiscard]] constexpr const std::array<Line, cells>& lines() const noexcept { return lines_; }
  /// The line with the least error of all; its scale is a / b.
  [[nodiscard]] constexpr const Line& best() const noexcept { return best_; }
  /// The line to use at a scale, taken as positive.
  [[nodiscard]] constexpr const Line& at(double scale) const noexcept {
    const double at = scale * per_width_;
    if (at < first_cell) return lines_[0];
    if (at >= first_cell + cells) return lines_[cells - 1];
    return lines_[static_cast<std::size_t>(at) - first_cell];
  }

private:
  static constexpr int cells_per_reference = 32;
  static constexpr int first_cell = 16;

  double per_width_ = 0.0; // one over the width of a cell
  std::array<Line, cells> lines_{};
  Line best_;
};

/// The scale of least error for values that share one binary16 scale, as bits: zero when no scale
/// is better than zeros, infinity when the scale does not fit.
template <std::size_t Values, std::size_t Count>
[[nodiscard]] constexpr std::uint16_t best_half_scale(std::span<const float, Values> values,
                                                      std::span<const float> weights,
                                                      const LevelBook<Count>& book) noexcept {
  const float largest = largest_of(values, weights);
  const ScaleCurve positive(values, weights, book, largest, 1);
  const ScaleCurve negative(values, weights, book, largest, -1);
  const Line best = negative.best().beats(positive.best()) ? negative.best() : positive.best();
  if (best.a == 0.0) return 0;

  // Rounding the scale costs up to gain * step^2, so any line that comes this close may win.
  const double scale = best.a / best.b;
  const double step = scale < 0x1p-14 ? 0x1p-24 / scale : 0x1p-10;
  const double loss = rounded_product(step, step);
  const double enough = loss < 1.0 ? best.a * scale * (1.0 - loss) : 0.0;
  double best_cost = 0.0;
  std::uint16_t best_bits = scale < 1.0 ? 0 : 0x7C00;
  const auto try_line = [&](const Line& line, std::uint16_t sign) {
    if (line.a <= 0.0 || line.a * line.a < rounded_product(enough, line.b)) return false;
    const double own = line.a / line.b;
    if (own >= 65520.0) return false;
    const std::uint16_t nearest = float_to_half(static_cast<float>(own));
    bool better = false;
    for (int bits = nearest - 1; bits <= nearest + 1; ++bits) {
      if (bits < 1 || bits >= 0x7C00) continue;
      const double cost = line.cost(half_to_float(static_cast<std::uint16_t>(bits)));
      if (cost >= best_cost) continue;
      best_cost = cost;
      best_bits = static_cast<std::uint16_t>(bits | sign);
      better = true;
    }
    return better;
  };
  for (const Line& line : positive.lines())
    try_line(line, 0);
  for (const Line& line : negative.lines())
    try_line(line, 0x8000);
  for (int round = 0; round < 4 && (best_bits & 0x7FFFu) % 0x7C00u != 0; ++round) {
    Line line =
        line_of(values, weights, book.levels, book.nearest(values, half_to_float(best_bits)));
    const std::uint16_t sign = best_bits & 0x8000u;
    if (sign != 0) line.a = -line.a;
    if (!try_line(line, sign)) break;
  }
  return best_bits;
}

} // namespace quern::detail
