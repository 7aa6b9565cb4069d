// floor: 1.2
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include <quern/detail/checked.hpp>
#include <quern/error.hpp>
#include <quern/matrix_view.hpp>

namespace quern {

/// A dense matrix that somebody else owns and whose values lie apart in both directions: value
/// (r, c) is `data()[r * row_stride() + c * col_stride()]`. A column-major matrix, a transposed one
/// or every second value of a row are such views. Kernels read rows without gaps, so gather()
/// stands between the two.
template <class T>
class StridedView {
public:
  /// Views `rows x cols` values of `values`, which must reach to the last of them. Throws
  /// Error(size_mismatch) when it does not.
  constexpr StridedView(std::span<T> values, std::size_t rows, std::size_t cols,
                        std::size_t row_stride, std::size_t col_stride)
      : data_(values.data()), rows_(rows), cols_(cols), row_stride_(row_stride),
        col_stride_(col_stride) {
    if (rows == 0 || cols == 0) return;
    const auto down = detail::checked_mul(rows - 1, row_stride);
    const auto along = detail::checked_mul(cols - 1, col_stride);
    const auto last = down && along ? detail::checked_add(*down, *along) : std::nullopt;
    if (!last || *last >= values.size())
      throw Error(ErrorCode::size_mismatch,
                  "quern::StridedView: " + std::to_string(rows) + " x " + std::to_string(cols) +
                      " values, " + std::to_string(row_stride) + " and " +
                      std::to_string(col_stride) + " apart, do not fit a span of " +
                      std::to_string(values.size()));
  }

  /// A matrix whose rows have no gaps is one of these as well.
  constexpr StridedView(MatrixView<T> matrix) noexcept // NOLINT: implicit
      : data_(matrix.data()), rows_(matrix.rows()), cols_(matrix.cols()),
        row_stride_(matrix.row_stride()), col_stride_(1) {}

  /// A matrix to read from where one to write to is at hand.
  template <class U>
  requires(std::is_const_v<T>&& std::same_as<U, std::remove_const_t<T>>) constexpr StridedView(
      const StridedView<U>& other) noexcept // NOLINT: implicit
      : data_(other.data()), rows_(other.rows()), cols_(other.cols()),
        row_stride_(other.row_stride()), col_stride_(other.col_stride()) {}

  /// Address of value (0, 0).
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  /// The number of rows.
  [[nodiscard]] constexpr std::size_t rows() const noexcept { return rows_; }
  /// The number of columns.
  [[nodiscard]] constexpr std::size_t cols() const noexcept { return cols_; }
  /// Values from (r, c) to (r + 1, c).
  [[nodiscard]] constexpr std::size_t row_stride() const noexcept { return row_stride_; }
  /// Values from (r, c) to (r, c + 1).
  [[nodiscard]] constexpr std::size_t col_stride() const noexcept { return col_stride_; }
  /// Value (r, c). Not checked: r < rows(), c < cols().
  [[nodiscard]] constexpr T& at(std::size_t r, std::size_t c) const noexcept {
    return data_[r * row_stride_ + c * col_stride_];
  }
  /// Rows as columns and columns as rows, of the same values.
  [[nodiscard]] constexpr StridedView transposed() const noexcept {
    StridedView other = *this;
    other.rows_ = cols_;
    other.cols_ = rows_;
    other.row_stride_ = col_stride_;
    other.col_stride_ = row_stride_;
    return other;
  }

  /// True when the values of each row follow each other and rows do not overlap, so that a kernel
  /// can read them where they are.
  [[nodiscard]] constexpr bool has_whole_rows() const noexcept {
    return rows_ == 0 || cols_ == 0 ||
           ((col_stride_ == 1 || cols_ == 1) && (row_stride_ >= cols_ || rows_ == 1));
  }
  /// The same values as a matrix, where has_whole_rows(); else nothing.
  [[nodiscard]] constexpr std::optional<MatrixView<T>> as_matrix() const {
    if (!has_whole_rows()) return std::nullopt;
    if (rows_ == 0 || cols_ == 0) return MatrixView<T>{std::span<T>{}, rows_, cols_};
    const std::size_t stride = rows_ == 1 ? cols_ : row_stride_;
    return MatrixView<T>{std::span<T>{data_, (rows_ - 1) * stride + cols_}, rows_, cols_, stride};
  }

private:
  T* data_;
  std::size_t rows_;
  std::size_t cols_;
  std::size_t row_stride_;
  std::size_t col_stride_;
};

} // namespace quern
