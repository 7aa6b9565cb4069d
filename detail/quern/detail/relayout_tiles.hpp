// floor: 0.3
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>

#include <quern/detail/block_moves.hpp>
#include <quern/kernels/sse2_moves.hpp>

/// @file
/// relayout() in tiles. Three things make a plain loop slow:
///
/// - Rows are often a multiple of the page apart, so the lines of a tile fall into a few cache sets
///   and push each other out.
/// - A store to a line that no cache holds reads that line first. Here lines are complete when they
///   are stored, so they can go around the caches.
/// - The source is read in pieces too short for a prefetcher to follow. Here the rows of the next
///   tile are asked for, line by line, while the present one moves.

namespace quern::detail {

#if defined(QUERN_SSE2_MOVES)
using NativeMoves = kernels::Sse2Moves;
#else
using NativeMoves = PortableMoves;
#endif

/// The extents of a tile for blocks of `BytesPerBlock`, found by measurement.
template <std::size_t BytesPerBlock, class Moves>
struct TileShape {
  static constexpr std::size_t line = 64;

  static constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit) noexcept {
    return (bytes + unit - 1) / unit * unit;
  }

  static constexpr std::size_t move_rows = Moves::template rows<BytesPerBlock>;
  static constexpr std::size_t move_columns = Moves::template columns<BytesPerBlock>;
  static constexpr std::size_t move_bytes = move_rows * move_columns * BytesPerBlock;
  /// Moves between two requests for source lines.
  static constexpr std::size_t moves_per_request = rounded_up(line, move_bytes) / move_bytes;

  /// Blocks of one piece of a destination run: whole lines and whole moves.
  static constexpr std::size_t rows =
      rounded_up(
          BytesPerBlock < 16 ? 256 : 576,
          std::lcm(std::lcm(line, BytesPerBlock), moves_per_request* move_rows* BytesPerBlock)) /
      BytesPerBlock;
  /// Blocks of a source row in a tile: two tiles fit the second-level cache.
  static constexpr std::size_t columns =
      std::max<std::size_t>(1, std::min<std::size_t>(8192, (200 << 10) / rows) / BytesPerBlock);
  /// The same where source rows are longer than what they become: the tiles below each other then
  /// fill the new rows while those are still at hand.
  static constexpr std::size_t columns_of_long_rows =
      std::clamp<std::size_t>((256 << 10) / rows / BytesPerBlock, 1, 128);
  /// Columns that are gathered before they are stored: they fit the first-level cache.
  static constexpr std::size_t strip = rounded_up(
      std::clamp<std::size_t>((18 << 10) / rows / BytesPerBlock, 1, columns), move_columns);
  /// Bytes between gathered columns. An odd number of lines spreads over all cache sets.
  static constexpr std::size_t strip_pitch = (rows * BytesPerBlock / line | 1) * line;
  /// Blocks before a piece that can share its first line.
  static constexpr std::size_t overlap = (line - 1 + BytesPerBlock - 1) / BytesPerBlock;
};

/// Asks for the lines of a rectangle, row after row, a few at a time.
template <class Moves>
class RowPrefetcher {
public:
  RowPrefetcher() = default;
  RowPrefetcher(const std::byte* first, std::size_t pitch, std::size_t bytes_per_row,
                std::size_t rows) noexcept
      : at_(first), row_(first), pitch_(pitch), bytes_per_row_(bytes_per_row),
        left_(rows != 0 ? bytes_per_row : 0), rows_(rows) {}

  template <std::size_t Bytes>
  QUERN_ALWAYS_INLINE void advance() noexcept {
    if (left_ == 0) return;
    for (std::size_t offset = 0; offset < Bytes; offset += 64)
      Moves::prefetch(at_ + offset);
    if (left_ > Bytes) {
      at_ += Bytes;
      left_ -= Bytes;
    } else {
      row_ += pitch_;
      at_ = row_;
      left_ = --rows_ != 0 ? bytes_per_row_ : 0;
    }
  }

private:
  const std::byte* at_ = nullptr;
  const std::byte* row_ = nullptr;
  std::size_t pitch_ = 0;
  std::size_t bytes_per_row_ = 0;
  std::size_t left_ = 0;
  std::size_t rows_ = 0;
};

/// Whether stores go around the caches.
enum class Stores {
  through_caches,
  around_caches,
  as_measured, ///< as StoreChoice finds where there is enough to store
};

/// Finds out on the first tiles whether stores around the caches pay. No rule by size can tell: it
/// depends on what the caches hold already and on who else uses them.
class StoreChoice {
public:
  explicit StoreChoice(Stores stores) noexcept
      : trials_left_(stores == Stores::as_measured ? 6 : 0),
        stream_(stores == Stores::around_caches) {}

  /// Runs `tile(stream)`; `bytes` tells how much it moves.
  template <class Tile>
  void run(std::size_t bytes, Tile&& tile) noexcept {
    if (trials_left_ == 0) {
      tile(stream_);
      return;
    }
    const bool stream = trials_left_ % 2 == 0;
    const auto start = std::chrono::steady_clock::now();
    tile(stream);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    auto& best = seconds_per_byte_[stream ? 1 : 0];
    best = std::min(best, taken.count() / static_cast<double>(bytes));
    if (--trials_left_ == 0) stream_ = seconds_per_byte_[1] <= allowance * seconds_per_byte_[0];
  }

private:
  /// How much dearer a streamed tile may look: a store through the caches costs again, beyond what
  /// is measured here, when its line makes room for another. (Found on Zen 4: twice as much in
  /// all.)
  static constexpr double allowance = 2.5;

  int trials_left_;
  bool stream_;
  std::array<double, 2> seconds_per_byte_{1.0, 1.0};
};

/// Blocks to be moved; see relayout_part().
struct RelayoutGrid {
  const std::byte* from;
  std::size_t from_stride; ///< in blocks, as all below
  std::byte* to;
  std::size_t to_stride;
  std::size_t slow;
  std::size_t fast;
};

/// One relayout in tiles; see relayout() for what it does.
template <std::size_t BytesPerBlock, class Moves>
class TiledRelayout {
  using Shape = TileShape<BytesPerBlock, Moves>;

public:
  explicit TiledRelayout(const RelayoutGrid& grid) noexcept
      : from_(grid.from), pitch_(grid.from_stride * BytesPerBlock), to_(grid.to),
        to_pitch_(grid.to_stride * BytesPerBlock), slow_(grid.slow), fast_(grid.fast),
        lines_whole_((reinterpret_cast<std::uintptr_t>(to_) | to_pitch_ | (slow_ * BytesPerBlock)) %
                         Shape::line ==
                     0),
        rows_collide_(find_collisions()) {}

  void run(Stores stores) noexcept {
    // A short run has few whole lines; and with little to store, everything fits the caches.
    const bool may_stream = Moves::streams && slow_ * BytesPerBlock >= 512;
    if (!may_stream || (stores == Stores::as_measured && slow_ * fast_ * BytesPerBlock < (4 << 20)))
      stores = Stores::through_caches;
    const bool streams = stores != Stores::through_caches;
    StoreChoice choice(stores);
    // Where pieces meet within a line, a streamed piece ends with its last whole line, and the one
    // behind starts with the blocks of that line, so that each line is stored once.
    const std::size_t overlap = streams && !lines_whole_ ? Shape::overlap : 0;
    const std::size_t most = fast_ > slow_ ? Shape::columns_of_long_rows : Shape::columns;
    const std::size_t panels = (fast_ + most - 1) / most;
    const std::size_t columns = (fast_ + panels - 1) / panels;
    for (std::size_t f = 0; f < fast_; f += columns)
      for (std::size_t s = 0; s < slow_;) {
        const Tile tile{s == 0 ? 0 : overlap, s, std::min(Shape::rows - overlap, slow_ - s), f,
                        std::min(columns, fast_ - f)};
        choice.run(tile.rows * tile.columns * BytesPerBlock, [&](bool stream) {
          if constexpr (Moves::streams) {
            if (stream) return move_tile<true>(tile);
          }
          move_tile<false>(tile);
        });
        s += tile.rows;
      }
    if (streams) Moves::finish();
  }

private:
  struct Tile {
    std::size_t before;        // rows before `slow` that may share a line with it
    std::size_t slow, rows;    // rows [slow, slow + rows)
    std::size_t fast, columns; // columns [fast, fast + columns)
  };

  /// Whether the rows of a tile crowd in few sets of the first-level cache (64 sets, 8 ways).
  [[nodiscard]] bool find_collisions() const noexcept {
    if constexpr (Shape::rows <= 8) return false;
    std::array<std::size_t, 64> lines{};
    for (std::size_t row = 0; row < std::min(Shape::rows, slow_); ++row)
      if (++lines[row * pitch_ / Shape::line % lines.size()] > 3) return true;
    return false;
  }

  [[nodiscard]] RowPrefetcher<Moves> after(const Tile& tile) const noexcept {
    const std::size_t slow = tile.slow + tile.rows;
    if (slow < slow_)
      return {from_ + slow * pitch_ + tile.fast * BytesPerBlock, pitch_,
              tile.columns * BytesPerBlock, std::min(Shape::rows, slow_ - slow)};
    const std::size_t fast = tile.fast + tile.columns;
    if (fast < fast_)
      return {from_ + fast * BytesPerBlock, pitch_,
              std::min(tile.columns, fast_ - fast) * BytesPerBlock, std::min(Shape::rows, slow_)};
    return {};
  }

  template <bool Stream>
  void move_tile(const Tile& tile) noexcept {
    const std::byte* const source =
        from_ + (tile.slow - tile.before) * pitch_ + tile.fast * BytesPerBlock;
    RowPrefetcher<Moves> next = after(tile);
    if constexpr (Shape::move_columns == 1 && (!Stream || BytesPerBlock >= 16)) {
      if (!rows_collide_ && (!Stream || lines_whole_)) {
        for (std::size_t c = 0; c < tile.columns; ++c)
          move_run<Stream>(source + c * BytesPerBlock, tile.before + tile.rows,
                           run_of(tile, c) - tile.before * BytesPerBlock, next);
        return;
      }
    }
    for (std::size_t c = 0; c < tile.columns; c += Shape::strip)
      move_strip<Stream>(source + c * BytesPerBlock, tile, c,
                         std::min(Shape::strip, tile.columns - c), next);
  }

  /// Where column `c` of a tile goes.
  [[nodiscard]] std::byte* run_of(const Tile& tile, std::size_t c) const noexcept {
    return to_ + (tile.fast + c) * to_pitch_ + tile.slow * BytesPerBlock;
  }

  /// One column straight to its place.
  template <bool Stream>
  QUERN_ALWAYS_INLINE void move_run(const std::byte* from, std::size_t rows, std::byte* to,
                                    RowPrefetcher<Moves>& next) const noexcept {
    constexpr std::size_t step = Shape::moves_per_request * Shape::move_rows;
    std::size_t row = 0;
    for (; row + step <= rows; row += step) {
      next.template advance<step * BytesPerBlock>();
      for (std::size_t i = 0; i < Shape::moves_per_request; ++i) {
        Moves::template move<BytesPerBlock, Stream>(from, pitch_, to, 0);
        from += Shape::move_rows * pitch_;
        to += Shape::move_rows * BytesPerBlock;
      }
    }
    for (; row < rows; ++row) {
      std::memcpy(to, from, BytesPerBlock);
      from += pitch_;
      to += BytesPerBlock;
    }
  }

  /// Columns [first, first + columns) of a tile by way of a compact copy: a few rows at a time are
  /// read along, then each column is stored in one piece.
  template <bool Stream>
  void move_strip(const std::byte* from, const Tile& tile, std::size_t first, std::size_t columns,
                  RowPrefetcher<Moves>& next) const noexcept {
    alignas(Shape::line) std::array<std::byte, Shape::strip * Shape::strip_pitch> gathered;
    const std::size_t rows = tile.before + tile.rows;
    const std::size_t whole_rows = rows - rows % Shape::move_rows;
    const std::size_t whole_columns = columns - columns % Shape::move_columns;
    for (std::size_t row = 0; row < whole_rows; row += Shape::move_rows)
      gather_rows(from + row * pitch_, gathered.data() + row * BytesPerBlock, whole_columns, next);
    const auto move_one = [&](std::size_t row, std::size_t c) {
      std::memcpy(gathered.data() + c * Shape::strip_pitch + row * BytesPerBlock,
                  from + row * pitch_ + c * BytesPerBlock, BytesPerBlock);
    };
    for (std::size_t row = 0; row < whole_rows; ++row)
      for (std::size_t c = whole_columns; c < columns; ++c)
        move_one(row, c);
    for (std::size_t row = whole_rows; row < rows; ++row)
      for (std::size_t c = 0; c < columns; ++c)
        move_one(row, c);

    for (std::size_t c = 0; c < columns; ++c) {
      const std::byte* const column = gathered.data() + c * Shape::strip_pitch;
      if constexpr (Stream)
        stream_piece(column + tile.before * BytesPerBlock, run_of(tile, first + c),
                     tile.rows * BytesPerBlock, tile.slow == 0, tile.slow + tile.rows == slow_);
      else
        std::memcpy(run_of(tile, first + c) - tile.before * BytesPerBlock, column,
                    rows * BytesPerBlock);
    }
  }

  void gather_rows(const std::byte* from, std::byte* to, std::size_t columns,
                   RowPrefetcher<Moves>& next) const noexcept {
    constexpr std::size_t step = Shape::moves_per_request * Shape::move_columns;
    for (std::size_t c = 0; c < columns; c += Shape::move_columns) {
      if (c % step == 0) next.template advance<step * Shape::move_rows * BytesPerBlock>();
      Moves::template move<BytesPerBlock, false>(from, pitch_, to, Shape::strip_pitch);
      from += Shape::move_columns * BytesPerBlock;
      to += Shape::move_columns * Shape::strip_pitch;
    }
  }

  /// Stores a piece of a run as whole lines. The bytes before its first whole line are those of the
  /// piece before and lie before `from`; those after its last whole line are left to the piece
  /// behind. The two ends of a run are stored as they are.
  static void stream_piece(const std::byte* from, std::byte* to, std::size_t bytes, bool first,
                           bool last) noexcept {
    const auto into_line = [](const std::byte* at) {
      return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(at) % Shape::line);
    };
    const std::byte* end = to + bytes;
    if (!last) end -= into_line(end);
    if (!first) {
      from -= into_line(to);
      to -= into_line(to);
    } else if (into_line(to) != 0) {
      const std::size_t head =
          std::min(Shape::line - into_line(to), static_cast<std::size_t>(end - to));
      std::memcpy(to, from, head);
      from += head;
      to += head;
    }
    for (; end - to >= static_cast<std::ptrdiff_t>(Shape::line); to += Shape::line) {
      Moves::template move_line<true>(from, to);
      from += Shape::line;
    }
    if (end > to) std::memcpy(to, from, static_cast<std::size_t>(end - to));
  }

  const std::byte* from_;
  std::size_t pitch_;
  std::byte* to_;
  std::size_t to_pitch_;
  std::size_t slow_;
  std::size_t fast_;
  bool lines_whole_;
  bool rows_collide_;
};

} // namespace quern::detail
