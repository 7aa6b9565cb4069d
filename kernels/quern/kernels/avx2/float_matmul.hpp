// floor: 5
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>

#include <quern/block_format.hpp>
#include <quern/isa/avx2.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/float_dense.hpp>
#include <quern/kernels/avx2/float_driver.hpp>
#include <quern/kernels/avx2/float_unpack.hpp>
#include <quern/kernels/avx2/grid.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern::kernels {

namespace avx2 {
inline namespace QUERN_BUILD_TAG {

/// y = x * W^T for any number of rows of x, in either order.
template <BlockFormat F>
void float_matmul(const Grid& w, std::size_t in, Rows<const float> x, Rows<float> y) noexcept {
  using U = Floats<F>;
  if (in == 0 || w.rows == 0) {
    for (std::size_t r = 0; r < y.count; ++r)
      std::fill_n(y.row(r), w.rows, 0.0f);
    return;
  }
  const bool by_rows = w.block_step == F::bytes_per_block || w.blocks == 1;
  if constexpr (is_dense<F>) {
    if (!by_rows) {
      if (x.count == 1)
        float_dense_row<U>(w, in, x.data, y.data);
      else
        float_by_tiles<U, &decode_dense_tile<U>>(w, in, x, y);
      return;
    }
    // Eight neighbours in a row are one piece.
    Grid pieces = w;
    pieces.block_step = U::bytes;
    if (x.count == 1)
      float_by_rows<U, 1>(pieces, in, x, y);
    else if (x.count == 2)
      float_by_rows<U, 2>(pieces, in, x, y);
    else
      float_by_tiles<U, &decode_tile<U>>(pieces, in, x, y);
  } else {
    if (x.count == 1)
      by_rows ? float_by_rows<U, 1>(w, in, x, y) : float_by_columns<U, 1>(w, in, x, y);
    else if (x.count == 2)
      by_rows ? float_by_rows<U, 2>(w, in, x, y) : float_by_columns<U, 2>(w, in, x, y);
    else
      float_by_tiles<U, &decode_tile<U>>(w, in, x, y);
  }
}

} // namespace QUERN_BUILD_TAG
} // namespace avx2

/// The AVX2 kernel for float activations; the order of its sums stands in avx2/float_driver.hpp.
template <BlockFormat F, BlockOrder O>
requires(avx2::is_dense<F> || avx2::HasInts<F>) struct Matmul<float, F, O, isa::Avx2> {
  using Input = MatrixView<const float>; ///< activations, `[m, in]`
  using Weight = PackedView<F, O>;       ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", "float", F::name, O::name, isa::Avx2::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides of all three are honoured.
  static void run(MatrixView<const float> x, PackedView<F, O> w, MatrixView<float> y) noexcept {
    avx2::float_matmul<F>(avx2::grid_of(w), w.in(), {x.data(), x.rows(), x.row_stride()},
                          {y.data(), y.rows(), y.row_stride()});
  }

  // clang-format off
  template <BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(MatrixView<const float>, PackedView<OtherFormat, OtherOrder>, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format and one block order, and the weight has another; call matmul_weight_transposed(x, w, y), or prepack<Order>(w, scope) first");
  // clang-format on
};

} // namespace quern::kernels

#endif
