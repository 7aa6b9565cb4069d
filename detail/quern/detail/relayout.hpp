// floor: 1
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include <quern/detail/config.hpp>

/// @file
/// The one permutation between the two block orders: the grid of blocks is transposed, a block's
/// own bytes stay together. From RowMajor the slow extent is `out`, from InputBlockMajor it is
/// `blocks_per_row`; the same code serves both directions.

namespace quern::detail {

/// Copies the `slow x fast` grid at `from`, whose slow neighbours are `from_stride` blocks apart,
/// to `to` with the two extents exchanged and without gaps: block (s, f) lands at `f * slow + s`.
/// The ranges must not overlap.
template <std::size_t BytesPerBlock>
constexpr void relayout(const std::byte* from, std::size_t from_stride, std::byte* to,
                        std::size_t slow, std::size_t fast) noexcept {
  for (std::size_t f = 0; f < fast; ++f)
    for (std::size_t s = 0; s < slow; ++s) {
      const std::byte* source = from + (s * from_stride + f) * BytesPerBlock;
      std::byte* target = to + (f * slow + s) * BytesPerBlock;
      if (std::is_constant_evaluated())
        std::copy_n(source, BytesPerBlock, target);
      else
        std::memcpy(target, source, BytesPerBlock);
    }
}

/// The same within one gap-free buffer, by following the cycles of the permutation: no second copy
/// of the weight, one bit per block besides. Throws std::bad_alloc before anything moved.
template <std::size_t BytesPerBlock>
void relayout_in_place(std::byte* blocks, std::size_t slow, std::size_t fast) {
  const std::size_t count = slow * fast;
  if (slow <= 1 || fast <= 1) return;
  std::vector<bool> placed(count, false);
  std::byte carried[BytesPerBlock];
  std::byte displaced[BytesPerBlock];
  for (std::size_t start = 1; start + 1 < count; ++start) {
    if (placed[start]) continue;
    std::size_t at = start;
    std::memcpy(carried, blocks + at * BytesPerBlock, BytesPerBlock);
    do {
      at = (at % fast) * slow + at / fast;
      std::memcpy(displaced, blocks + at * BytesPerBlock, BytesPerBlock);
      std::memcpy(blocks + at * BytesPerBlock, carried, BytesPerBlock);
      std::memcpy(carried, displaced, BytesPerBlock);
      placed[at] = true;
    } while (at != start);
  }
}

} // namespace quern::detail
