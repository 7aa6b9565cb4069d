// floor: 2
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/detail/checked.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/shape.hpp>

namespace quern {

namespace detail {

/// The grid of a weight: extents in blocks and its size in bytes.
struct Grid {
  std::size_t blocks_per_row;
  std::size_t bytes;
};

/// The grid of a `shape` in format F. Throws when `in` is not a multiple of the block size or a
/// product does not fit. `call` names the caller in the message.
template <BlockFormat F>
[[nodiscard]] constexpr Grid grid_of(OutIn shape, const char* call) {
  const std::size_t in = shape.in;
  const std::size_t out = shape.out;
  if (in % F::block_size != 0)
    throw Error(ErrorCode::not_block_multiple,
                std::string(call) + ": row length " + std::to_string(in) +
                    " is not a multiple of " + std::to_string(F::block_size) + ", the block of " +
                    std::string(F::name) + " (remainder " + std::to_string(in % F::block_size) +
                    "); pad the row or choose a format with a smaller block");
  const std::size_t blocks_per_row = in / F::block_size;
  const auto elements = checked_mul(out, in);
  const auto blocks = checked_mul(out, blocks_per_row);
  const auto bytes = blocks ? checked_mul(*blocks, F::bytes_per_block) : std::nullopt;
  if (!elements || !bytes)
    throw Error(ErrorCode::size_overflow, std::string(call) + ": element count overflow for " +
                                              to_string(shape) + " in " + std::string(F::name));
  return {blocks_per_row, *bytes};
}

/// A matrix or vector class of numbers as linear-algebra libraries have them.
template <class T>
concept DenseMatrix = requires {
  typename T::Scalar;
};

/// Says in words why two types can't be the format and the order of a view or a weight.
template <class F, class O>
struct ExplainedPacking {
  static_assert(ExplainedFormat<F>::good);
  static_assert(BlockOrder<O>, "quern: the block order of a view or a weight is RowMajor or "
                               "InputBlockMajor; there is no third one");
  static constexpr bool good = true;
};

} // namespace detail

/// A read-only view of a packed weight: bytes that somebody else owns, in format `F`, with their
/// blocks in order `O`. The logical matrix is `[out, in]`; narrowing shares the bytes and keeps the
/// stride of the weight that owns them. Bytes may start at any address.
///
/// Neither the order nor the format converts: reading one order as the other gives finite, wrong
/// numbers, so changing it is a visible `prepack<To>(view, scope)`.
/// F is a BlockFormat, O a BlockOrder.
template <class F, class O>
class PackedView {
  static_assert(detail::ExplainedPacking<F, O>::good);

public:
  using Format = F; ///< of the blocks
  using Order = O;  ///< in which the blocks lie
  /// The bytes of one block.
  using Block = std::span<const std::byte, F::bytes_per_block>;

  /// Views `bytes` as a whole weight of `shape`. Throws Error(not_block_multiple) when `in` is not
  /// a multiple of the block size, Error(size_overflow) when a product does not fit, and
  /// Error(size_mismatch) when `bytes` is not exactly the size of the weight.
  constexpr PackedView(std::span<const std::byte> bytes, OutIn shape) : shape_(shape) {
    const auto grid = detail::grid_of<F>(shape, "quern::PackedView");
    if (bytes.size() != grid.bytes)
      throw Error(ErrorCode::size_mismatch,
                  "quern::PackedView: " + to_string(shape) + " in " + std::string(F::name) +
                      " needs exactly " + std::to_string(grid.bytes) + " bytes, got " +
                      std::to_string(bytes.size()) + "; pass the span of this weight alone");
    data_ = bytes.data();
    stride_ = O::stride(shape.out, grid.blocks_per_row);
  }

  // clang-format off
  PackedView(std::span<const std::byte>, NeShape) QUERN_DELETED("quern::PackedView: NeShape is GGUF's label, fastest extent first; convert it with quern::out_in(shape)");
  template <std::ranges::range Owner>
    requires(!std::is_lvalue_reference_v<Owner> && !std::ranges::borrowed_range<Owner>)
  PackedView(Owner&& temporary_bytes, OutIn) QUERN_DELETED("quern::PackedView: a view of a temporary would dangle; keep the bytes in a variable that outlives the view");
  template <BlockOrder Other>
    requires(!std::same_as<Other, O>)
  PackedView(const PackedView<F, Other>&) QUERN_DELETED("quern::PackedView: the block order does not convert; call quern::prepack<To>(view, scope)");
  template <BlockFormat OtherFormat, BlockOrder Other>
    requires(!std::same_as<OtherFormat, F>)
  PackedView(const PackedView<OtherFormat, Other>&) QUERN_DELETED("quern::PackedView: the format does not convert; a weight is read in the format it was written in");
  template <detail::DenseMatrix Dense>
  operator Dense() const QUERN_DELETED("quern::PackedView: packed blocks are not floats; decode them with to_floats(), decode(view, matrix) or to_eigen(view)");
  template <class Number>
    requires(std::is_arithmetic_v<Number>)
  operator Number*() const QUERN_DELETED("quern::PackedView: packed blocks are not floats; decode them with to_floats(), decode(view, matrix) or to_eigen(view)");
  void set(std::size_t, std::size_t, float) const QUERN_DELETED("quern::PackedView::set: a view is read-only; pack the new values with quantize<Format>()");
  void transpose() const QUERN_DELETED("quern::PackedView::transpose: a packed weight has no transpose; y = x * W^T is matmul_weight_transposed(x, w), and a dense transpose starts with to_floats()");
  // clang-format on

  /// Rows of the matrix: output features.
  [[nodiscard]] constexpr std::size_t out() const noexcept { return shape_.out; }
  /// Columns of the matrix: input features, in values.
  [[nodiscard]] constexpr std::size_t in() const noexcept { return shape_.in; }
  /// Both extents, `[out, in]`.
  [[nodiscard]] constexpr OutIn shape() const noexcept { return shape_; }
  /// Blocks in a row: `in() / F::block_size`.
  [[nodiscard]] constexpr std::size_t blocks_per_row() const noexcept {
    return in() / F::block_size;
  }
  /// Blocks from (o, b) to its neighbour in the slow direction, as in the weight that owns the
  /// bytes: (o + 1, b) in RowMajor, (o, b + 1) in InputBlockMajor. Not the extent of a narrowed
  /// view.
  [[nodiscard]] constexpr std::size_t stride() const noexcept { return stride_; }
  /// Bytes of the blocks seen by this view (for a narrowed view, without what lies between).
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return out() * blocks_per_row() * F::bytes_per_block;
  }
  /// True when the blocks of the view follow each other without gaps.
  [[nodiscard]] constexpr bool contiguous() const noexcept {
    if (out() == 0 || blocks_per_row() == 0) return true;
    if constexpr (std::same_as<O, RowMajor>)
      return stride_ == blocks_per_row() || out() == 1;
    else
      return stride_ == out() || blocks_per_row() == 1;
  }
  /// Address of the first block; of no use by itself without stride().
  [[nodiscard]] constexpr const std::byte* data() const noexcept { return data_; }

  /// Address of block (o, b). Not checked: o < out(), b < blocks_per_row().
  [[nodiscard]] constexpr const std::byte* block_data(std::size_t o, std::size_t b) const noexcept {
    return data_ + O::index(o, b, stride_) * F::bytes_per_block;
  }
  /// The bytes of block (o, b). Throws Error(out_of_range).
  [[nodiscard]] constexpr Block block(std::size_t o, std::size_t b) const {
    if (o >= out() || b >= blocks_per_row())
      throw Error(ErrorCode::out_of_range,
                  "quern::PackedView::block: block (" + std::to_string(o) + ", " +
                      std::to_string(b) + ") is outside the grid of " + std::to_string(out()) +
                      " x " + std::to_string(blocks_per_row()) + " blocks");
    return Block{block_data(o, b), F::bytes_per_block};
  }

  /// Element (o, i) of the decoded matrix. Decodes a whole block: for many elements use
  /// decode_row() or to_floats(). Throws Error(out_of_range).
  [[nodiscard]] constexpr float get(std::size_t o, std::size_t i) const {
    if (o >= out() || i >= in())
      throw Error(ErrorCode::out_of_range, "quern::PackedView::get: element (" + std::to_string(o) +
                                               ", " + std::to_string(i) + ") is outside " +
                                               to_string(shape_));
    return F::decode(
        Block{block_data(o, i / F::block_size), F::bytes_per_block})[i % F::block_size];
  }

  /// Decodes row `o` into `row`, which has in() floats. Reads the bytes of that row only. Throws
  /// Error(out_of_range) and Error(size_mismatch).
  constexpr void decode_row(std::size_t o, std::span<float> row) const {
    if (o >= out())
      throw Error(ErrorCode::out_of_range, "quern::PackedView::decode_row: row " +
                                               std::to_string(o) + " is outside " +
                                               to_string(shape_));
    if (row.size() != in())
      throw Error(ErrorCode::size_mismatch, "quern::PackedView::decode_row: a row has " +
                                                std::to_string(in()) + " floats, got room for " +
                                                std::to_string(row.size()));
    for (std::size_t b = 0; b < blocks_per_row(); ++b)
      std::ranges::copy(F::decode(Block{block_data(o, b), F::bytes_per_block}),
                        row.begin() + static_cast<std::ptrdiff_t>(b * F::block_size));
  }

  /// The decoded matrix, row after row whatever the block order: out() * in() floats.
  [[nodiscard]] constexpr std::vector<float> to_floats() const {
    std::vector<float> matrix(out() * in());
    for (std::size_t o = 0; o < out(); ++o)
      decode_row(o, std::span<float>(matrix).subspan(o * in(), in()));
    return matrix;
  }

  /// Rows [from, from + count) of the same bytes. Throws Error(out_of_range).
  [[nodiscard]] constexpr PackedView narrow_out(std::size_t from, std::size_t count) const {
    check_range("quern::PackedView::narrow_out", "rows", from, count, out());
    PackedView part = *this;
    part.shape_.out = count;
    if (count != 0 && in() != 0) part.data_ = block_data(from, 0);
    return part;
  }

  /// Block columns [from, from + count) of the same bytes, counted in blocks, so an unaligned
  /// column range can't be named. Throws Error(out_of_range).
  [[nodiscard]] constexpr PackedView narrow_blocks(std::size_t from, std::size_t count) const {
    check_range("quern::PackedView::narrow_blocks", "blocks", from, count, blocks_per_row());
    PackedView part = *this;
    part.shape_.in = count * F::block_size;
    if (count != 0 && out() != 0) part.data_ = block_data(0, from);
    return part;
  }

private:
  static constexpr void check_range(const char* call, const char* what, std::size_t from,
                                    std::size_t count, std::size_t extent) {
    if (from > extent || count > extent - from)
      throw Error(ErrorCode::out_of_range, std::string(call) + ": " + what + " from " +
                                               std::to_string(from) + ", " + std::to_string(count) +
                                               " of them, do not lie within " +
                                               std::to_string(extent));
  }

  const std::byte* data_ = nullptr;
  OutIn shape_{};
  std::size_t stride_ = 0;
};

namespace detail {
template <class T>
inline constexpr bool is_packed_view = false;
template <BlockFormat F, BlockOrder O>
inline constexpr bool is_packed_view<PackedView<F, O>> = true;
} // namespace detail

/// A PackedView of any format and order.
template <class T>
concept AnyPackedView = detail::is_packed_view<std::remove_cvref_t<T>>;

// clang-format off
/// There is no transposed packed weight: a true transpose would have to requantize. The product
/// with the transpose needs none.
template <BlockFormat F, BlockOrder O>
void transpose(const PackedView<F, O>&) QUERN_DELETED("quern::transpose: a packed weight has no transpose; y = x * W^T is matmul_weight_transposed(x, w), and a dense transpose starts with to_floats()");
// clang-format on

} // namespace quern
