#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/any_view.hpp>
#include <quern/formats.hpp>
#include <quern/formats/q8_0.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>

#include "support/errors.hpp"
#include "support/guarded.hpp"
#include "support/kinds.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using quern::ErrorCode;
using quern::In;
using quern::InputBlockMajor;
using quern::Out;
using quern::OutIn;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using support::bits_of;
using support::contains;
using support::error_of;

struct Range {
  std::size_t from, count;
};
struct Place {
  std::size_t o, i;
};

constexpr auto top = std::numeric_limits<std::size_t>::max();

/// A weight of 5 x 3 blocks, not square, in each format and order, and what it means.
class View : public testing::TestWithParam<const support::Kind*> {
protected:
  static constexpr std::size_t out = 5;
  static constexpr std::size_t blocks = 3;

  const support::Kind& kind = *GetParam();
  const std::size_t in = blocks * kind.block_size;
  const OutIn shape = kind.shape(out, blocks);
  const std::vector<std::byte> row_major = kind.finite_blocks(out * blocks, 7);
  const std::vector<std::byte> bytes = kind.laid_out(row_major, out, blocks);
  const std::vector<float> matrix = kind.decoded(row_major);
  const support::AnyKindOfView::Pointer view = kind.view(bytes, shape);

  /// Rows [o, o + rows) of block columns [b, b + columns) of the matrix.
  [[nodiscard]] std::vector<float> part(std::size_t o, std::size_t rows, std::size_t b,
                                        std::size_t columns) const {
    std::vector<float> values;
    for (std::size_t r = o; r < o + rows; ++r) {
      const auto* from = matrix.data() + r * in + b * kind.block_size;
      values.insert(values.end(), from, from + columns * kind.block_size);
    }
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(All, View, testing::ValuesIn(support::kinds()), support::kind_name);

TEST_P(View, KnowsItsGeometry) {
  EXPECT_EQ(view->shape(), shape);
  EXPECT_EQ(view->blocks_per_row, 3u);
  EXPECT_EQ(view->bytes, bytes.size());
  EXPECT_EQ(view->data, bytes.data());
  EXPECT_EQ(view->stride, kind.by_rows ? 3u : 5u);
  EXPECT_TRUE(view->contiguous);
}

TEST_P(View, TakesExactlyItsBytes) {
  const std::size_t size = bytes.size();
  const std::vector<std::byte> memory(size * 2);
  const auto of = [&](std::size_t count) {
    (void)kind.view(std::span<const std::byte>{memory}.first(count), shape);
  };
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{1}, size - 1, size + 1, 2 * size}) {
    const std::string text = error_of(ErrorCode::size_mismatch, [&] { of(wrong); });
    EXPECT_TRUE(contains(text, "quern::PackedView: " + to_string(shape) + " in " + kind.format));
    EXPECT_TRUE(contains(text, "needs exactly " + std::to_string(size) + " bytes"));
    EXPECT_TRUE(contains(text, "got " + std::to_string(wrong)));
  }
  EXPECT_NO_THROW(of(size));
}

TEST_P(View, ReadsTheSameMatrixInEveryWay) {
  const auto expected = bits_of(matrix);
  EXPECT_EQ(bits_of(view->to_floats()), expected);

  std::vector<float> read(matrix.size());
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t i = 0; i < in; ++i)
      read[o * in + i] = view->get(o, i);
  EXPECT_EQ(bits_of(read), expected);

  std::fill(read.begin(), read.end(), -7.0f);
  for (std::size_t o = out; o-- > 0;)
    view->decode_row(o, std::span<float>{read}.subspan(o * in, in));
  EXPECT_EQ(bits_of(read), expected);

  std::fill(read.begin(), read.end(), -7.0f);
  view->decode(quern::MatrixView<float>{read, out, in});
  EXPECT_EQ(bits_of(read), expected);
}

TEST_P(View, DecodesIntoRowsThatLieApart) {
  const std::size_t stride = in + 3;
  std::vector<float> memory((out - 1) * stride + in, -7.0f);
  view->decode(quern::MatrixView<float>{memory, out, in, stride});
  for (std::size_t at = 0; at < memory.size(); ++at) {
    const float expected = at % stride < in ? matrix[at / stride * in + at % stride] : -7.0f;
    ASSERT_EQ(std::memcmp(&memory[at], &expected, sizeof(float)), 0) << at;
  }
  (void)error_of(ErrorCode::size_mismatch, [&] {
    view->decode(quern::MatrixView<float>{memory, out - 1, in, stride});
  });
}

TEST_P(View, GivesTheBlocksOfTheGrid) {
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto block = view->block(o, b);
      ASSERT_EQ(block.size(), kind.bytes_per_block);
      EXPECT_EQ(std::memcmp(block.data(), row_major.data() + (o * blocks + b) * block.size(),
                            block.size()),
                0);
      EXPECT_EQ(block.data(), view->block_data(o, b));
    }
}

// The bug that the types exist for: the same bytes read in the other order give other numbers, all
// finite, and often the same sum.
TEST_P(View, ReadInTheOtherOrderMeansSomethingElse) {
  const auto wrong = kind.other_order->view(bytes, shape)->to_floats();
  EXPECT_NE(bits_of(wrong), bits_of(matrix));
  EXPECT_TRUE(std::all_of(wrong.begin(), wrong.end(), [](float v) { return std::isfinite(v); }));
  // The corners stay where they are, so a look at the first and the last values shows nothing.
  const std::size_t block = kind.block_size;
  EXPECT_EQ(bits_of(std::span{wrong}.first(block)), bits_of(std::span{matrix}.first(block)));
  EXPECT_EQ(bits_of(std::span{wrong}.last(block)), bits_of(std::span{matrix}.last(block)));
}

TEST_P(View, OfASingleRowOrColumnIsTheSameInBothOrders) {
  for (const OutIn one : {kind.shape(1, 15), kind.shape(15, 1)}) {
    EXPECT_EQ(bits_of(kind.view(row_major, one)->to_floats()), bits_of(matrix));
    EXPECT_EQ(bits_of(kind.other_order->view(row_major, one)->to_floats()), bits_of(matrix));
  }
}

TEST_P(View, NarrowedToRowsKeepsTheStrideOfItsOwner) {
  for (std::size_t from = 0; from <= out; ++from)
    for (std::size_t count = 0; count <= out - from; ++count) {
      const auto rows = view->narrow_out(from, count);
      ASSERT_EQ(rows->shape(), kind.shape(count, blocks));
      ASSERT_EQ(rows->stride, view->stride);
      ASSERT_EQ(rows->bytes, count * blocks * kind.bytes_per_block);
      ASSERT_EQ(bits_of(rows->to_floats()), bits_of(part(from, count, 0, blocks)))
          << from << ", " << count;
      ASSERT_EQ(rows->contiguous, kind.by_rows || count == 0 || count == out);
      if (count == 0) continue;
      ASSERT_EQ(rows->data, view->block_data(from, 0)); // no copy
    }
}

TEST_P(View, NarrowedToBlocksKeepsTheStrideOfItsOwner) {
  for (std::size_t from = 0; from <= blocks; ++from)
    for (std::size_t count = 0; count <= blocks - from; ++count) {
      const auto columns = view->narrow_blocks(from, count);
      ASSERT_EQ(columns->shape(), kind.shape(out, count));
      ASSERT_EQ(columns->stride, view->stride);
      ASSERT_EQ(bits_of(columns->to_floats()), bits_of(part(0, out, from, count)))
          << from << ", " << count;
      ASSERT_EQ(columns->contiguous, !kind.by_rows || count == 0 || count == blocks);
      if (count == 0) continue;
      ASSERT_EQ(columns->data, view->block_data(0, from));
    }
}

TEST_P(View, NarrowedAgainAndAgainStaysOnTheGrid) {
  for (std::size_t row = 0; row < out; ++row)
    for (std::size_t rows = 1; rows <= out - row; ++rows)
      for (std::size_t block = 0; block < blocks; ++block)
        for (std::size_t count = 1; count <= blocks - block; ++count) {
          const auto expected = bits_of(part(row, rows, block, count));
          const auto rows_first = view->narrow_out(row, rows)->narrow_blocks(block, count);
          const auto blocks_first = view->narrow_blocks(block, count)->narrow_out(row, rows);
          ASSERT_EQ(bits_of(rows_first->to_floats()), expected);
          ASSERT_EQ(bits_of(blocks_first->to_floats()), expected);
          ASSERT_EQ(rows_first->data, blocks_first->data);
          ASSERT_EQ(rows_first->stride, view->stride);
          // A second cut is relative to the first.
          const auto last = rows_first->narrow_out(rows - 1, 1)->narrow_blocks(count - 1, 1);
          ASSERT_EQ(bits_of(last->to_floats()),
                    bits_of(part(row + rows - 1, 1, block + count - 1, 1)));
          ASSERT_TRUE(last->contiguous);
        }
}

// What a reader does that takes the extents of a narrowed view for its strides.
TEST_P(View, NarrowedAndReadWithoutItsStrideMeansSomethingElse) {
  const auto cut = kind.by_rows ? view->narrow_blocks(1, 2) : view->narrow_out(2, 2);
  ASSERT_FALSE(cut->contiguous);
  const auto misread = kind.view({cut->data, cut->bytes}, cut->shape());
  EXPECT_NE(bits_of(misread->to_floats()), bits_of(cut->to_floats()));
}

TEST_P(View, RefusesRangesOutsideItsExtents) {
  const Range rows[] = {{0, 6},   {5, 1},       {6, 0},     {3, 3},
                        {top, 0}, {top, 1},     {top, 2},   {top - 1, 4},
                        {1, top}, {2, top - 1}, {top, top}, {top / 2 + 1, top / 2 + 1}};
  for (const Range r : rows) {
    const std::string text =
        error_of(ErrorCode::out_of_range, [&] { (void)view->narrow_out(r.from, r.count); });
    EXPECT_TRUE(
        contains(text, "quern::PackedView::narrow_out: rows from " + std::to_string(r.from)));
    EXPECT_TRUE(contains(text, "within 5"));
  }
  const Range columns[] = {{0, 4},     {3, 1},       {4, 0},
                           {top, 0},   {top, 2},     {1, top},
                           {top, top}, {top - 1, 3}, {top / 2 + 1, top / 2 + 1}};
  for (const Range r : columns) {
    const std::string text =
        error_of(ErrorCode::out_of_range, [&] { (void)view->narrow_blocks(r.from, r.count); });
    EXPECT_TRUE(contains(text, "quern::PackedView::narrow_blocks: blocks from "));
    EXPECT_TRUE(contains(text, "within 3"));
  }
  // A narrowed view has the extents of its own.
  const auto rows_1_2 = view->narrow_out(1, 2);
  const auto column_1 = view->narrow_blocks(1, 1);
  const auto code = ErrorCode::out_of_range;
  (void)error_of(code, [&] { (void)rows_1_2->get(2, 0); });
  (void)error_of(code, [&] { (void)rows_1_2->narrow_out(0, 3); });
  (void)error_of(code, [&] { (void)column_1->narrow_blocks(1, 1); });
  (void)error_of(code, [&] { (void)column_1->block(0, 1); });
  (void)error_of(code, [&] { (void)column_1->get(0, kind.block_size); });
}

TEST_P(View, RefusesIndicesOutsideItsExtents) {
  for (const Place at : {Place{5, 0}, {0, in}, {top, 0}, {0, top}, {top, top}}) {
    const std::string text =
        error_of(ErrorCode::out_of_range, [&] { (void)view->get(at.o, at.i); });
    EXPECT_TRUE(contains(text, "quern::PackedView::get: element (" + std::to_string(at.o)));
    EXPECT_TRUE(contains(text, to_string(shape)));
  }
  for (const Place at : {Place{5, 0}, {0, 3}, {top, 0}, {0, top}}) {
    const std::string text =
        error_of(ErrorCode::out_of_range, [&] { (void)view->block(at.o, at.i); });
    EXPECT_TRUE(contains(text, "outside the grid of 5 x 3 blocks"));
  }
  std::vector<float> row(in + 1, -7.0f);
  for (const std::size_t o : {std::size_t{5}, top}) {
    const std::string text = error_of(
        ErrorCode::out_of_range, [&] { view->decode_row(o, std::span<float>{row}.first(in)); });
    EXPECT_TRUE(contains(text, "decode_row: row " + std::to_string(o)));
  }
  for (const std::size_t room : {std::size_t{0}, in - 1, in + 1}) {
    const std::string text = error_of(
        ErrorCode::size_mismatch, [&] { view->decode_row(0, std::span<float>{row}.first(room)); });
    EXPECT_TRUE(contains(text, "got room for " + std::to_string(room)));
  }
  // Nothing was written before the refusal.
  EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float v) { return v == -7.0f; }));
}

TEST_P(View, ReadsFromAnyAddress) {
  std::vector<std::byte> memory(bytes.size() + 16);
  for (std::size_t shift = 0; shift < 16; ++shift) {
    std::memcpy(memory.data() + shift, bytes.data(), bytes.size());
    const auto moved = kind.view({memory.data() + shift, bytes.size()}, shape);
    ASSERT_EQ(bits_of(moved->to_floats()), bits_of(matrix)) << "address + " << shift;
    const float corner = moved->get(out - 1, 0);
    ASSERT_EQ(std::memcmp(&corner, &matrix[(out - 1) * in], sizeof(float)), 0);
  }
}

TEST_P(View, WithoutValuesIsStillAView) {
  const std::span<const std::byte> none;
  for (const OutIn nothing : {kind.shape(0, 3), kind.shape(3, 0), kind.shape(0, 0)}) {
    const auto empty = kind.view(none, nothing);
    EXPECT_EQ(empty->shape(), nothing);
    EXPECT_EQ(empty->bytes, 0u);
    EXPECT_TRUE(empty->contiguous);
    EXPECT_TRUE(empty->to_floats().empty());
    EXPECT_EQ(empty->narrow_out(0, empty->out)->shape(), nothing);
    EXPECT_EQ(empty->narrow_out(empty->out, 0)->out, 0u);
    EXPECT_EQ(empty->narrow_blocks(empty->blocks_per_row, 0)->in, 0u);
    EXPECT_EQ(empty->narrow_blocks(0, empty->blocks_per_row)->shape(), nothing);
    (void)error_of(ErrorCode::out_of_range, [&] { (void)empty->get(0, 0); });
    (void)error_of(ErrorCode::out_of_range, [&] { (void)empty->block(0, 0); });
    for (std::size_t o = 0; o < empty->out; ++o)
      EXPECT_NO_THROW(empty->decode_row(o, std::span<float>{}));
    const std::byte one[1] = {};
    (void)error_of(ErrorCode::size_mismatch, [&] { (void)kind.view(one, nothing); });
  }
  // The same by narrowing.
  const auto no_rows = view->narrow_out(5, 0);
  EXPECT_TRUE(no_rows->to_floats().empty());
  EXPECT_TRUE(no_rows->narrow_blocks(1, 2)->to_floats().empty());
  const auto no_blocks = view->narrow_blocks(3, 0);
  EXPECT_TRUE(no_blocks->to_floats().empty());
  EXPECT_EQ(no_blocks->narrow_out(4, 1)->out, 1u);
}

#if defined(SUPPORT_HAS_PAGES)

TEST_P(View, ReadsNoByteBesideItsOwn) {
  for (const auto against : {support::Against::front, support::Against::back}) {
    support::Guarded<std::byte> memory{std::span<const std::byte>{bytes}, against};
    memory.read_only();
    const auto guarded = kind.view(std::as_const(memory).span(), shape);
    ASSERT_EQ(bits_of(guarded->to_floats()), bits_of(matrix));
    support::Guarded<float> row{in, against};
    for (std::size_t o = 0; o < out; ++o)
      guarded->decode_row(o, row.span());
    ASSERT_EQ(bits_of(row.span()), bits_of(part(out - 1, 1, 0, blocks)));
  }
  // Each block by itself.
  support::Guarded<std::byte> block{kind.bytes_per_block};
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t b = 0; b < blocks; ++b) {
      std::memcpy(block.span().data(), view->block_data(o, b), kind.bytes_per_block);
      const auto one = kind.view(std::as_const(block).span(), kind.shape(1, 1));
      ASSERT_EQ(bits_of(one->to_floats()), bits_of(part(o, 1, b, 1)));
    }
}

// A row look-up in a large table must not read the table: all pages without a block of the row are
// unreadable here.
TEST_P(View, DecodingOneRowReadsThatRowOnly) {
  const std::size_t page = support::page_size();
  // The fewest blocks that fill whole pages.
  const std::size_t filling = page / std::gcd(page, kind.bytes_per_block);
  const std::size_t many = kind.by_rows ? 3 : 2 * filling;
  const std::size_t wide = kind.by_rows ? filling : 3;
  const auto at = [&](std::size_t o, std::size_t b) {
    return kind.place(o, b, many, wide) * kind.bytes_per_block;
  };

  const std::vector<std::byte> some = kind.finite_blocks(11, 3);
  const std::vector<float> means = kind.decoded(some);
  support::Guarded<std::byte> memory{many * wide * kind.bytes_per_block};
  for (std::size_t i = 0; i < memory.span().size(); ++i)
    memory.span()[i] = some[i % some.size()];
  const auto table = kind.view(std::as_const(memory).span(), kind.shape(many, wide));

  const std::size_t row = many / 2;
  memory.hide_all_pages();
  for (std::size_t b = 0; b < wide; ++b)
    memory.show(at(row, b), kind.bytes_per_block);
  std::vector<float> values(table->in);
  table->decode_row(row, values);
  table->narrow_out(row, 1)->decode_row(0, values);
  for (std::size_t b = 0; b < wide; ++b) {
    const std::size_t number = kind.place(row, b, many, wide) % 11;
    ASSERT_EQ(std::memcmp(values.data() + b * kind.block_size,
                          means.data() + number * kind.block_size, kind.block_size * sizeof(float)),
              0);
  }

  // One element needs the pages of one block.
  memory.hide_all_pages();
  memory.show(at(row, wide - 1), kind.bytes_per_block);
  const float last = table->get(row, table->in - 1);
  EXPECT_EQ(std::memcmp(&last, &values.back(), sizeof(float)), 0);
}

#endif

// What needs the types.

template <class P>
class TypedView : public testing::Test {};
TYPED_TEST_SUITE(TypedView, support::EachFormatAndOrder, support::Names);

TYPED_TEST(TypedView, IsASmallValueThatWorksAtCompileTime) {
  using F = typename TypeParam::Format;
  using ThisView = PackedView<F, typename TypeParam::Order>;
  static_assert(std::is_trivially_copyable_v<ThisView> &&
                sizeof(ThisView) == 4 * sizeof(std::size_t));
  static_assert(std::is_nothrow_copy_constructible_v<ThisView> &&
                std::is_copy_assignable_v<ThisView>);

  static constexpr std::array<std::byte, 6 * F::bytes_per_block> zeros{};
  static constexpr ThisView view{zeros, OutIn{Out{3}, In{2 * F::block_size}}};
  static constexpr auto cut = view.narrow_out(1, 2).narrow_blocks(1, 1);
  static_assert(cut.out() == 2 && cut.blocks_per_row() == 1 && cut.stride() == view.stride());
  static_assert(cut.get(0, 0) == view.get(1, F::block_size));
  EXPECT_EQ(view.get(2, F::block_size), cut.get(1, 0));
}

TYPED_TEST(TypedView, FitsInAVariantOfAllViews) {
  using F = typename TypeParam::Format;
  using O = typename TypeParam::Order;
  const auto bytes = support::finite_blocks<F>(6);
  const PackedView<F, O> view{bytes, OutIn{Out{3}, In{2 * F::block_size}}};
  const quern::AnyView any = view;
  EXPECT_EQ(quern::format_name(any), F::name);
  EXPECT_EQ(quern::order_name(any), O::name);
  EXPECT_EQ(quern::shape(any), view.shape());
  const auto* back = std::get_if<PackedView<F, O>>(&any);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->data(), view.data());
  EXPECT_EQ(back->stride(), view.stride());
}

// Numbers to check by hand. In counting_weight(2, 3) block (o, b) holds the value 1 + 3 o + b.

float sum_of_row(const auto& view, std::size_t o) {
  float sum = 0.0f;
  for (std::size_t i = 0; i < view.in(); ++i)
    sum += view.get(o, i);
  return sum;
}

TEST(CountingWeight, NeedsExactlyItsSixBlocks) {
  std::vector<std::byte> bytes = support::counting_weight(2, 3);
  ASSERT_EQ(bytes.size(), 108u);
  bytes.push_back({});
  const std::span<const std::byte> all{bytes};
  const OutIn shape{2, 96};
  const auto of = [&](std::size_t size) {
    (void)PackedView<Q4_0, RowMajor>{all.first(size), shape};
  };
  const std::string is_short = error_of(ErrorCode::size_mismatch, [&] { of(107); });
  EXPECT_TRUE(contains(is_short, "needs exactly 108 bytes, got 107"));
  const std::string is_long = error_of(ErrorCode::size_mismatch, [&] { of(109); });
  EXPECT_TRUE(contains(is_long, "needs exactly 108 bytes, got 109"));
  EXPECT_NO_THROW(of(108));
}

TEST(CountingWeight, BlockBytesComeFromTheFormatNotFromTheBuffer) {
  // 12 blocks in a buffer of 512 bytes: 42 bytes a block if one divides, 34 in truth.
  const std::vector<std::byte> bytes(512);
  const std::string text = error_of(ErrorCode::size_mismatch, [&] {
    (void)PackedView<quern::Q8_0, RowMajor>{bytes, OutIn{4, 96}};
  });
  EXPECT_TRUE(contains(text, "needs exactly 408 bytes, got 512"));
}

TEST(CountingWeight, SumsItsRows) {
  const auto bytes = support::counting_weight(2, 3);
  const PackedView<Q4_0, RowMajor> view{bytes, OutIn{2, 96}};
  EXPECT_EQ(sum_of_row(view, 0), 192.0f);
  EXPECT_EQ(sum_of_row(view, 1), 480.0f);
  // Misread, the sum of all is the same 672 and each row is wrong.
  const PackedView<Q4_0, InputBlockMajor> misread{bytes, OutIn{2, 96}};
  EXPECT_EQ(sum_of_row(misread, 0), 288.0f);
  EXPECT_EQ(sum_of_row(misread, 1), 384.0f);
}

TEST(CountingWeight, LooksUpRowsInEitherOrder) {
  const auto row_major = support::counting_weight(8, 3);
  const auto other = support::laid_out<Q4_0, InputBlockMajor>(row_major, 8, 3);
  const PackedView<Q4_0, RowMajor> a{row_major, OutIn{8, 96}};
  const PackedView<Q4_0, InputBlockMajor> b{other, OutIn{8, 96}};
  for (const auto& [row, sum] : {std::pair{std::size_t{7}, 2208.0f}, {0, 192.0f}, {7, 2208.0f}}) {
    EXPECT_EQ(sum_of_row(a, row), sum);
    EXPECT_EQ(sum_of_row(b, row), sum);
  }
}

TEST(CountingWeight, CutsRowsOutOfTheKernelOrder) {
  const auto other = support::laid_out<Q4_0, InputBlockMajor>(support::counting_weight(8, 3), 8, 3);
  const PackedView<Q4_0, InputBlockMajor> all{other, OutIn{8, 96}};
  const auto rows = all.narrow_out(4, 4);
  const float right[] = {1344.0f, 1632.0f, 1920.0f, 2208.0f};
  for (std::size_t o = 0; o < 4; ++o)
    EXPECT_EQ(sum_of_row(rows, o), right[o]);
  // A run of bytes from the middle on, as if rows lay together.
  const PackedView<Q4_0, InputBlockMajor> misread{std::span{other}.subspan(4 * 3 * 18, 4 * 3 * 18),
                                                  OutIn{4, 96}};
  const float wrong[] = {1024.0f, 1312.0f, 1600.0f, 1888.0f};
  for (std::size_t o = 0; o < 4; ++o)
    EXPECT_EQ(sum_of_row(misread, o), wrong[o]);
}

TEST(CountingWeight, NarrowedRowsReadBlocksOneRowApartNotOneCutApart) {
  // 4 x 3, rows 1 and 2: in kernel order their blocks are numbers 1, 5, 9 and 2, 6, 10. A reader
  // that takes the two rows for the stride reads 1, 3, 5 and 2, 4, 6.
  const auto other = support::laid_out<Q4_0, InputBlockMajor>(support::counting_weight(4, 3), 4, 3);
  const PackedView<Q4_0, InputBlockMajor> all{other, OutIn{4, 96}};
  const auto rows = all.narrow_out(1, 2);
  for (std::size_t o = 0; o < 2; ++o)
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(rows.block_data(o, b), other.data() + (1 + o + 4 * b) * 18);
      EXPECT_EQ(rows.get(o, 32 * b), static_cast<float>(1 + 3 * (1 + o) + b));
    }
}

TEST(Nibbles, OfABlockAreHalvesNotNeighbours) {
  // d = 1, byte j = (15 - j) * 16 + j: values 0..15 are -8..7, values 16..31 are 7..-8.
  std::array<std::byte, 18> block{std::byte{0x00}, std::byte{0x3C}};
  for (std::size_t j = 0; j < 16; ++j)
    block[2 + j] = static_cast<std::byte>((15 - j) * 16 + j);
  const PackedView<Q4_0, RowMajor> view{block, OutIn{1, 32}};
  for (std::size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(view.get(0, j), static_cast<float>(j) - 8.0f);
    EXPECT_EQ(view.get(0, 16 + j), 7.0f - static_cast<float>(j));
  }
}

} // namespace
