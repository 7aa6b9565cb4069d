// floor: 5
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/isa/scalar.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/int8_parts.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// The portable kernel for int8 activations, which also defines the result: every other instruction
/// set gives the same bits. Per output, unit after unit of a row,
///
///     t    = float(sum of n * code) * d               rounded
///     t    = fma(float(sum of k * code), m, t)        in formats with a minimum
///     y    = fma(t, scale of the activations, y)
///
/// starting at +0. The sums are exact: int32.

namespace quern::kernels {
inline namespace QUERN_BUILD_TAG {

/// True for formats that meet int8 activations.
template <class F>
concept HasIntegerParts = BlockFormat<F> && requires {
  IntegerParts<F>::unit;
};

namespace detail {

/// The integers of one block under IntegerParts<F>::set(d, m).
template <BlockFormat F>
[[nodiscard]] inline std::array<std::int32_t, F::block_size> integers_of(const std::byte* block,
                                                                         bool d, bool m) noexcept {
  std::array<std::byte, F::bytes_per_block> copy;
  std::memcpy(copy.data(), block, copy.size());
  IntegerParts<F>::set(copy.data(), d, m);
  const auto values = F::decode(std::span<const std::byte, F::bytes_per_block>{copy});
  std::array<std::int32_t, F::block_size> integers;
  for (std::size_t i = 0; i < integers.size(); ++i)
    integers[i] = static_cast<std::int32_t>(values[i]);
  return integers;
}

[[nodiscard]] inline std::int32_t dot(const std::int32_t* weights, const std::int8_t* codes,
                                      std::size_t count) noexcept {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += weights[i] * codes[i];
  return sum;
}

} // namespace detail

/// The kernel of portable C++ for int8 activations.
template <std::size_t Width, HasIntegerParts F, BlockOrder O>
requires(int8_width<F> == Width) struct Matmul<Int8Blocks<Width>, F, O, isa::Scalar> {
  using Input = Int8Blocks<Width>; ///< activations, `[m, in]`
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", Input::name, F::name, O::name, isa::Scalar::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides are honoured.
  static void run(const Input& x, const Weight& w, MatrixView<float> y) noexcept {
    using Parts = IntegerParts<F>;
    for (std::size_t r = 0; r < x.rows(); ++r)
      std::fill_n(y.row(r), w.out(), 0.0f);
    for (std::size_t o = 0; o < w.out(); ++o)
      for (std::size_t b = 0; b < w.blocks_per_row(); ++b) {
        const std::byte* block = w.block_data(o, b);
        const auto n = detail::integers_of<F>(block, true, false);
        std::array<std::int32_t, F::block_size> k{};
        if constexpr (Parts::minimum) k = detail::integers_of<F>(block, false, true);
        for (std::size_t r = 0; r < x.rows(); ++r)
          y.row(r)[o] = add_block(x, r, b, block, n, k, y.row(r)[o]);
      }
  }

  // clang-format off
  template <std::size_t OtherWidth, BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(const Int8Blocks<OtherWidth>&, const PackedView<OtherFormat, OtherOrder>&, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format, one block order and activations of one width, and something here is of another; quantize_activations<int8_width<Format>>(x, scope) and matmul_weight_transposed(x, w, y) choose what fits");
  // clang-format on

private:
  using Integers = std::array<std::int32_t, F::block_size>;

  [[nodiscard]] static float add_block(const Input& x, std::size_t r, std::size_t b,
                                       const std::byte* block, const Integers& n, const Integers& k,
                                       float sum) noexcept {
    using Parts = IntegerParts<F>;
    const std::int8_t* codes = x.codes(r) + b * F::block_size;
    const float* scales = x.scales(r) + b * F::block_size / Width;
    for (std::size_t u = 0; u < F::block_size / Parts::unit; ++u) {
      const std::size_t at = u * Parts::unit;
      float t = static_cast<float>(detail::dot(n.data() + at, codes + at, Parts::unit)) *
                Parts::d(block, u);
      if constexpr (Parts::minimum)
        t = std::fma(static_cast<float>(detail::dot(k.data() + at, codes + at, Parts::unit)),
                     Parts::m(block), t);
      sum = std::fma(t, scales[at / Width], sum);
    }
    return sum;
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels
