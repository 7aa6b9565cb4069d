// floor: 1
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include <quern/detail/config.hpp>
#include <quern/detail/memory.hpp>
#include <quern/detail/relayout_tiles.hpp>

/// @file
/// The one permutation between the two block orders: the grid of blocks is transposed, a block's
/// own bytes stay together. From RowMajor the slow extent is `out`, from InputBlockMajor it is
/// `blocks_per_row`; the same code serves both directions.

namespace quern::detail {

/// Copies the `slow x fast` grid at `from`, whose slow neighbours are `from_stride` blocks apart,
/// to `to` with the two extents exchanged and without gaps: block (s, f) lands at `f * slow + s`.
/// The ranges must not overlap. Any address will do; destinations that start at a cache line are
/// fastest.
template <std::size_t BytesPerBlock>
constexpr void relayout(const std::byte* from, std::size_t from_stride, std::byte* to,
                        std::size_t slow, std::size_t fast) noexcept {
  if (std::is_constant_evaluated()) {
    for (std::size_t f = 0; f < fast; ++f)
      for (std::size_t s = 0; s < slow; ++s)
        std::copy_n(from + (s * from_stride + f) * BytesPerBlock, BytesPerBlock,
                    to + (f * slow + s) * BytesPerBlock);
  } else if (slow != 0 && fast != 0) {
    const bool same_places = slow == 1 || (fast == 1 && from_stride == 1);
    if (same_places)
      std::memcpy(to, from, slow * fast * BytesPerBlock);
    else
      TiledRelayout<BytesPerBlock, NativeMoves>({from, from_stride, to, slow, slow, fast})
          .run(Stores::as_measured);
  }
}

/// The same as part of a larger relayout: block (s, f) lands at `f * to_stride + s`, and the blocks
/// between keep what they hold. The caller knows how to store.
template <std::size_t BytesPerBlock>
void relayout_part(const std::byte* from, std::size_t from_stride, std::byte* to,
                   std::size_t to_stride, std::size_t slow, std::size_t fast,
                   Stores stores) noexcept {
  if (slow != 0 && fast != 0)
    TiledRelayout<BytesPerBlock, NativeMoves>({from, from_stride, to, to_stride, slow, fast})
        .run(stores);
}

/// The same within one gap-free buffer. Blocks are first brought together in groups that lie
/// contiguously before and after, so that what is left to permute is few large pieces.
template <std::size_t BytesPerBlock>
class InPlaceRelayout {
public:
  /// Takes the scratch memory: less than half of the weight, at most about 0.5 MiB unless a row of
  /// the shorter extent is longer than 32 KiB, and a bit per group. Throws std::bad_alloc.
  InPlaceRelayout(std::byte* blocks, std::size_t slow, std::size_t fast)
      : blocks_(blocks), slow_(slow), fast_(fast), shorter_(std::min(slow, fast)),
        longer_(std::max(slow, fast)), group_(choose_group()), groups_(longer_ / group_),
        rest_(longer_ % group_), panel_(allocate_bytes(group_ * shorter_ * BytesPerBlock)),
        saved_(allocate_bytes(rest_ * shorter_ * BytesPerBlock)),
        placed_(groups_ * shorter_, false) {}

  void run() noexcept {
    if (slow_ >= fast_)
      group_then_permute();
    else
      permute_then_spread();
  }

private:
  [[nodiscard]] std::size_t choose_group() const noexcept {
    const std::size_t most = std::max<std::size_t>((256 << 10) / (shorter_ * BytesPerBlock), 8);
    const std::size_t wanted =
        std::clamp<std::size_t>(most, 1, std::max<std::size_t>(longer_ / 8, 1));
    // Without a rest there is one pass less.
    for (std::size_t group = wanted; group > wanted / 2; --group)
      if (longer_ % group == 0) return group;
    return wanted;
  }

  [[nodiscard]] std::byte* block(std::size_t index) const noexcept {
    return blocks_ + index * BytesPerBlock;
  }
  static void copy(std::byte* to, const std::byte* from, std::size_t blocks) noexcept {
    std::memcpy(to, from, blocks * BytesPerBlock);
  }
  static void shift(std::byte* to, const std::byte* from, std::size_t blocks) noexcept {
    std::memmove(to, from, blocks * BytesPerBlock);
  }

  /// More rows than columns: `group_` rows at a time are relaid in the cache. That leaves a grid of
  /// groups_ x fast groups to permute.
  void group_then_permute() noexcept {
    const std::size_t whole = groups_ * group_;
    copy(saved_.get(), block(whole * fast_), rest_ * fast_);
    for (std::size_t g = 0; g < groups_; ++g)
      relayout_panel(block(g * group_ * fast_), group_, fast_);
    permute_groups(groups_, fast_);
    if (rest_ == 0) return;
    for (std::size_t f = fast_; f-- > 0;) {
      shift(block(f * slow_), block(f * whole), whole);
      for (std::size_t i = 0; i < rest_; ++i)
        copy(block(f * slow_ + whole + i), saved_.get() + (i * fast_ + f) * BytesPerBlock, 1);
    }
  }

  /// Fewer rows than columns: the same steps backwards.
  void permute_then_spread() noexcept {
    const std::size_t whole = groups_ * group_;
    if (rest_ != 0)
      for (std::size_t s = 0; s < slow_; ++s) {
        copy(saved_.get() + s * rest_ * BytesPerBlock, block(s * fast_ + whole), rest_);
        shift(block(s * whole), block(s * fast_), whole);
      }
    permute_groups(slow_, groups_);
    for (std::size_t g = 0; g < groups_; ++g)
      relayout_panel(block(g * slow_ * group_), slow_, group_);
    for (std::size_t i = 0; i < rest_; ++i)
      for (std::size_t s = 0; s < slow_; ++s)
        copy(block((whole + i) * slow_ + s), saved_.get() + (s * rest_ + i) * BytesPerBlock, 1);
  }

  void relayout_panel(std::byte* blocks, std::size_t slow, std::size_t fast) noexcept {
    relayout<BytesPerBlock>(blocks, fast, panel_.get(), slow, fast);
    copy(blocks, panel_.get(), slow * fast);
  }

  /// Follows the cycles of the permutation of a `slow x fast` grid of groups, each from its end, so
  /// that a group is copied straight to its place.
  void permute_groups(std::size_t slow, std::size_t fast) noexcept {
    if (slow <= 1 || fast <= 1) return;
    const auto source_of = [&](std::size_t to) { return to % slow * fast + to / slow; };
    const auto group = [&](std::size_t index) { return block(index * group_); };
    for (std::size_t start = 1; start + 1 < slow * fast; ++start) {
      if (placed_[start]) continue;
      std::size_t from = source_of(start);
      if (from == start) continue;
      copy(panel_.get(), group(start), group_);
      std::size_t to = start;
      for (; from != start; from = source_of(to)) {
        copy(group(to), group(from), group_);
        to = from;
        placed_[to] = true;
      }
      copy(group(to), panel_.get(), group_);
    }
  }

  std::byte* blocks_;
  std::size_t slow_;
  std::size_t fast_;
  std::size_t shorter_;
  std::size_t longer_;
  std::size_t group_;
  std::size_t groups_;
  std::size_t rest_;
  Bytes panel_;
  Bytes saved_;
  std::vector<bool> placed_;
};

/// Exchanges the extents of the gap-free `slow x fast` grid at `blocks` in its own memory; see
/// InPlaceRelayout for the memory it needs besides. Throws std::bad_alloc before anything moved.
template <std::size_t BytesPerBlock>
void relayout_in_place(std::byte* blocks, std::size_t slow, std::size_t fast) {
  if (slow <= 1 || fast <= 1) return;
  InPlaceRelayout<BytesPerBlock>(blocks, slow, fast).run();
}

} // namespace quern::detail
