// floor: 3
#pragma once

#include <compare>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>

#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>

namespace quern {

/// Matrices of one format and shape, one behind the other in memory, such as those of the experts
/// of a layer: a range of views. Like them it owns nothing.
template <BlockFormat F>
class WeightStack {
public:
  /// One of the matrices, `[out, in]`.
  using value_type = PackedView<F, RowMajor>;

  /// No matrices.
  constexpr WeightStack() noexcept = default;

  /// `count` matrices that fill `bytes`. Throws Error(size_mismatch), and as PackedView does.
  constexpr WeightStack(std::span<const std::byte> bytes, OutIn shape, std::size_t count)
      : bytes_(bytes), shape_(shape), count_(count),
        bytes_per_matrix_(count == 0 ? 0 : bytes.size() / count) {
    if (bytes_per_matrix_ * count != bytes.size())
      throw Error(ErrorCode::size_mismatch, "quern::WeightStack: " + std::to_string(bytes.size()) +
                                                " bytes are no " + std::to_string(count) +
                                                " matrices of one size");
    if (count != 0) static_cast<void>((*this)[0]);
  }

  /// How many matrices there are.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return count_; }
  /// True when there are none.
  [[nodiscard]] constexpr bool empty() const noexcept { return count_ == 0; }
  /// The shape of each.
  [[nodiscard]] constexpr OutIn shape() const noexcept { return shape_; }

  /// Matrix `i`. Throws Error(out_of_range).
  [[nodiscard]] constexpr value_type operator[](std::size_t i) const {
    if (i >= count_)
      throw Error(ErrorCode::out_of_range, "quern::WeightStack: matrix " + std::to_string(i) +
                                               " of " + std::to_string(count_));
    return {bytes_.subspan(i * bytes_per_matrix_, bytes_per_matrix_), shape_};
  }

  /// Goes through the matrices; valid as long as the stack.
  class Iterator {
  public:
    using value_type = PackedView<F, RowMajor>;               ///< made on the spot
    using difference_type = std::ptrdiff_t;                   ///< in matrices
    using iterator_category = std::input_iterator_tag;        ///< since `*i` is no reference
    using iterator_concept = std::random_access_iterator_tag; ///< any step costs the same

    /// Belongs to no stack.
    constexpr Iterator() noexcept = default;
    /// Stands at matrix `i` of `stack`.
    constexpr Iterator(const WeightStack& stack, std::size_t i) noexcept
        : stack_(&stack), i_(static_cast<difference_type>(i)) {}

    /// The matrix.
    [[nodiscard]] constexpr value_type operator*() const {
      return (*stack_)[static_cast<std::size_t>(i_)];
    }
    /// The matrix `n` further on.
    [[nodiscard]] constexpr value_type operator[](difference_type n) const {
      return (*stack_)[static_cast<std::size_t>(i_ + n)];
    }
    /// Steps on.
    constexpr Iterator& operator++() noexcept { return *this += 1; }
    /// Steps on.
    constexpr Iterator operator++(int) noexcept {
      Iterator before = *this;
      ++i_;
      return before;
    }
    /// Steps back.
    constexpr Iterator& operator--() noexcept { return *this -= 1; }
    /// Steps back.
    constexpr Iterator operator--(int) noexcept {
      Iterator before = *this;
      --i_;
      return before;
    }
    /// Steps on by `n`.
    constexpr Iterator& operator+=(difference_type n) noexcept {
      i_ += n;
      return *this;
    }
    /// Steps back by `n`.
    constexpr Iterator& operator-=(difference_type n) noexcept { return *this += -n; }
    /// `n` further on.
    [[nodiscard]] friend constexpr Iterator operator+(Iterator i, difference_type n) noexcept {
      return i += n;
    }
    /// `n` further on.
    [[nodiscard]] friend constexpr Iterator operator+(difference_type n, Iterator i) noexcept {
      return i += n;
    }
    /// `n` before.
    [[nodiscard]] friend constexpr Iterator operator-(Iterator i, difference_type n) noexcept {
      return i -= n;
    }
    /// Matrices between two places of one stack.
    [[nodiscard]] friend constexpr difference_type operator-(const Iterator& a,
                                                             const Iterator& b) noexcept {
      return a.i_ - b.i_;
    }
    /// Whether two places of one stack are the same.
    [[nodiscard]] friend constexpr bool operator==(const Iterator& a, const Iterator& b) noexcept {
      return a.i_ == b.i_;
    }
    /// Which of two places of one stack comes first.
    [[nodiscard]] friend constexpr auto operator<=>(const Iterator& a, const Iterator& b) noexcept {
      return a.i_ <=> b.i_;
    }

  private:
    const WeightStack* stack_ = nullptr;
    difference_type i_ = 0;
  };

  /// The first matrix.
  [[nodiscard]] constexpr Iterator begin() const noexcept { return {*this, 0}; }
  /// Behind the last.
  [[nodiscard]] constexpr Iterator end() const noexcept { return {*this, count_}; }

private:
  std::span<const std::byte> bytes_;
  OutIn shape_{};
  std::size_t count_ = 0;
  std::size_t bytes_per_matrix_ = 0;
};

} // namespace quern
