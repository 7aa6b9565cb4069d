#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/prepack.hpp>
#include <quern/quantize.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/trace.hpp>

#include "support/counting_new.hpp"
#include "support/errors.hpp"
#include "support/kinds.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using quern::AdapterInserted;
using quern::ErrorCode;
using quern::In;
using quern::InputBlockMajor;
using quern::MatrixView;
using quern::ModelScope;
using quern::Out;
using quern::OutIn;
using quern::PackedView;
using quern::PackedWeight;
using quern::prepack;
using quern::Q4_0;
using quern::RowMajor;
using support::bits_of;
using support::contains;
using support::error_of;

using Stored = PackedWeight<Q4_0, RowMajor>;
using Prepacked = PackedWeight<Q4_0, InputBlockMajor>;

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

/// Keeps what it is told.
class Keeping final : public quern::Trace {
public:
  std::vector<quern::Event> events;

  template <class E>
  [[nodiscard]] std::vector<E> of() const {
    std::vector<E> found;
    for (const quern::Event& event : events)
      if (const auto* one = std::get_if<E>(&event)) found.push_back(*one);
    return found;
  }

private:
  void record(const quern::Event& event) override { events.push_back(event); }
};

/// A sink that always fails.
class Throwing final : public quern::Trace {
public:
  int calls = 0;

private:
  void record(const quern::Event& /*event*/) override {
    ++calls;
    throw std::runtime_error("no room for events");
  }
};

/// Memory that knows what was taken, and gives only so much.
class Upstream final : public std::pmr::memory_resource {
public:
  std::size_t live = 0;
  std::size_t requests = 0;
  std::size_t limit = std::numeric_limits<std::size_t>::max();

private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++requests;
    if (bytes > limit) throw std::bad_alloc();
    void* data = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    live += bytes;
    return data;
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    live -= bytes;
    std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

TEST(PackedWeight, CopiesTheBytesItIsMadeFrom) {
  auto bytes = support::counting_weight(2, 3);
  const auto original = bytes;
  const Stored weight{bytes, OutIn{2, 96}};
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  EXPECT_EQ(copy_of(weight.bytes()), original);
  EXPECT_EQ(weight.shape(), (OutIn{2, 96}));
  const auto view = weight.view();
  EXPECT_EQ(view.data(), weight.bytes().data());
  EXPECT_EQ(view.get(1, 64), 6.0f);
}

TEST(PackedWeight, IsFilledThroughItsBytes) {
  const auto bytes = support::counting_weight(2, 3);
  Prepacked weight{OutIn{2, 96}};
  ASSERT_EQ(weight.bytes().size(), 108u);
  std::copy(bytes.begin(), bytes.end(), weight.bytes().begin());
  EXPECT_EQ(weight.view().get(1, 0), 2.0f); // block (1, 0) lies second in this order
}

TEST(PackedWeight, RefusesAnotherSizeBeforeItTakesMemory) {
  const auto bytes = support::counting_weight(2, 3);
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{107}}) {
    const std::string text = error_of(ErrorCode::size_mismatch, [&] {
      (void)Stored{std::span{bytes}.first(wrong), OutIn{2, 96}};
    });
    EXPECT_TRUE(contains(text, "quern::PackedWeight: [2, 96] in Q4_0 needs exactly 108 bytes"));
    EXPECT_TRUE(contains(text, "got " + std::to_string(wrong)));
  }
  // 18 TiB: asking for them would be another error.
  (void)error_of(ErrorCode::size_mismatch, [&] {
    (void)Stored{bytes, OutIn{std::size_t{1} << 40, 32}};
  });
  (void)error_of(ErrorCode::size_overflow, [&] {
    (void)Stored{bytes, OutIn{std::size_t{1} << 32, std::size_t{1} << 32}};
  });
}

TEST(PackedWeight, MovesItsMemoryAndIsEmptyAfterwards) {
  const auto bytes = support::counting_weight(2, 3);
  Stored first{bytes, OutIn{2, 96}};
  const std::byte* const data = first.bytes().data();
  std::size_t allocations = support::count_allocations([&] {
    Stored second{std::move(first)};
    EXPECT_EQ(second.bytes().data(), data);
    EXPECT_EQ(second.shape(), (OutIn{2, 96}));
    EXPECT_EQ(first.shape(), OutIn{}); // NOLINT: moved from on purpose
    EXPECT_TRUE(first.bytes().empty());
    EXPECT_TRUE(first.view().to_floats().empty());
    first = std::move(second);
    EXPECT_TRUE(second.bytes().empty()); // NOLINT: as above
  });
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(first.bytes().data(), data);

  Stored& self = first;
  first = std::move(self);
  EXPECT_EQ(first.bytes().data(), data);
  EXPECT_EQ(copy_of(first.bytes()), bytes);

  // Each memory goes back as it came, the large one with its larger alignment.
  const OutIn large{1024, 8192};
  Stored big{large};
  const auto at = reinterpret_cast<std::uintptr_t>(big.bytes().data());
  EXPECT_EQ(at % (std::size_t{2} << 20), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.bytes().data()) % 64, 0u);
  first = std::move(big);
  EXPECT_EQ(first.shape(), large);
  first = Stored{bytes, OutIn{2, 96}};
  EXPECT_EQ(copy_of(first.bytes()), bytes);
}

TEST(PackedWeight, CanBeEmpty) {
  for (const OutIn shape : {OutIn{0, 96}, OutIn{3, 0}, OutIn{}}) {
    Stored weight{shape};
    EXPECT_TRUE(weight.bytes().empty());
    EXPECT_TRUE(weight.view().to_floats().empty());
    EXPECT_EQ(Stored(std::span<const std::byte>{}, shape).shape(), shape);
    const Prepacked other = prepack<InputBlockMajor>(std::move(weight));
    EXPECT_EQ(other.shape(), shape);
  }
}

/// Relayout of every format, in both directions.
class Relayout : public testing::TestWithParam<const support::Kind*> {
protected:
  static constexpr std::size_t out = 5;
  static constexpr std::size_t blocks = 3;

  const support::Kind& kind = *GetParam();
  const support::Kind& other = *kind.other_order;
  const OutIn shape = kind.shape(out, blocks);
  const std::vector<std::byte> row_major = kind.finite_blocks(out * blocks, 11);
  std::vector<std::byte> bytes = kind.laid_out(row_major, out, blocks);
  const std::vector<float> matrix = kind.decoded(row_major);
  const support::AnyKindOfView::Pointer view = kind.view(bytes, shape);
  Keeping trace;
  ModelScope scope{trace};
};
INSTANTIATE_TEST_SUITE_P(All, Relayout, testing::ValuesIn(support::kinds()), support::kind_name);

TEST_P(Relayout, PutsEveryBlockInItsPlaceAndKeepsTheMatrix) {
  const auto moved = view->prepack(other.by_rows, scope, trace);
  ASSERT_EQ(moved->bytes, bytes.size());
  EXPECT_EQ(std::memcmp(moved->data, other.laid_out(row_major, out, blocks).data(), bytes.size()),
            0);
  EXPECT_NE(std::memcmp(moved->data, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(moved->stride, other.by_rows ? blocks : out);
  EXPECT_EQ(moved->shape(), shape);
  EXPECT_EQ(bits_of(moved->to_floats()), bits_of(matrix));

  const auto back = moved->prepack(kind.by_rows, scope, trace);
  EXPECT_EQ(std::memcmp(back->data, bytes.data(), bytes.size()), 0);
  EXPECT_NE(back->data, bytes.data());
  EXPECT_EQ(scope.live_bytes(), 2 * bytes.size());
}

TEST_P(Relayout, IsPricedByOneEvent) {
  const auto moved = view->prepack(other.by_rows, scope, trace);
  const auto events = trace.of<AdapterInserted>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "prepack");
  EXPECT_EQ(events[0].from, kind.by_rows ? "RowMajor" : "InputBlockMajor");
  EXPECT_EQ(events[0].to, kind.by_rows ? "InputBlockMajor" : "RowMajor");
  EXPECT_EQ(events[0].bytes_before, bytes.size());
  EXPECT_EQ(events[0].bytes, bytes.size());
  EXPECT_EQ(events[0].scope, "model");
  const auto allocations = trace.of<quern::Allocation>();
  ASSERT_EQ(allocations.size(), 1u);
  EXPECT_EQ(allocations[0].bytes, bytes.size());
}

TEST_P(Relayout, ToTheOrderItHasIsFree) {
  const auto moved = view->prepack(other.by_rows, scope, trace);
  trace.events.clear();
  const std::size_t live = scope.live_bytes();
  EXPECT_EQ(view->prepack(kind.by_rows, scope, trace)->data, bytes.data());
  // Twice is once: the fault in which a second relayout scrambles the first can't be written.
  const auto again = moved->prepack(other.by_rows, scope, trace);
  EXPECT_EQ(again->data, moved->data);
  EXPECT_EQ(bits_of(again->to_floats()), bits_of(matrix));
  EXPECT_EQ(scope.live_bytes(), live);
  EXPECT_TRUE(trace.events.empty());
}

TEST_P(Relayout, ReadsItsOwnBytesAfterwards) {
  const auto moved = view->prepack(other.by_rows, scope, trace);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
  EXPECT_EQ(bits_of(moved->to_floats()), bits_of(matrix));
}

TEST_P(Relayout, OfAPartTakesThatPartAlone) {
  for (std::size_t row = 0; row < out; row += 2)
    for (std::size_t rows = 1; rows <= out - row; ++rows)
      for (std::size_t block = 0; block < blocks; ++block)
        for (std::size_t columns = 1; columns <= blocks - block; ++columns) {
          ModelScope own;
          const auto part = view->narrow_out(row, rows)->narrow_blocks(block, columns);
          const auto moved = part->prepack(other.by_rows, own, quern::no_trace);
          ASSERT_EQ(own.live_bytes(), rows * columns * kind.bytes_per_block);
          ASSERT_TRUE(moved->contiguous);
          ASSERT_EQ(moved->stride, other.by_rows ? columns : rows);
          ASSERT_EQ(bits_of(moved->to_floats()), bits_of(part->to_floats()))
              << row << " + " << rows << ", " << block << " + " << columns;
          for (std::size_t o = 0; o < rows; ++o)
            for (std::size_t b = 0; b < columns; ++b)
              ASSERT_EQ(moved->block_data(o, b) - moved->data,
                        static_cast<std::ptrdiff_t>(other.place(o, b, rows, columns) *
                                                    kind.bytes_per_block));
        }
}

TEST_P(Relayout, OfManyGridsComesBackByteForByte) {
  for (const std::size_t rows : {1u, 2u, 3u, 8u, 17u, 33u})
    for (const std::size_t columns : {1u, 2u, 5u, 16u, 19u}) {
      const auto stored = kind.finite_blocks(rows * columns, 5);
      ModelScope own;
      const auto from = kind.view(stored, kind.shape(rows, columns));
      const auto there = from->prepack(other.by_rows, own, quern::no_trace);
      const auto back = there->prepack(kind.by_rows, own, quern::no_trace);
      ASSERT_EQ(std::memcmp(back->data, stored.data(), stored.size()), 0);
      for (std::size_t o = 0; o < rows; ++o)
        for (std::size_t b = 0; b < columns; ++b)
          ASSERT_EQ(
              std::memcmp(there->block_data(o, b), from->block_data(o, b), kind.bytes_per_block), 0)
              << rows << " x " << columns << ": " << o << ", " << b;
    }
}

TEST_P(Relayout, WithoutMemoryLeavesNothingBehind) {
  Upstream upstream;
  upstream.limit = bytes.size() - 1;
  ModelScope poor{trace, &upstream};
  EXPECT_THROW((void)view->prepack(other.by_rows, poor, trace), std::bad_alloc);
  EXPECT_EQ(poor.live_bytes(), 0u);
  EXPECT_EQ(upstream.live, 0u);
  EXPECT_TRUE(trace.events.empty());
  EXPECT_EQ(bits_of(view->to_floats()), bits_of(matrix));

  upstream.limit = bytes.size();
  EXPECT_EQ(bits_of(view->prepack(other.by_rows, poor, trace)->to_floats()), bits_of(matrix));
}

/// Relayout of an owned weight within its memory.
template <class F>
class InPlace : public testing::Test {};
TYPED_TEST_SUITE(InPlace, support::EachFormat, support::Names);

TYPED_TEST(InPlace, MovesTheBlocksWithoutASecondCopy) {
  using F = TypeParam;
  for (const auto& [out, blocks] :
       {std::pair<std::size_t, std::size_t>{5, 3}, {3, 5}, {4, 4}, {1, 7}, {7, 1}, {17, 12}}) {
    const OutIn shape{Out{out}, In{blocks * F::block_size}};
    const auto row_major = support::finite_blocks<F>(out * blocks, 13);
    PackedWeight<F, RowMajor> weight{row_major, shape};
    const std::byte* const data = weight.bytes().data();
    Keeping trace;
    PackedWeight<F, InputBlockMajor> moved = prepack<InputBlockMajor>(std::move(weight), trace);
    EXPECT_EQ(moved.bytes().data(), data);
    EXPECT_EQ(copy_of(moved.bytes()),
              (support::laid_out<F, InputBlockMajor>(row_major, out, blocks)));
    EXPECT_EQ(moved.shape(), shape);
    EXPECT_TRUE(weight.bytes().empty()); // NOLINT: moved from on purpose
    ASSERT_EQ(trace.events.size(), 1u);
    const auto event = std::get<AdapterInserted>(trace.events[0]);
    EXPECT_EQ(event.kind, "prepack");
    EXPECT_EQ(event.to, "InputBlockMajor");
    EXPECT_EQ(event.bytes, row_major.size());
    EXPECT_EQ(event.scope, "owned");

    // The order it has is free.
    auto same = prepack<InputBlockMajor>(std::move(moved), trace);
    EXPECT_EQ(same.bytes().data(), data);
    EXPECT_EQ(trace.events.size(), 1u);

    const auto back = prepack<RowMajor>(std::move(same), trace);
    EXPECT_EQ(back.bytes().data(), data);
    EXPECT_EQ(copy_of(back.bytes()), row_major);
    EXPECT_EQ(trace.events.size(), 2u);
  }
}

TEST(InPlaceRelayout, WithoutMemoryLeavesTheWeightAsItWas) {
  const auto bytes = support::counting_weight(4, 3);
  Stored weight{bytes, OutIn{4, 96}};
  Keeping trace;
  bool failed = false;
  try {
    const support::FailingAllocation failing(0);
    (void)prepack<InputBlockMajor>(std::move(weight), trace);
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  if (!failed) GTEST_SKIP() << "the relayout of this weight needs no memory";
  EXPECT_EQ(weight.shape(), (OutIn{4, 96})); // NOLINT: not moved from
  EXPECT_EQ(copy_of(weight.bytes()), bytes);
  EXPECT_TRUE(trace.events.empty());
}

// Numbers to check by hand: every value in block (o, b) of the weight is 1 + 3 o + b.
TEST(CountingWeight, IsRelaidOutByTheBlock) {
  const auto bytes = support::counting_weight(2, 3);
  const PackedView<Q4_0, RowMajor> view{bytes, OutIn{2, 96}};
  ModelScope scope;
  const auto moved = prepack<InputBlockMajor>(view, scope);
  // binary16 of 1 4 2 5 3 6; applied twice it would be 1 5 4 3 2 6.
  const std::uint8_t scales[] = {0x3C, 0x44, 0x40, 0x45, 0x42, 0x46};
  for (std::size_t at = 0; at < 6; ++at)
    EXPECT_EQ(moved.data()[18 * at + 1], static_cast<std::byte>(scales[at])) << at;
  EXPECT_EQ(prepack<InputBlockMajor>(moved, scope).data(), moved.data());
  EXPECT_EQ(std::memcmp(prepack<RowMajor>(moved, scope).data(), bytes.data(), bytes.size()), 0);
}

TEST(CountingWeight, OnASquareGridADoubleRelayoutWouldGoUnseen) {
  const auto bytes = support::counting_weight(3, 3);
  ModelScope scope;
  const auto once =
      prepack<InputBlockMajor>(PackedView<Q4_0, RowMajor>{bytes, OutIn{3, 96}}, scope);
  // Relabelled as not yet relaid out, and relaid out again: the bytes are the stored ones.
  const std::span<const std::byte> relabelled{once.data(), once.bytes()};
  const auto twice =
      prepack<InputBlockMajor>(PackedView<Q4_0, RowMajor>{relabelled, OutIn{3, 96}}, scope);
  EXPECT_EQ(std::memcmp(twice.data(), bytes.data(), bytes.size()), 0);
}

TEST(ModelScope, TakesBackMemoryThatItCanNotRecord) {
  Upstream upstream;
  ModelScope scope{quern::no_trace, &upstream};
  for (long nth = 0;; ++nth) {
    ASSERT_LT(nth, 10);
    bool failed = false;
    {
      const support::FailingAllocation failing(nth);
      try {
        (void)scope.allocate(100, 64);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }
    if (!failed) break;
    EXPECT_EQ(upstream.live, 0u) << nth;
    EXPECT_EQ(scope.live_bytes(), 0u) << nth;
  }
  EXPECT_EQ(upstream.live, 100u);
  EXPECT_EQ(scope.live_bytes(), 100u);
}

TEST(Trace, ASinkThatFailsChangesNothing) {
  Throwing trace;
  Upstream upstream;
  const auto bytes = support::counting_weight(4, 3);
  {
    const quern::Phase phase(trace, "load");
    ModelScope scope{trace, &upstream};
    const auto moved =
        prepack<InputBlockMajor>(PackedView<Q4_0, RowMajor>{bytes, OutIn{4, 96}}, scope, trace);
    EXPECT_EQ(moved.get(3, 64), 12.0f);
    EXPECT_EQ(scope.live_bytes(), bytes.size());
    const auto owned = prepack<InputBlockMajor>(Stored{bytes, OutIn{4, 96}}, trace);
    EXPECT_EQ(owned.view().get(3, 64), 12.0f);
  }
  EXPECT_EQ(upstream.live, 0u);
  // PhaseBegin, Allocation, AdapterInserted twice, Free, PhaseEnd.
  EXPECT_EQ(trace.calls, 6);
}

/// Quantizing, for every format.
template <class F>
class Quantize : public testing::Test {};
TYPED_TEST_SUITE(Quantize, support::EachFormat, support::Names);

TYPED_TEST(Quantize, PacksEachRowByItself) {
  using F = TypeParam;
  const std::size_t in = 2 * F::block_size;
  const auto values = support::random_values(3 * in, 3);
  const auto whole = quern::quantize<F>(values, OutIn{3, In{in}});
  static_assert(std::is_same_v<decltype(whole), const PackedWeight<F, RowMajor>>);
  std::vector<std::byte> rows;
  for (std::size_t o = 0; o < 3; ++o) {
    const auto row = quern::quantize<F>(std::span{values}.subspan(o * in, in), OutIn{1, In{in}});
    rows.insert(rows.end(), row.bytes().begin(), row.bytes().end());
  }
  EXPECT_EQ(copy_of(whole.bytes()), rows);

  // Rows that lie apart, with values between them that must not be read.
  const std::size_t stride = in + 5;
  std::vector<float> spread(3 * stride, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t o = 0; o < 3; ++o)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(o * in), in,
                spread.begin() + static_cast<std::ptrdiff_t>(o * stride));
  const auto strided = quern::quantize<F>(MatrixView<const float>{spread, 3, in, stride});
  EXPECT_EQ(copy_of(strided.bytes()), rows);
}

TYPED_TEST(Quantize, NamesThePlaceOfAValueItCanNotEncode) {
  using F = TypeParam;
  const std::size_t in = 3 * F::block_size;
  std::vector<float> values(4 * in, 0.5f);
  const std::size_t column = 2 * F::block_size + F::block_size / 2;
  const auto quantize = [&] { (void)quern::quantize<F>(values, OutIn{4, In{in}}); };
  const std::string place = "at row 2, column " + std::to_string(column);

  values[2 * in + column] = std::numeric_limits<float>::quiet_NaN();
  const std::string nan = error_of(ErrorCode::not_a_number, quantize);
  EXPECT_TRUE(contains(nan, "quern::quantize to " + std::string(F::name)));
  EXPECT_TRUE(contains(nan, place));

  for (const float infinity :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    values[2 * in + column] = infinity;
    EXPECT_TRUE(contains(error_of(ErrorCode::infinite, quantize), place));
  }

  values[2 * in + column] = -0.25f;
  EXPECT_NO_THROW(quantize());
}

TYPED_TEST(Quantize, RefusesShapesThatDoNotFitTheValues) {
  using F = TypeParam;
  const std::size_t in = 2 * F::block_size;
  const std::vector<float> values(3 * in);
  (void)error_of(ErrorCode::size_mismatch, [&] {
    (void)quern::quantize<F>(values, OutIn{2, In{in}});
  });
  (void)error_of(ErrorCode::size_mismatch, [&] {
    (void)quern::quantize<F>(values, OutIn{4, In{in}});
  });
  const auto none = quern::quantize<F>(std::span<const float>{}, OutIn{0, In{in}});
  EXPECT_TRUE(none.bytes().empty());
  if constexpr (F::block_size > 1) {
    const std::string text = error_of(ErrorCode::not_block_multiple, [&] {
      (void)quern::quantize<F>(values, OutIn{F::block_size, 6});
    });
    EXPECT_TRUE(contains(text, "quern::quantize: row length 6"));
    EXPECT_TRUE(contains(text, "remainder 6"));
  }
}

TEST(QuantizeTo, WideBlocksNeedsWholeOnes) {
  const std::vector<float> row(1152, 0.5f);
  const OutIn shape{1, 1152};
  const std::string text = error_of(ErrorCode::not_block_multiple,
                                    [&] { (void)quern::quantize<quern::Q4_K>(row, shape); });
  EXPECT_TRUE(contains(text, "row length 1152"));
  EXPECT_TRUE(contains(text, "remainder 128"));
  const auto narrow = quern::quantize<Q4_0>(row, shape);
  EXPECT_EQ(narrow.bytes().size(), 36u * 18u);
}

} // namespace
