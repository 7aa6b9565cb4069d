#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

/// `count` values, about as large as those of a trained layer.
[[nodiscard]] inline std::vector<float> random_values(std::size_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(count);
  for (float& value : values)
    value = normal(generator);
  return values;
}

/// Blocks of all kinds of bytes that decode to finite values. Up to 512 differ, then they repeat.
template <class F>
[[nodiscard]] std::vector<std::byte> blocks(std::size_t count) {
  std::mt19937 generator(1);
  std::vector<std::byte> bytes(count * F::bytes_per_block);
  const std::size_t distinct = std::min<std::size_t>(count, 512);
  for (std::size_t n = 0; n < distinct; ++n) {
    const std::span<std::byte, F::bytes_per_block> block{bytes.data() + n * F::bytes_per_block,
                                                         F::bytes_per_block};
    do
      for (std::byte& byte : block)
        byte = static_cast<std::byte>(generator() >> 24);
    while (!std::ranges::all_of(F::decode(block), [](float v) { return std::isfinite(v); }));
  }
  for (std::size_t i = distinct * F::bytes_per_block; i < bytes.size(); ++i)
    bytes[i] = bytes[i - distinct * F::bytes_per_block];
  return bytes;
}

[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
