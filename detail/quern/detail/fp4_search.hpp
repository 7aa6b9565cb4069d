// floor: 1.2
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/fp4.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// The search for the scale of values that are coded as 4-bit floats. Scales have 8 bits, so all
/// that come into question are tried.

namespace quern::detail {

/// The weighted squared error of values under the halved scale `d`.
[[nodiscard]] constexpr double fp4_error(std::span<const float> values,
                                         std::span<const float> weights, float d) noexcept {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<std::size_t>(fp4_code(values[i], d));
    const double kept = static_cast<float>(fp4_doubled[code]) * d;
    const double miss = static_cast<double>(values[i]) - kept;
    sum += rounded_product(miss, rounded_product(miss, static_cast<double>(weight_at(weights, i))));
  }
  return sum;
}

/// Scale bits around `start`, from `below` less to `above` more within 0..`most`, with the least
/// error; `start` unless another is better. `halved` decodes scale bits.
template <class Halved>
[[nodiscard]] constexpr int best_fp4_scale(std::span<const float> values,
                                           std::span<const float> weights, int start, int below,
                                           int above, int most, Halved halved) noexcept {
  const auto error_at = [&](int bits) {
    return fp4_error(values, weights, halved(static_cast<std::uint8_t>(bits)));
  };
  int best = start;
  double least = error_at(start);
  for (int bits = start < below ? 0 : start - below; bits <= start + above && bits <= most;
       ++bits) {
    if (bits == start) continue;
    const double error = error_at(bits);
    if (error >= least) continue;
    least = error;
    best = bits;
  }
  return best;
}

} // namespace quern::detail
