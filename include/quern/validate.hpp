// floor: 3.1
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern {

/// The first block of a weight that is invalid, or none.
struct [[nodiscard]] Validation {
  BlockFault fault = BlockFault::none; ///< of that block; none when ok()
  std::size_t out = 0;                 ///< row of the block; 0 when ok()
  std::size_t block = 0;               ///< its place in the row, in blocks; 0 when ok()
  std::string_view format;             ///< `name` of the format

  /// True when every block is valid.
  [[nodiscard]] constexpr bool ok() const noexcept { return fault == BlockFault::none; }

  /// The result in words.
  [[nodiscard]] std::string message() const {
    const std::string head = "quern::validate: " + std::string(format) + ": ";
    if (ok()) return head + "every block is valid";
    return head + "block (" + std::to_string(out) + ", " + std::to_string(block) + ") has " +
           std::string(to_string(fault)) +
           "; the weight is damaged or was quantized from values "
           "that its format can't hold";
  }

  /// Throws Error(bad_block) unless ok().
  void require() const {
    if (!ok()) throw Error(ErrorCode::bad_block, message());
  }
};

/// A format that can tell valid blocks from others: `check(block)` is a BlockFault.
template <class F>
concept CheckedFormat = BlockFormat<F> &&
    requires(std::span<const std::byte, F::bytes_per_block> block) {
  { F::check(block) }
  noexcept->std::same_as<BlockFault>;
};

/// Looks for the first block (o, b), by rows and then within the row, that has a NaN or infinite
/// scale, minimum or single value, or a code that its format reserves. What passes decodes to
/// finite numbers. Rows and blocks are counted in the view. It reads the scales of every block, and
/// codes only where a scale may be too large for them; which codes and scales a format allows is
/// said at its `check`.
template <BlockFormat F, BlockOrder O>
[[nodiscard]] constexpr Validation validate(PackedView<F, O> weight) noexcept {
  static_assert(CheckedFormat<F>,
                "quern::validate: the format has no check of its own block; add `static constexpr "
                "BlockFault check(std::span<const std::byte, bytes_per_block>) noexcept`");
  Validation first;
  first.format = F::name;
  const auto check = [&](std::size_t o, std::size_t b) {
    const BlockFault fault =
        F::check(typename PackedView<F, O>::Block{weight.block_data(o, b), F::bytes_per_block});
    if (fault == BlockFault::none) return false;
    first.fault = fault;
    first.out = o;
    first.block = b;
    return true;
  };
  // In the order of memory. By columns, only rows above the best find can still beat it.
  if constexpr (std::same_as<O, RowMajor>) {
    for (std::size_t o = 0; o < weight.out(); ++o)
      for (std::size_t b = 0; b < weight.blocks_per_row(); ++b)
        if (check(o, b)) return first;
  } else {
    std::size_t rows = weight.out();
    for (std::size_t b = 0; b < weight.blocks_per_row(); ++b)
      for (std::size_t o = 0; o < rows; ++o)
        if (check(o, b)) rows = o;
  }
  return first;
}

} // namespace quern
