// floor: 4.1
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <concepts>
#include <cstddef>

#include <quern/block_format.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// The grid of a view, in bytes.
template <BlockFormat F, BlockOrder O>
[[nodiscard]] Grid grid_of(const PackedView<F, O>& w) noexcept {
  constexpr bool rows = std::same_as<O, RowMajor>;
  const std::size_t slow = w.stride() * F::bytes_per_block;
  return {w.data(), w.out(), w.blocks_per_row(), rows ? slow : F::bytes_per_block,
          rows ? F::bytes_per_block : slow};
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
