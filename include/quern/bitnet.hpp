// floor: 3.5
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/checked.hpp>
#include <quern/detail/config.hpp>
#include <quern/detail/ternary_quads.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/matrix_view.hpp>
#include <quern/shape.hpp>

namespace quern {

/// BitNet b1.58: ternary values as 2-bit codes, with one scale for the whole tensor.
///
///     byte 0..n-1   q    bits 2 * (i % 4) of byte i / 4: code of value i, counted row after row
///     byte n..n+3   d    binary32 scale, n = values / 4, rounded up
///
///     value = d * (code - 1), code in 0..3 (the encoder writes 0..2)
///
/// A row may begin inside a byte, and a part of the tensor has no scale of its own: there is no
/// grid of blocks, hence no PackedView, no block order and no prepack. TQ2_0 is the block format
/// for such values.
///
/// Source of the scale and of the rule: Ma et al., "The Era of 1-bit LLMs: All Large Language
/// Models are in 1.58 Bits" (2024), equations 1 to 3.
struct BitNet {
  /// Says that this is no BlockFormat: one scale serves the whole tensor.
  using NoBlockGrid = void;
  static constexpr std::string_view name = "BitNet b1.58"; ///< for messages

  /// Bytes of a tensor. Throws Error(size_overflow).
  [[nodiscard]] static std::size_t bytes_for(OutIn shape) {
    const auto count = detail::checked_mul<std::size_t>(shape.out, shape.in);
    if (!count)
      throw Error(ErrorCode::size_overflow,
                  "quern::BitNet: element count overflow for " + to_string(shape));
    return *count / 4 + (*count % 4 != 0 ? 1 : 0) + 4;
  }
};

/// A BitNet tensor whose bytes somebody else owns. They may start at any address.
class BitNetView {
public:
  /// Throws Error(size_mismatch) when `bytes` is not exactly the size of the tensor, and
  /// Error(size_overflow).
  BitNetView(std::span<const std::byte> bytes, OutIn shape)
      : data_(bytes.data()), shape_(shape), size_(BitNet::bytes_for(shape)) {
    if (bytes.size() != size_)
      throw Error(ErrorCode::size_mismatch, "quern::BitNetView: " + to_string(shape) +
                                                " needs exactly " + std::to_string(size_) +
                                                " bytes, got " + std::to_string(bytes.size()) +
                                                "; pass the codes and the scale behind them");
  }

  // clang-format off
  BitNetView(std::span<const std::byte>, NeShape) QUERN_DELETED("quern::BitNetView: NeShape is GGUF's label, fastest extent first; convert it with quern::out_in(shape)");
  // clang-format on

  /// `[out, in]`.
  [[nodiscard]] OutIn shape() const noexcept { return shape_; }
  /// Rows: output features.
  [[nodiscard]] std::size_t out() const noexcept { return shape_.out; }
  /// Columns: input features, in values.
  [[nodiscard]] std::size_t in() const noexcept { return shape_.in; }
  /// Bytes, the scale included.
  [[nodiscard]] std::size_t bytes() const noexcept { return size_; }
  /// Address of the codes; the scale stands behind them.
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

  /// The scale of all values.
  [[nodiscard]] float scale() const noexcept {
    return std::bit_cast<float>(detail::load_le<std::uint32_t>(data_ + size_ - 4));
  }

  /// The code of value (o, i) less 1: -1, 0 or 1, and 2 for code 3. Throws Error(out_of_range).
  [[nodiscard]] int digit(std::size_t o, std::size_t i) const {
    if (o >= out() || i >= in())
      throw Error(ErrorCode::out_of_range, "quern::BitNetView: (" + std::to_string(o) + ", " +
                                               std::to_string(i) + ") does not lie within " +
                                               to_string(shape_));
    return digit_at(o * in() + i);
  }

  /// Value (o, i). Throws Error(out_of_range).
  [[nodiscard]] float get(std::size_t o, std::size_t i) const {
    return scale() * static_cast<float>(digit(o, i));
  }

  /// Decodes one row into `in` floats. Throws Error(out_of_range / size_mismatch).
  void decode_row(std::size_t o, std::span<float> values) const {
    if (o >= out())
      throw Error(ErrorCode::out_of_range, "quern::BitNetView::decode_row: row " +
                                               std::to_string(o) + " does not lie within " +
                                               to_string(shape_));
    if (values.size() != in())
      throw Error(ErrorCode::size_mismatch, "quern::BitNetView::decode_row: a row has " +
                                                std::to_string(in()) + " values, not " +
                                                std::to_string(values.size()));
    for (std::size_t i = 0; i < in(); ++i)
      values[i] = scale() * static_cast<float>(digit_at(o * in() + i));
  }

  /// The whole matrix, row after row.
  [[nodiscard]] std::vector<float> to_floats() const {
    std::vector<float> values(out() * in());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = scale() * static_cast<float>(digit_at(i));
    return values;
  }

  /// Throws Error(bad_block) when the scale is negative or not finite, or for the first value with
  /// code 3, which no encoder writes.
  void require_valid() const {
    if (!(scale() >= 0.0f) || !detail::is_finite(scale()))
      throw Error(ErrorCode::bad_block, "quern::BitNetView: the scale is " +
                                            std::to_string(scale()) +
                                            ", neither zero nor positive; the tensor is damaged");
    for (std::size_t i = 0; i < out() * in(); ++i)
      if (digit_at(i) == 2)
        throw Error(ErrorCode::bad_block, "quern::BitNetView: value (" + std::to_string(i / in()) +
                                              ", " + std::to_string(i % in()) +
                                              ") has code 3, which no encoder writes; the tensor "
                                              "is damaged or of another encoding");
  }

  /// The digit of value `i`, counted row after row. Not checked.
  [[nodiscard]] int digit_at(std::size_t i) const noexcept {
    return ((detail::load_u8(data_ + i / 4) >> (2 * (i % 4))) & 3) - 1;
  }

private:
  const std::byte* data_;
  OutIn shape_;
  std::size_t size_;
};

/// Owns the bytes of a BitNet tensor. Move-only.
class BitNetWeight {
public:
  /// Takes bytes that are exactly the size of the tensor. Throws as BitNetView does.
  BitNetWeight(std::vector<std::byte> bytes, OutIn shape)
      : bytes_(std::move(bytes)), shape_(shape) {
    (void)BitNetView(bytes_, shape_);
  }
  /// Takes the bytes over, so views stay valid; the weight moved from is only to be assigned to or
  /// destroyed.
  BitNetWeight(BitNetWeight&&) = default;
  /// The same; what this weight had is freed.
  BitNetWeight& operator=(BitNetWeight&&) = default;

  /// `[out, in]`.
  [[nodiscard]] OutIn shape() const noexcept { return shape_; }
  /// The codes and the scale behind them, valid as long as this object.
  [[nodiscard]] std::span<const std::byte> bytes() const& noexcept { return bytes_; }
  /// The tensor as a view, valid as long as this object.
  [[nodiscard]] BitNetView view() const& { return {bytes_, shape_}; }
  // clang-format off
  [[nodiscard]] BitNetView view() const&& QUERN_DELETED("quern::BitNetWeight::view: a view of a temporary would dangle; keep the weight in a variable that outlives the view");
  // clang-format on

private:
  std::vector<std::byte> bytes_;
  OutIn shape_;
};

/// Encodes a matrix: the scale is the mean magnitude, each value goes to the nearest of -d, 0 and
/// d, halves away from zero. Throws Error(not_a_number / infinite) with row and column, and
/// Error(size_overflow).
[[nodiscard]] inline BitNetWeight quantize_bitnet(MatrixView<const float> values) {
  const OutIn shape{Out{values.rows()}, In{values.cols()}};
  std::vector<std::byte> bytes(BitNet::bytes_for(shape));
  double sum = 0.0;
  for (std::size_t o = 0; o < values.rows(); ++o)
    for (std::size_t i = 0; i < values.cols(); ++i) {
      const float value = values.row(o)[i];
      if (!detail::is_finite(value))
        throw Error(
            detail::is_nan(value) ? ErrorCode::not_a_number : ErrorCode::infinite,
            "quern::quantize_bitnet: " + std::string(detail::is_nan(value) ? "NaN" : "infinity") +
                " at row " + std::to_string(o) + ", column " + std::to_string(i) +
                "; remove or clamp it first");
      sum += static_cast<double>(detail::magnitude(value));
    }
  const std::size_t count = values.rows() * values.cols();
  const auto scale = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  std::size_t at = 0;
  for (std::size_t o = 0; o < values.rows(); ++o)
    for (std::size_t i = 0; i < values.cols(); ++i, ++at) {
      // Nearest to zero while below half of the scale; doubling is exact, or infinite and above.
      const float value = values.row(o)[i];
      const bool kept = scale > 0.0f && 2.0f * detail::magnitude(value) >= scale;
      const unsigned code = !kept ? 1u : value < 0.0f ? 0u : 2u;
      bytes[at / 4] |= static_cast<std::byte>(code << (2 * (at % 4)));
    }
  detail::store_le(bytes.data() + bytes.size() - 4, std::bit_cast<std::uint32_t>(scale));
  return {std::move(bytes), shape};
}

/// The same for a gap-free matrix. Throws also Error(size_mismatch).
[[nodiscard]] inline BitNetWeight quantize_bitnet(std::span<const float> values, OutIn shape) {
  return quantize_bitnet(MatrixView<const float>{values, shape.out, shape.in});
}

/// y = x * W^T for one row of activations: x has `in` values, y gets `out`. Values are added and
/// subtracted, and the sum is multiplied by the scale once. The same bits whatever the executor.
/// Throws Error(size_mismatch), and then nothing was written. x and y must not overlap.
inline void bitnet_gemv(std::span<const float> x, BitNetView w, std::span<float> y,
                        const ExecutorRef& executor = {}) {
  if (x.size() != w.in() || y.size() != w.out())
    throw Error(ErrorCode::size_mismatch, "quern::bitnet_gemv: x has " + std::to_string(x.size()) +
                                              " values and y " + std::to_string(y.size()) +
                                              ", the weight is " + to_string(w.shape()) +
                                              "; x has `in` values and y `out`");
  constexpr std::size_t rows_per_piece = 16;
  executor.parallel_for((w.out() + rows_per_piece - 1) / rows_per_piece, [&](std::size_t piece) {
    const std::size_t end = std::min(w.out(), (piece + 1) * rows_per_piece);
    for (std::size_t o = piece * rows_per_piece; o < end; ++o)
      y[o] = w.scale() * detail::ternary_dot(w.data(), o * w.in(), x);
  });
}

} // namespace quern
