// floor: 1.1
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <quern/detail/config.hpp>
#include <quern/error.hpp>

/// @file
/// Matrix extents that say which is which. A weight is `[out, in]`: `out` rows, one per output
/// feature, each `in` values long. GGUF writes the same extents the other way round; NeShape keeps
/// that label and out_in() is the only conversion.

namespace quern {

struct NeShape;

namespace detail {

/// An extent that converts to std::size_t but not to the other extent of a shape.
template <class Tag>
class Extent {
public:
  constexpr Extent() noexcept = default;

  /// From any integer. Throws Error(negative_extent) below zero and Error(size_overflow) when the
  /// value does not fit std::size_t.
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Extent(T value)
      : value_(static_cast<std::size_t>(value)) { // NOLINT: implicit
    if constexpr (std::is_signed_v<T>) {
      if (value < 0)
        throw Error(ErrorCode::negative_extent,
                    "quern::OutIn: extent " + std::to_string(value) +
                        " is negative; pass the number of rows or columns");
    }
    if constexpr (sizeof(T) > sizeof(std::size_t)) {
      if (static_cast<std::make_unsigned_t<T>>(value) > std::numeric_limits<std::size_t>::max())
        throw Error(ErrorCode::size_overflow,
                    "quern::OutIn: extent " + std::to_string(value) + " does not fit std::size_t");
    }
  }

  // clang-format off
  template <class Other>
    requires(!std::same_as<Other, Tag>)
  Extent(const Extent<Other>&) QUERN_DELETED("quern::OutIn: the extents are swapped; write OutIn{Out{rows}, In{columns}}");
  Extent(const NeShape&) QUERN_DELETED("quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with quern::out_in(shape)");
  // clang-format on

  constexpr operator std::size_t() const noexcept { return value_; } // NOLINT: implicit
  [[nodiscard]] constexpr std::size_t value() const noexcept { return value_; }

private:
  std::size_t value_ = 0;
};

} // namespace detail

/// The number of rows of a weight (output features).
using Out = detail::Extent<struct OutTag>;
/// The number of columns of a weight (input features), in values, not blocks.
using In = detail::Extent<struct InTag>;

/// The shape of a weight: `out` rows of `in` values. `OutIn{4096, 11008}`, or with named extents
/// `OutIn{Out{4096}, In{11008}}`, which does not compile when they are swapped.
struct OutIn {
  Out out; ///< rows: output features
  In in;   ///< values in a row: input features

  /// Equal when both extents are.
  friend constexpr bool operator==(const OutIn& a, const OutIn& b) noexcept {
    return a.out.value() == b.out.value() && a.in.value() == b.in.value();
  }
};

/// "[out, in]" for messages.
[[nodiscard]] inline std::string to_string(OutIn shape) {
  return std::string("[") + std::to_string(shape.out.value()) + ", " +
         std::to_string(shape.in.value()) + "]";
}

/// A matrix shape as GGUF labels it: fastest extent first, so `ne0` is `in` and `ne1` is `out`.
/// No view can be built from it; convert with out_in().
struct NeShape {
  std::uint64_t ne0; ///< the fastest extent: values in a row, `in`
  std::uint64_t ne1; ///< the number of rows, `out`

  // clang-format off
  operator OutIn() const QUERN_DELETED("quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with quern::out_in(shape)");
  // clang-format on

  /// Equal when both extents are.
  friend constexpr bool operator==(const NeShape&, const NeShape&) noexcept = default;
};

/// The one conversion from GGUF's label to `[out, in]`. The bytes need no change: only the label
/// is reversed. Throws Error(size_overflow) when an extent does not fit std::size_t.
[[nodiscard]] constexpr OutIn out_in(NeShape shape) {
  return OutIn{Out{shape.ne1}, In{shape.ne0}};
}

} // namespace quern
