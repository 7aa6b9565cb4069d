// floor: 6.1
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include <quern/activation.hpp>
#include <quern/detail/memory.hpp>
#include <quern/detail/target.hpp>
#include <quern/error.hpp>
#include <quern/isas.hpp>
#include <quern/kernels/avx2/quantize.hpp>
#include <quern/matrix_view.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>

namespace quern {

namespace detail {
/// Room for int8 activations in a scope.
template <std::size_t Width>
[[nodiscard]] std::span<std::byte> room_for_activations(std::size_t rows, std::size_t cols,
                                                        Scope& scope) {
  const std::size_t bytes = Int8Blocks<Width>::bytes_for(rows, cols);
  if (bytes == 0) return {};
  return {static_cast<std::byte*>(scope.allocate(bytes, cache_line)), bytes};
}
} // namespace detail

inline namespace QUERN_BUILD_TAG {

/// Quantizes `x` to signed bytes into `bytes`, which are at least Int8Blocks<Width>::bytes_for() of
/// its extents. In each block of `Width` values the scale is the largest magnitude / 127 and a code
/// is the nearest, halves to even; a block of zeros has scale 0. A NaN or an infinity makes the
/// scale of its block NaN or infinite and the codes zero, so that results of this row are NaN and
/// others are untouched. The same bytes on every instruction set. Throws as Int8Blocks does, and
/// then nothing was written.
template <std::size_t Width>
Int8Blocks<Width> quantize_activations(MatrixView<const float> x, std::span<std::byte> bytes,
                                       IsaLimit max_isa = {}) {
  const Int8Blocks<Width> result{bytes, x.rows(), x.cols()};
  const detail::Int8RowLayout layout(x.cols(), Width);
  [[maybe_unused]] const bool avx2 = isa::Avx2::available() && max_isa.allows<isa::Avx2>();
  for (std::size_t r = 0; r < x.rows(); ++r) {
    std::byte* row = bytes.data() + r * layout.row;
#if defined(QUERN_X86_KERNELS)
    if (avx2) {
      kernels::avx2::quantize_row<Width>(x.row(r), x.cols(), row, layout);
      continue;
    }
#endif
    detail::quantize_int8_row<Width>(x.row(r), x.cols(), row, layout);
  }
  return result;
}

/// The same with bytes from `scope`; the result is valid as long as they are. Emits one
/// AdapterInserted event of kind "quantize_activations". Also throws what the scope throws.
template <std::size_t Width>
[[nodiscard]] Int8Blocks<Width> quantize_activations(MatrixView<const float> x, Scope& scope,
                                                     Trace& trace = no_trace,
                                                     IsaLimit max_isa = {}) {
  const auto bytes = detail::room_for_activations<Width>(x.rows(), x.cols(), scope);
  const auto result = quantize_activations<Width>(x, bytes, max_isa);
  trace.emit(AdapterInserted{"quantize_activations", "float", Int8Blocks<Width>::name,
                             x.rows() * x.cols() * sizeof(float), bytes.size(), scope.kind()});
  return result;
}

} // namespace QUERN_BUILD_TAG

/// Activations that are integers already: `codes` are `[rows, cols]`, `scales` one number for each
/// block of `Width` of them, both row after row. All codes are allowed, -128 too. Throws as
/// Int8Blocks does, and Error(size_mismatch).
template <std::size_t Width>
[[nodiscard]] Int8Blocks<Width> int8_activations(std::span<const std::int8_t> codes,
                                                 std::span<const float> scales, std::size_t rows,
                                                 std::size_t cols, Scope& scope) {
  const std::size_t needed = Int8Blocks<Width>::bytes_for(rows, cols);
  if (codes.size() != rows * cols || scales.size() != rows * (cols / Width))
    throw Error(ErrorCode::size_mismatch,
                "quern::int8_activations: " + std::to_string(rows) + " rows of " +
                    std::to_string(cols) + " values need " + std::to_string(rows * cols) +
                    " codes and " + std::to_string(rows * (cols / Width)) + " scales, got " +
                    std::to_string(codes.size()) + " and " + std::to_string(scales.size()));
  const auto bytes = detail::room_for_activations<Width>(rows, cols, scope);
  const detail::Int8RowLayout layout(cols, Width);
  for (std::size_t r = 0; r < rows && needed != 0; ++r) {
    std::byte* row = bytes.data() + r * layout.row;
    std::memcpy(row, codes.data() + r * cols, cols);
    std::memcpy(row + layout.scales, scales.data() + r * (cols / Width),
                cols / Width * sizeof(float));
    detail::sum_int8_row(row, cols, layout);
  }
  return Int8Blocks<Width>{bytes, rows, cols};
}

} // namespace quern
