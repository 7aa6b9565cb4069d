// floor: 1.3
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/block_format.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// The objective of every search: the squared error of what a block decodes to, weighted by
/// importance. Searches estimate it; here it is computed for the bytes themselves, to choose
/// between blocks that different rules wrote.

namespace quern::detail {

/// The weighted squared error of a block in format F.
template <class F>
[[nodiscard]] constexpr double
error_of(std::span<const float, F::block_size> values, std::span<const float> weights,
         const std::array<std::byte, F::bytes_per_block>& block) noexcept {
  const auto decoded = F::decode(block);
  double sum = 0.0;
  for (std::size_t i = 0; i < F::block_size; ++i) {
    const double miss = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
    // Each term is rounded before it is added, so that no contraction changes a choice.
    sum += rounded_product(miss, rounded_product(miss, static_cast<double>(weight_at(weights, i))));
  }
  return sum;
}

/// The block of less error; the first when they are equal.
template <class F>
[[nodiscard]] constexpr Encoded<F::bytes_per_block>
better_of(std::span<const float, F::block_size> values, std::span<const float> weights,
          const Encoded<F::bytes_per_block>& first,
          const std::array<std::byte, F::bytes_per_block>& second) noexcept {
  return error_of<F>(values, weights, second) < error_of<F>(values, weights, first.bytes())
             ? Encoded<F::bytes_per_block>(second)
             : first;
}

/// The levels Low..High, one apart.
template <int Low, int High>
[[nodiscard]] consteval auto even_levels() noexcept {
  std::array<std::int8_t, High - Low + 1> levels{};
  for (int level = Low; level <= High; ++level)
    levels[static_cast<std::size_t>(level - Low)] = static_cast<std::int8_t>(level);
  return LevelBook<High - Low + 1>(levels);
}

} // namespace quern::detail
