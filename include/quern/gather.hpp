// floor: 3
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <quern/detail/checked.hpp>
#include <quern/detail/memory.hpp>
#include <quern/error.hpp>
#include <quern/matrix_view.hpp>
#include <quern/scope.hpp>
#include <quern/strided_view.hpp>
#include <quern/trace.hpp>

namespace quern {

/// The values of `x` with rows that have no gaps, as kernels read them. Rows that have none already
/// are returned as they are, free and without an event; others are copied to `scope`, with one
/// AdapterInserted event of kind "gather". Throws Error(size_overflow), and what allocate() throws.
[[nodiscard]] inline MatrixView<const float> gather(StridedView<const float> x, Scope& scope,
                                                    Trace& trace = no_trace) {
  if (const auto matrix = x.as_matrix()) return *matrix;
  const auto count = detail::checked_mul(x.rows(), x.cols());
  const auto bytes = count ? detail::checked_mul(*count, sizeof(float)) : std::nullopt;
  if (!bytes)
    throw Error(ErrorCode::size_overflow, "quern::gather: " + std::to_string(x.rows()) + " x " +
                                              std::to_string(x.cols()) +
                                              " values do not fit the address space");
  const std::span<float> values{static_cast<float*>(scope.allocate(*bytes, detail::cache_line)),
                                *count};
  // In squares, so that a column-major matrix is read by whole cache lines.
  constexpr std::size_t side = 16;
  for (std::size_t r0 = 0; r0 < x.rows(); r0 += side)
    for (std::size_t c0 = 0; c0 < x.cols(); c0 += side)
      for (std::size_t r = r0; r < std::min(r0 + side, x.rows()); ++r)
        for (std::size_t c = c0; c < std::min(c0 + side, x.cols()); ++c)
          values[r * x.cols() + c] = x.at(r, c);
  trace.emit(AdapterInserted{"gather", "strided", "contiguous", *bytes, *bytes, scope.kind()});
  return {values, x.rows(), x.cols()};
}

} // namespace quern
