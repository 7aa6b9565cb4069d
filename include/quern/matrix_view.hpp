// floor: 1.1
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

#include <quern/detail/checked.hpp>
#include <quern/error.hpp>

namespace quern {

/// A dense row-major matrix that somebody else owns: `rows x cols` values of `T`, a row starts
/// `row_stride` values after the one before. Activations are `MatrixView<const float>` of
/// `[m, in]`, results `MatrixView<float>` of `[m, out]`.
template <class T>
class MatrixView {
public:
  /// A gap-free matrix over exactly `rows * cols` values. Throws Error(size_mismatch).
  constexpr MatrixView(std::span<T> values, std::size_t rows, std::size_t cols)
      : data_(values.data()), rows_(rows), cols_(cols), row_stride_(cols) {
    const auto count = detail::checked_mul(rows, cols);
    if (!count || *count != values.size())
      throw Error(ErrorCode::size_mismatch,
                  "quern::MatrixView: " + std::to_string(rows) + " x " + std::to_string(cols) +
                      " values do not fill a span of " + std::to_string(values.size()));
  }

  /// A matrix whose rows start `row_stride` values apart. The span must reach to the end of the
  /// last row. Throws Error(size_mismatch) when it does not or `row_stride < cols`.
  constexpr MatrixView(std::span<T> values, std::size_t rows, std::size_t cols,
                       std::size_t row_stride)
      : data_(values.data()), rows_(rows), cols_(cols), row_stride_(row_stride) {
    if (rows == 0) return;
    const auto before_last = detail::checked_mul(rows - 1, row_stride);
    const auto needed = before_last ? detail::checked_add(*before_last, cols) : std::nullopt;
    if (row_stride < cols || !needed || *needed > values.size())
      throw Error(ErrorCode::size_mismatch,
                  "quern::MatrixView: " + std::to_string(rows) + " rows of " +
                      std::to_string(cols) + " values, " + std::to_string(row_stride) +
                      " apart, do not fit a span of " + std::to_string(values.size()));
  }

  /// A matrix to read from where one to write to is at hand.
  template <class U>
  requires(std::is_const_v<T>&& std::same_as<U, std::remove_const_t<T>>) constexpr MatrixView(
      const MatrixView<U>& other) noexcept // NOLINT: implicit
      : data_(other.data()), rows_(other.rows()), cols_(other.cols()),
        row_stride_(other.row_stride()) {}

  /// Address of value (0, 0).
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  /// Rows: m of activations and results.
  [[nodiscard]] constexpr std::size_t rows() const noexcept { return rows_; }
  /// Values in a row.
  [[nodiscard]] constexpr std::size_t cols() const noexcept { return cols_; }
  /// Values from the start of a row to that of the next; cols() when there are no gaps.
  [[nodiscard]] constexpr std::size_t row_stride() const noexcept { return row_stride_; }
  /// Address of a row. Not checked: r < rows().
  [[nodiscard]] constexpr T* row(std::size_t r) const noexcept { return data_ + r * row_stride_; }

  /// Columns [from, from + count) of the same values. Throws Error(out_of_range).
  [[nodiscard]] constexpr MatrixView narrow_cols(std::size_t from, std::size_t count) const {
    check_range("columns", from, count, cols_);
    MatrixView part = *this;
    part.cols_ = count;
    if (count != 0 && rows_ != 0) part.data_ = data_ + from;
    return part;
  }

  /// Rows [from, from + count) of the same values. Throws Error(out_of_range).
  [[nodiscard]] constexpr MatrixView narrow_rows(std::size_t from, std::size_t count) const {
    check_range("rows", from, count, rows_);
    MatrixView part = *this;
    part.rows_ = count;
    if (count != 0) part.data_ = row(from);
    return part;
  }

private:
  static constexpr void check_range(const char* what, std::size_t from, std::size_t count,
                                    std::size_t extent) {
    if (from > extent || count > extent - from)
      throw Error(ErrorCode::out_of_range, "quern::MatrixView: " + std::string(what) + " from " +
                                               std::to_string(from) + ", " + std::to_string(count) +
                                               " of them, do not lie within " +
                                               std::to_string(extent));
  }

  T* data_;
  std::size_t rows_;
  std::size_t cols_;
  std::size_t row_stride_;
};

} // namespace quern
