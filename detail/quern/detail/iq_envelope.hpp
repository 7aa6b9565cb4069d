// floor: 0.1
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

/// @file
/// The error of a block as a function of its scale.
///
/// Values x with weights w, stored as s * q, have the squared error
///
///     sum w (x - s q)^2  =  sum w x^2  +  s * (s B - 2 A),   A = sum w x q,   B = sum w q^2
///
/// Every choice of codes q is thus a line s B - 2 A, and the best codes for each scale are the
/// lower envelope of these lines. It is built once; after that the exact error at any scale costs a
/// binary search, and searching scales costs no further look at the values.

namespace quern::detail {

/// `a * b`, rounded to double here and now, so that a compiler which may contract products and sums
/// into fused operations gives the same bytes as one which may not.
[[nodiscard]] constexpr double rounded_product(double a, double b) noexcept {
  double value = a * b;
  if (!std::is_constant_evaluated()) {
#if (defined(__GNUC__) || defined(__clang__)) && defined(__SSE2__)
    asm("" : "+x"(value));
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
    asm("" : "+w"(value));
#else
    volatile double kept = value;
    value = kept;
#endif
  }
  return value;
}

/// The change of the squared error against storing zeros, for one line at one scale.
[[nodiscard]] constexpr double line_cost(double a, double b, double scale) noexcept {
  return scale * (rounded_product(scale, b) - 2.0 * a);
}

/// The lower envelope of lines `s b - 2 a` over s > 0. Line i is the best one from `from[i]` to
/// `from[i + 1]`; a and b fall with i. A line that finds no room is left out: the envelope is then
/// still the error of codes that exist, only not of the best ones.
template <std::size_t Capacity>
struct Envelope {
  static constexpr std::size_t capacity = Capacity;

  std::size_t size = 0;
  std::array<double, Capacity> from;
  std::array<double, Capacity> a;
  std::array<double, Capacity> b;

  constexpr Envelope() noexcept {
    // Room that is never read needs no value, except where the language asks for one.
    if (std::is_constant_evaluated()) from = a = b = {};
  }
  constexpr Envelope(const Envelope& other) noexcept : Envelope() { *this = other; }
  constexpr Envelope& operator=(const Envelope& other) noexcept {
    size = other.size;
    std::copy_n(other.from.data(), size, from.data());
    std::copy_n(other.a.data(), size, a.data());
    std::copy_n(other.b.data(), size, b.data());
    return *this;
  }

  /// The envelope of no values.
  [[nodiscard]] static constexpr Envelope zero() noexcept {
    Envelope result;
    result.append(0.0, 0.0, 0.0);
    return result;
  }

  /// Adds a line whose b is at most that of all lines so far. `finish` must follow the last one.
  constexpr void push(double line_a, double line_b) noexcept {
    while (size > 0) {
      const double rise = a[size - 1] - line_a;
      const double fall = b[size - 1] - line_b;
      if (rise <= 0.0) { // nowhere worse than the last line, which then has no place
        --size;
        continue;
      }
      if (fall <= 0.0) return; // nowhere better than the last line
      if (size == 1) break;
      const double rise_before = a[size - 2] - a[size - 1];
      const double fall_before = b[size - 2] - b[size - 1];
      if (rise * fall_before > rise_before * fall) break; // the last line keeps a place
      --size;
    }
    if (size < Capacity) append(0.0, line_a, line_b);
  }

  /// Computes where the lines that `push` kept meet.
  constexpr void finish() noexcept {
    for (std::size_t i = 1; i < size; ++i)
      from[i] = 2.0 * (a[i - 1] - a[i]) / (b[i - 1] - b[i]);
  }

  /// Adds a line that is known to be the best from `start` on.
  constexpr void append(double start, double line_a, double line_b) noexcept {
    from[size] = start;
    a[size] = line_a;
    b[size] = line_b;
    ++size;
  }

  /// The best line at `scale` > 0.
  [[nodiscard]] constexpr std::size_t line(double scale) const noexcept {
    std::size_t low = 0;
    std::size_t count = size;
    while (count > 1) {
      const std::size_t half = count / 2;
      low = from[low + half] <= scale ? low + half : low;
      count -= half;
    }
    return low;
  }

  /// The change of the error at `scale` > 0.
  [[nodiscard]] constexpr double cost(double scale) const noexcept {
    const std::size_t i = line(scale);
    return line_cost(a[i], b[i], scale);
  }

  /// The scale of least error; 0 when no scale is better than zeros.
  [[nodiscard]] constexpr double best_scale() const noexcept {
    double gain = 0.0;
    double scale = 0.0;
    for (std::size_t i = 0; i < size; ++i) {
      if (a[i] <= 0.0 || b[i] <= 0.0) continue;
      const double own = a[i] * a[i] / b[i];
      if (own > gain) {
        gain = own;
        scale = a[i] / b[i];
      }
    }
    return scale;
  }
};

/// The envelope of two groups of values under one scale.
template <std::size_t Capacity, std::size_t M, std::size_t N>
constexpr void sum_envelopes(const Envelope<M>& left, const Envelope<N>& right,
                             Envelope<Capacity>& sum) noexcept {
  sum.size = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  double start = 0.0;
  while (sum.size < Capacity) {
    sum.append(start, left.a[i] + right.a[j], left.b[i] + right.b[j]);
    const bool more_left = i + 1 < left.size;
    const bool more_right = j + 1 < right.size;
    if (!more_left && !more_right) return;
    if (more_left && (!more_right || left.from[i + 1] <= right.from[j + 1])) {
      start = left.from[++i];
      if (more_right && right.from[j + 1] == start) ++j;
    } else {
      start = right.from[++j];
    }
  }
}

/// The envelope of one group of values that may be coded in either of two ways.
template <std::size_t Capacity, std::size_t M, std::size_t N>
constexpr void unite_envelopes(const Envelope<M>& one, const Envelope<N>& two,
                               Envelope<Capacity>& either) noexcept {
  either.size = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < one.size || j < two.size) {
    if (j == two.size || (i < one.size && one.b[i] >= two.b[j])) {
      either.push(one.a[i], one.b[i]);
      ++i;
    } else {
      either.push(two.a[j], two.b[j]);
      ++j;
    }
  }
  either.finish();
}

} // namespace quern::detail
