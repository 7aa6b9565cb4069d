// floor: 5.1
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/isa/avx2.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/float_matmul.hpp>
#include <quern/kernels/avx2/int8_rows.hpp>
#include <quern/kernels/avx2/int8_tiles.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern::kernels {
inline namespace QUERN_BUILD_TAG {

/// The AVX2 kernel for int8 activations; the same bits as the portable one.
template <std::size_t Width, avx2::HasInts F, BlockOrder O>
requires(int8_width<F> == Width) struct Matmul<Int8Blocks<Width>, F, O, isa::Avx2> {
  using Input = Int8Blocks<Width>; ///< activations, `[m, in]`
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", Input::name, F::name, O::name, isa::Avx2::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides are honoured.
  static void run(const Input& x, const Weight& w, MatrixView<float> y) noexcept {
    const avx2::Grid grid = avx2::grid_of(w);
    if (w.in() == 0)
      for (std::size_t r = 0; r < y.rows(); ++r)
        std::fill_n(y.row(r), w.out(), 0.0f);
    else if (w.out() == 0 || x.rows() == 0)
      return;
    else if (x.rows() > 1)
      avx2::int8_by_tiles<F>(grid, x, y.data(), y.row_stride());
    else if (grid.block_step == F::bytes_per_block || grid.blocks == 1)
      avx2::int8_by_rows<F>(grid, {x.codes(0), x.sums(0), x.scales(0)}, y.data());
    else
      avx2::int8_by_columns<F>(grid, {x.codes(0), x.sums(0), x.scales(0)}, y.data());
  }

  // clang-format off
  template <std::size_t OtherWidth, BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(const Int8Blocks<OtherWidth>&, const PackedView<OtherFormat, OtherOrder>&, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format, one block order and activations of one width, and something here is of another; quantize_activations<int8_width<Format>>(x, scope) and matmul_weight_transposed(x, w, y) choose what fits");
  // clang-format on
};

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels

#endif
