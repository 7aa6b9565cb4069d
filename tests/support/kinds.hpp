#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/decode.hpp>
#include <quern/formats.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/trace.hpp>

#include "tested_formats.hpp"
#include "weights.hpp"

/// @file
/// Every format with either order, and views of them, without their types: a test that says the
/// same for all of them is compiled once and run for each.

namespace support {

/// What a PackedView of any format and order does.
class AnyKindOfView {
public:
  using Pointer = std::unique_ptr<AnyKindOfView>;
  virtual ~AnyKindOfView() = default;

  std::size_t out = 0;
  std::size_t in = 0;
  std::size_t blocks_per_row = 0;
  std::size_t stride = 0;
  std::size_t bytes = 0;
  bool contiguous = false;
  const std::byte* data = nullptr;

  [[nodiscard]] quern::OutIn shape() const { return quern::OutIn{quern::Out{out}, quern::In{in}}; }

  [[nodiscard]] virtual std::span<const std::byte> block(std::size_t o, std::size_t b) const = 0;
  [[nodiscard]] virtual const std::byte* block_data(std::size_t o, std::size_t b) const = 0;
  [[nodiscard]] virtual float get(std::size_t o, std::size_t i) const = 0;
  virtual void decode_row(std::size_t o, std::span<float> row) const = 0;
  virtual void decode(quern::MatrixView<float> matrix) const = 0;
  [[nodiscard]] virtual std::vector<float> to_floats() const = 0;
  [[nodiscard]] virtual Pointer narrow_out(std::size_t from, std::size_t count) const = 0;
  [[nodiscard]] virtual Pointer narrow_blocks(std::size_t from, std::size_t count) const = 0;
  /// In order RowMajor or, when that is false, InputBlockMajor.
  [[nodiscard]] virtual Pointer prepack(bool by_rows, quern::Scope& scope,
                                        quern::Trace& trace) const = 0;
};

/// A format with an order.
class Kind {
public:
  virtual ~Kind() = default;

  std::string name;
  std::string format;
  std::size_t block_size = 0;
  std::size_t bytes_per_block = 0;
  bool by_rows = false; ///< RowMajor
  const Kind* other_order = nullptr;

  /// Place of block (o, b).
  [[nodiscard]] std::size_t place(std::size_t o, std::size_t b, std::size_t out,
                                  std::size_t blocks) const {
    return by_rows ? o * blocks + b : b * out + o;
  }
  /// Blocks given row after row, in this order.
  [[nodiscard]] std::vector<std::byte> laid_out(std::span<const std::byte> row_major,
                                                std::size_t out, std::size_t blocks) const {
    std::vector<std::byte> result(row_major.size());
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t b = 0; b < blocks; ++b)
        std::memcpy(result.data() + place(o, b, out, blocks) * bytes_per_block,
                    row_major.data() + (o * blocks + b) * bytes_per_block, bytes_per_block);
    return result;
  }
  /// `out` rows of `blocks` blocks.
  [[nodiscard]] quern::OutIn shape(std::size_t out, std::size_t blocks) const {
    return quern::OutIn{quern::Out{out}, quern::In{blocks * block_size}};
  }

  // As the templates of these names in weights.hpp.
  [[nodiscard]] virtual std::vector<std::byte> finite_blocks(std::size_t count,
                                                             std::uint32_t seed) const = 0;
  [[nodiscard]] virtual std::vector<std::byte> encoded_blocks(std::size_t count,
                                                              std::uint32_t seed) const = 0;
  [[nodiscard]] virtual std::vector<float> decoded(std::span<const std::byte> row_major) const = 0;

  [[nodiscard]] virtual AnyKindOfView::Pointer view(std::span<const std::byte> bytes,
                                                    quern::OutIn shape) const = 0;
};

namespace detail {

template <class F, class O>
class ViewOf final : public AnyKindOfView {
public:
  explicit ViewOf(quern::PackedView<F, O> view) : view_(view) {
    out = view.out();
    in = view.in();
    blocks_per_row = view.blocks_per_row();
    stride = view.stride();
    bytes = view.bytes();
    contiguous = view.contiguous();
    data = view.data();
  }
  std::span<const std::byte> block(std::size_t o, std::size_t b) const override {
    return view_.block(o, b);
  }
  const std::byte* block_data(std::size_t o, std::size_t b) const override {
    return view_.block_data(o, b);
  }
  float get(std::size_t o, std::size_t i) const override { return view_.get(o, i); }
  void decode_row(std::size_t o, std::span<float> row) const override { view_.decode_row(o, row); }
  void decode(quern::MatrixView<float> matrix) const override { quern::decode(view_, matrix); }
  std::vector<float> to_floats() const override { return view_.to_floats(); }
  Pointer narrow_out(std::size_t from, std::size_t count) const override {
    return std::make_unique<ViewOf>(view_.narrow_out(from, count));
  }
  Pointer narrow_blocks(std::size_t from, std::size_t count) const override {
    return std::make_unique<ViewOf>(view_.narrow_blocks(from, count));
  }
  Pointer prepack(bool by_rows, quern::Scope& scope, quern::Trace& trace) const override {
    if (by_rows)
      return std::make_unique<ViewOf<F, quern::RowMajor>>(
          quern::prepack<quern::RowMajor>(view_, scope, trace));
    return std::make_unique<ViewOf<F, quern::InputBlockMajor>>(
        quern::prepack<quern::InputBlockMajor>(view_, scope, trace));
  }

private:
  quern::PackedView<F, O> view_;
};

template <class F, class O>
class KindOf final : public Kind {
public:
  KindOf() {
    name = std::string(F::name) + "_" + std::string(O::name);
    format = F::name;
    block_size = F::block_size;
    bytes_per_block = F::bytes_per_block;
    by_rows = std::is_same_v<O, quern::RowMajor>;
  }
  std::vector<std::byte> finite_blocks(std::size_t count, std::uint32_t seed) const override {
    return support::finite_blocks<F>(count, seed);
  }
  std::vector<std::byte> encoded_blocks(std::size_t count, std::uint32_t seed) const override {
    return support::encoded_blocks<F>(count, seed);
  }
  std::vector<float> decoded(std::span<const std::byte> row_major) const override {
    return support::decoded<F>(row_major);
  }
  AnyKindOfView::Pointer view(std::span<const std::byte> bytes, quern::OutIn shape) const override {
    return std::make_unique<ViewOf<F, O>>(quern::PackedView<F, O>{bytes, shape});
  }
};

} // namespace detail

/// All of them, the two orders of a format next to each other.
[[nodiscard]] inline const std::vector<const Kind*>& kinds() {
  static const std::vector<const Kind*> all = [] {
    std::vector<const Kind*> list;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, support::TestedFormats>>(
        [&](auto tag) {
          using F = typename decltype(tag)::type;
          static detail::KindOf<F, quern::RowMajor> rows;
          static detail::KindOf<F, quern::InputBlockMajor> columns;
          rows.other_order = &columns;
          columns.other_order = &rows;
          list.push_back(&rows);
          list.push_back(&columns);
        });
    return list;
  }();
  return all;
}

/// The name of a test of one kind.
[[nodiscard]] inline std::string kind_name(const testing::TestParamInfo<const Kind*>& info) {
  return info.param->name;
}

} // namespace support
