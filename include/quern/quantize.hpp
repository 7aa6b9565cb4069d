// floor: 3.4
#pragma once

#include <cstddef>
#include <span>

#include <quern/block_format.hpp>
#include <quern/detail/encode_rows.hpp>
#include <quern/detail/target.hpp>
#include <quern/isas.hpp>
#include <quern/kernels/avx2/encode.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/quantize_options.hpp>
#include <quern/shape.hpp>

namespace quern {

namespace detail {

/// `F::encode` of the block alone, or of the block and its importances where the format has a
/// search.
template <BlockFormat F>
constexpr Encoded<F::bytes_per_block> encode_best(std::span<const float, F::block_size> values,
                                                  std::span<const float> importance) noexcept {
  if constexpr (requires { F::encode(values, importance); })
    return F::encode(values, importance);
  else
    return F::encode(values);
}

template <BlockFormat F>
RowFault encode_row_best(const float* values, std::size_t cols, const float* importance,
                         std::byte* to) noexcept {
  return encode_row_by<F>(values, cols, importance, to, encode_best<F>);
}

template <BlockFormat F>
RowFault encode_row_fast(const float* values, std::size_t cols, const float* importance,
                         std::byte* to) noexcept {
  return encode_row_by<F>(values, cols, importance, to, [](auto block, auto weights) noexcept {
    if constexpr (requires { F::encode_fast(block, weights); })
      return F::encode_fast(block, weights);
    else
      return weights.empty() ? F::encode(block) : encode_best<F>(block, weights);
  });
}

template <BlockFormat F>
[[nodiscard]] EncodeRow choose_encode_row(QuantizeMode mode,
                                          [[maybe_unused]] IsaLimit max_isa) noexcept {
  if (mode == QuantizeMode::best) return encode_row_best<F>;
#if defined(QUERN_X86_KERNELS)
  if constexpr (requires(std::span<const float, F::block_size> block) {
                  F::encode_fast(block, {});
                })
    if (isa::Avx2::available() && max_isa.allows<isa::Avx2>())
      return kernels::avx2::encode_row_fast<F>;
#endif
  return encode_row_fast<F>;
}

} // namespace detail

/// Packs a dense matrix: rows are output features, columns input features. Each block is encoded by
/// itself. docs/quantize.md states the objective and the searches, with what they reach.
///
/// Throws Error(not_block_multiple) when the columns are not whole blocks; Error(size_mismatch /
/// bad_importance) for importances that are not one for each column, finite and not negative; and
/// Error(not_a_number / infinite / scale_overflow) for the first value, by row and column, that
/// can't be encoded.
template <BlockFormat F>
[[nodiscard]] PackedWeight<F, RowMajor> quantize(MatrixView<const float> values,
                                                 const QuantizeOptions& options = {}) {
  const OutIn shape{Out{values.rows()}, In{values.cols()}};
  (void)detail::grid_of<F>(shape, "quern::quantize"); // so that the message names this call
  detail::check_importance(options.importance, values.cols(), F::name);
  PackedWeight<F, RowMajor> weight{shape};
  detail::encode_rows(detail::choose_encode_row<F>(options.mode, options.max_isa), values,
                      options.importance, weight.bytes().data(),
                      values.cols() / F::block_size * F::bytes_per_block, F::name,
                      options.executor);
  return weight;
}

/// The same for a gap-free matrix of `shape.out` rows of `shape.in` values. Throws also
/// Error(size_mismatch) when the values are not that many.
template <BlockFormat F>
[[nodiscard]] PackedWeight<F, RowMajor> quantize(std::span<const float> values, OutIn shape,
                                                 const QuantizeOptions& options = {}) {
  return quantize<F>(MatrixView<const float>{values, shape.out, shape.in}, options);
}

} // namespace quern
