// floor: 3.2
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/matrix_view.hpp>

/// @file
/// Encoding whole rows, in pieces. Only the loop over the blocks of a row depends on the format.

namespace quern::detail {

[[noreturn]] inline void throw_encode_fault(EncodeFault fault, std::string_view format,
                                            std::size_t row, std::size_t column, float value) {
  const std::string where = "quern::quantize to " + std::string(format) + ": ";
  const std::string place = " at row " + std::to_string(row) + ", column " + std::to_string(column);
  if (fault == EncodeFault::not_a_number)
    throw Error(ErrorCode::not_a_number, where + "NaN" + place + "; remove it first");
  if (fault == EncodeFault::infinite)
    throw Error(ErrorCode::infinite, where + "infinity" + place + "; clamp it first");
  throw Error(ErrorCode::scale_overflow, where + "the value " + std::to_string(value) + place +
                                             " needs a scale that the format can't hold; "
                                             "rescale the weight");
}

/// Throws Error(size_mismatch / bad_importance) unless there are no importances, or `cols` numbers
/// that are finite and not negative.
inline void check_importance(std::span<const float> importance, std::size_t cols,
                             std::string_view format) {
  if (importance.empty()) return;
  const std::string where = "quern::quantize to " + std::string(format) + ": ";
  if (importance.size() != cols)
    throw Error(ErrorCode::size_mismatch, where + std::to_string(importance.size()) +
                                              " importances for " + std::to_string(cols) +
                                              " columns; pass one for each column, or none");
  const auto bad = std::ranges::find_if(
      importance, [](float value) { return !std::isfinite(value) || value < 0.0f; });
  if (bad != importance.end())
    throw Error(ErrorCode::bad_importance,
                where + "the importance of column " + std::to_string(bad - importance.begin()) +
                    " is " + std::to_string(*bad) +
                    "; importances are finite and not negative, 0 for what does not matter");
}

/// The first block of a row that could not be encoded.
struct RowFault {
  EncodeFault fault = EncodeFault::none;
  std::size_t column = 0;
};

/// Encodes one row of `cols` values into `to`, up to the first fault. `importance` is that of the
/// columns, or null.
using EncodeRow = RowFault (*)(const float* values, std::size_t cols, const float* importance,
                               std::byte* to) noexcept;

/// An EncodeRow. `encode(block, importance)` encodes one block.
template <class F, class Encode>
RowFault encode_row_by(const float* values, std::size_t cols, const float* importance,
                       std::byte* to, Encode encode) noexcept {
  for (std::size_t column = 0; column < cols; column += F::block_size) {
    const std::span<const float, F::block_size> block{values + column, F::block_size};
    std::span<const float> weights;
    if (importance != nullptr) weights = {importance + column, F::block_size};
    const Encoded<F::bytes_per_block> encoded = encode(block, weights);
    if (!encoded.ok()) return {encoded.fault(), column + encoded.lane()};
    to = std::ranges::copy(encoded.bytes(), to).out;
  }
  return {};
}

/// Encodes all rows; `row_bytes` is what one takes. Throws as quantize() does for a value that
/// can't be encoded: for the first one by row and column, however the rows are shared out.
inline void encode_rows(EncodeRow encode, MatrixView<const float> values,
                        std::span<const float> importance, std::byte* to, std::size_t row_bytes,
                        std::string_view format, const ExecutorRef& executor) {
  struct Fault {
    RowFault fault;
    std::size_t row = 0;
  };
  const std::size_t rows = values.rows();
  // Some rows cost more than others, and executors hand out what is left.
  const std::size_t wanted = executor.concurrency() <= 1 ? 1 : 8 * executor.concurrency();
  const std::size_t per_piece = rows / wanted + (rows % wanted != 0 ? 1 : 0);
  if (per_piece == 0) return;
  const std::size_t pieces = (rows + per_piece - 1) / per_piece;
  std::vector<Fault> faults(pieces);
  std::atomic<std::size_t> first_bad = pieces;
  executor.parallel_for(pieces, [&](std::size_t piece) {
    const std::size_t end = std::min(rows, (piece + 1) * per_piece);
    for (std::size_t row = piece * per_piece; row < end; ++row) {
      // What comes after the first fault is not looked at by anyone.
      if (first_bad.load(std::memory_order_relaxed) < piece) return;
      const RowFault fault =
          encode(values.row(row), values.cols(), importance.empty() ? nullptr : importance.data(),
                 to + row * row_bytes);
      if (fault.fault == EncodeFault::none) continue;
      faults[piece] = {fault, row};
      std::size_t known = first_bad.load(std::memory_order_relaxed);
      while (piece < known &&
             !first_bad.compare_exchange_weak(known, piece, std::memory_order_relaxed)) {
      }
      return;
    }
  });
  for (const Fault& at : faults)
    if (at.fault.fault != EncodeFault::none)
      throw_encode_fault(at.fault.fault, format, at.row, at.fault.column,
                         values.row(at.row)[at.fault.column]);
}

} // namespace quern::detail
