// floor: 5
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/isa/scalar.hpp>
#include <quern/kernel.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// The portable kernel: every format, both orders. It decodes a block once per eight activation
/// rows and accumulates in double, where a product of two floats is exact, so the result does not
/// depend on whether a compiler fuses multiply and add.

namespace quern::kernels {
inline namespace QUERN_BUILD_TAG {

namespace detail {

/// Lanes of the accumulation: lane l of a block sums its values l, l + 8, l + 16, ... Formats
/// with fewer values in a block use the first lanes only.
inline constexpr std::size_t scalar_lanes = 8;
/// Activation rows that share one decoded block.
inline constexpr std::size_t scalar_rows = 8;

using Lanes = std::array<double, scalar_lanes>;

/// Adds one block's products to the lanes of one output.
template <std::size_t N>
inline void accumulate(Lanes& sums, const std::array<float, N>& weights, const float* x) noexcept {
  constexpr std::size_t lanes = std::min(N, scalar_lanes);
  static_assert(N % lanes == 0);
  for (std::size_t i = 0; i < N; i += lanes)
    for (std::size_t l = 0; l < lanes; ++l)
      sums[l] += static_cast<double>(weights[i + l]) * static_cast<double>(x[i + l]);
}

/// The lanes joined in one fixed order.
[[nodiscard]] inline float join(const Lanes& s) noexcept {
  return static_cast<float>(((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])));
}

} // namespace detail

/// The kernel of portable C++ for float activations. Each output is accumulated block after block,
/// in eight lanes within a block, and the lanes are joined in one fixed order, so block order and
/// the number of activation rows do not change a bit.
template <BlockFormat F, BlockOrder O>
struct Matmul<float, F, O, isa::Scalar> {
  using Input = MatrixView<const float>; ///< activations, `[m, in]`
  using Weight = PackedView<F, O>;       ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", "float", F::name, O::name, isa::Scalar::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides of all three are honoured.
  static void run(MatrixView<const float> x, PackedView<F, O> w, MatrixView<float> y) noexcept {
    for (std::size_t first = 0; first < x.rows(); first += detail::scalar_rows) {
      const std::size_t rows = std::min(detail::scalar_rows, x.rows() - first);
      for (std::size_t o = 0; o < w.out(); ++o) {
        std::array<detail::Lanes, detail::scalar_rows> sums{};
        for (std::size_t b = 0; b < w.blocks_per_row(); ++b) {
          const auto weights =
              F::decode(typename Weight::Block{w.block_data(o, b), F::bytes_per_block});
          for (std::size_t r = 0; r < rows; ++r)
            detail::accumulate(sums[r], weights, x.row(first + r) + b * F::block_size);
        }
        for (std::size_t r = 0; r < rows; ++r)
          y.row(first + r)[o] = detail::join(sums[r]);
      }
    }
  }

  // clang-format off
  template <BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(MatrixView<const float>, PackedView<OtherFormat, OtherOrder>, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format and one block order, and the weight has another; call matmul_weight_transposed(x, w, y), or prepack<Order>(w, scope) first");
  // clang-format on
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels
