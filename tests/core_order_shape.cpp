#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/formats/q6_k.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/packed_weights.hpp>
#include <quern/shape.hpp>

#include "support/errors.hpp"
#include "support/typed.hpp"

namespace {

using quern::BlockOrder;
using quern::ErrorCode;
using quern::In;
using quern::InputBlockMajor;
using quern::NeShape;
using quern::Out;
using quern::OutIn;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using support::contains;
using support::error_of;

// The two orders as maps from grid places to flat places, proved for every grid of up to 9 x 9.

constexpr std::size_t largest = 9;

template <BlockOrder O>
consteval bool is_a_bijection(std::size_t out, std::size_t blocks) {
  bool taken[largest * largest] = {};
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t flat = O::index(o, b, O::stride(out, blocks));
      if (flat >= out * blocks || taken[flat]) return false;
      taken[flat] = true;
    }
  return true;
}

/// Where the relayout from From puts the block at flat place `at`.
template <BlockOrder From>
constexpr std::size_t moved(std::size_t at, std::size_t out, std::size_t blocks) {
  using To = quern::OtherOrder<From>;
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t b = 0; b < blocks; ++b)
      if (From::index(o, b, From::stride(out, blocks)) == at)
        return To::index(o, b, To::stride(out, blocks));
  return out * blocks;
}

consteval bool are_inverse(std::size_t out, std::size_t blocks) {
  for (std::size_t at = 0; at < out * blocks; ++at)
    if (moved<InputBlockMajor>(moved<RowMajor>(at, out, blocks), out, blocks) != at ||
        moved<RowMajor>(moved<InputBlockMajor>(at, out, blocks), out, blocks) != at)
      return false;
  return true;
}

consteval bool are_equal(std::size_t out, std::size_t blocks) {
  for (std::size_t at = 0; at < out * blocks; ++at)
    if (moved<RowMajor>(at, out, blocks) != at) return false;
  return true;
}

/// True when the relayout applied twice in the same direction brings every block back.
consteval bool is_its_own_inverse(std::size_t out, std::size_t blocks) {
  for (std::size_t at = 0; at < out * blocks; ++at)
    if (moved<RowMajor>(moved<RowMajor>(at, out, blocks), out, blocks) != at) return false;
  return true;
}

template <std::size_t Out>
consteval bool proved_for_rows() {
  for (std::size_t blocks = 0; blocks <= largest; ++blocks) {
    const bool coincide = Out <= 1 || blocks <= 1;
    if (!is_a_bijection<RowMajor>(Out, blocks)) return false;
    if (!is_a_bijection<InputBlockMajor>(Out, blocks)) return false;
    if (!are_inverse(Out, blocks)) return false;
    if (are_equal(Out, blocks) != coincide) return false;
    if (quern::orders_coincide(Out, blocks) != coincide) return false;
    // Why no test of an order may use a square grid: there a double relayout goes unseen.
    if (is_its_own_inverse(Out, blocks) != (coincide || Out == blocks)) return false;
  }
  return true;
}
static_assert(proved_for_rows<0>() && proved_for_rows<1>() && proved_for_rows<2>());
static_assert(proved_for_rows<3>());
static_assert(proved_for_rows<4>());
static_assert(proved_for_rows<5>());
static_assert(proved_for_rows<6>());
static_assert(proved_for_rows<7>());
static_assert(proved_for_rows<8>());
static_assert(proved_for_rows<9>());

// The numbers themselves, on 4 x 3: not only two maps that fit each other.
static_assert(RowMajor::index(2, 1, RowMajor::stride(4, 3)) == 7);
static_assert(InputBlockMajor::index(2, 1, InputBlockMajor::stride(4, 3)) == 6);
static_assert(RowMajor::stride(4, 3) == 3 && InputBlockMajor::stride(4, 3) == 4);
static_assert(moved<RowMajor>(1, 4, 3) == 4 && moved<InputBlockMajor>(1, 4, 3) == 3);

static_assert(std::is_same_v<quern::OtherOrder<RowMajor>, InputBlockMajor>);
static_assert(std::is_same_v<quern::OtherOrder<InputBlockMajor>, RowMajor>);
static_assert(BlockOrder<RowMajor> && BlockOrder<InputBlockMajor>);
static_assert(!BlockOrder<int> && !BlockOrder<const RowMajor> && !BlockOrder<RowMajor&>);
static_assert(RowMajor::name == "RowMajor" && InputBlockMajor::name == "InputBlockMajor");

TEST(Order, MovesEveryBlockOfAnOddGridAsStated) {
  // 3 x 5 by hand: flat place in RowMajor -> flat place in InputBlockMajor.
  const std::size_t expected[15] = {0, 3, 6, 9, 12, 1, 4, 7, 10, 13, 2, 5, 8, 11, 14};
  for (std::size_t at = 0; at < 15; ++at)
    EXPECT_EQ(moved<RowMajor>(at, 3, 5), expected[at]) << at;
}

TEST(Shape, KeepsItsExtentsApart) {
  constexpr OutIn shape{4096, 11008};
  static_assert(shape.out == 4096u && shape.in == 11008u);
  static_assert(shape == OutIn{Out{4096}, In{11008}});
  static_assert(shape != OutIn{11008, 4096});
  static_assert(OutIn{} == OutIn{0, 0});
  EXPECT_EQ(to_string(shape), "[4096, 11008]");

  static_assert(!std::is_convertible_v<Out, In> && !std::is_convertible_v<In, Out>);
  static_assert(!std::is_constructible_v<Out, In> && !std::is_constructible_v<In, Out>);
  static_assert(!std::is_assignable_v<Out&, In> && !std::is_assignable_v<In&, Out>);
  static_assert(!std::is_constructible_v<OutIn, In, Out>);
  static_assert(!std::is_convertible_v<bool, Out> && !std::is_convertible_v<double, Out>);
}

TEST(Shape, TakesEveryIntegerThatFits) {
  static_assert(OutIn{std::int8_t{7}, std::uint16_t{9}} == OutIn{7, 9});
  constexpr auto top = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(OutIn(OutIn{top, 1}).out.value(), top);
  EXPECT_EQ(Out{std::numeric_limits<std::int64_t>::max()}.value(),
            static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()));
}

template <class T>
void refuses(T value) {
  const std::string text = error_of(ErrorCode::negative_extent, [&] { (void)Out{value}; });
  EXPECT_TRUE(contains(text, std::to_string(value)));
  (void)error_of(ErrorCode::negative_extent, [&] { (void)OutIn{32, value}; });
}

TEST(Shape, RefusesNegativeExtents) {
  refuses(-1);
  refuses(std::int8_t{-128});
  refuses(std::int16_t{-2});
  refuses(std::numeric_limits<int>::min());
  refuses(std::numeric_limits<std::int64_t>::min());
}

TEST(NeShape, BecomesOutInByOneCallOnly) {
  static_assert(out_in(NeShape{96, 2}) == OutIn{2, 96});
  static_assert(out_in(NeShape{64, 32}) == OutIn{32, 64}); // no guessing: both divide
  static_assert(out_in(NeShape{64, 1}) == OutIn{1, 64});
  static_assert(NeShape{96, 2} == NeShape{.ne0 = 96, .ne1 = 2});
  static_assert(NeShape{96, 2} != NeShape{2, 96});

  static_assert(!std::is_convertible_v<NeShape, OutIn> && !std::is_constructible_v<OutIn, NeShape>);
  static_assert(!std::is_convertible_v<NeShape, Out> && !std::is_convertible_v<NeShape, In>);
  static_assert(!std::is_convertible_v<OutIn, NeShape>);
  static_assert(!std::is_assignable_v<OutIn&, NeShape>);
}

TEST(NeShape, GivenAsOutInIsCaughtByTheRowLength) {
  // dims {2, 96} of a Q4_0 tensor: a row of 2 values.
  const std::string text = error_of(ErrorCode::not_block_multiple, [] {
    (void)PackedView<Q4_0, RowMajor>{std::span<const std::byte>{}, out_in(NeShape{2, 96})};
  });
  EXPECT_TRUE(contains(text, "row length 2 is not a multiple of 32"));
}

TEST(RowLength, IsJudgedAloneNotWithTheWholeCount) {
  // 2 x 16 is one block's worth of values and still no Q4_0 weight.
  const std::byte block[18] = {};
  (void)error_of(ErrorCode::not_block_multiple, [&] {
    (void)PackedView<Q4_0, RowMajor>{block, OutIn{2, 16}};
  });
  EXPECT_EQ(quern::blocks_per_row<Q4_0>(4544), 142u);
  static_assert(quern::blocks_per_row<Q4_0>(4544) * Q4_0::bytes_per_block == 2556);
}

TEST(RowLength, MustBeWholeBlocksOfTheWideFormatsToo) {
  using quern::Q4_K;
  const std::span<const std::byte> none;
  const std::string half = error_of(ErrorCode::not_block_multiple, [&] {
    (void)PackedView<Q4_K, RowMajor>{none, OutIn{4, 128}};
  });
  EXPECT_TRUE(contains(half, "row length 128"));
  EXPECT_TRUE(contains(half, "multiple of 256"));
  EXPECT_TRUE(contains(half, "remainder 128"));
  const std::string falcon =
      error_of(ErrorCode::not_block_multiple, [&] { (void)quern::blocks_per_row<Q4_K>(4544); });
  EXPECT_TRUE(contains(falcon, "remainder 192"));
}

template <class F>
class EachFormat : public testing::Test {};
TYPED_TEST_SUITE(EachFormat, support::EachFormat, support::Names);

TYPED_TEST(EachFormat, RefusesRowsThatAreNotWholeBlocks) {
  using F = TypeParam;
  const std::size_t wrong[] = {F::block_size - 1, F::block_size + 1, 3 * F::block_size / 2,
                               7 * F::block_size + 1};
  for (const std::size_t in : wrong) {
    if (in % F::block_size == 0) continue;
    const auto check = [&](auto&& call, const char* name) {
      const std::string text = error_of(ErrorCode::not_block_multiple, call);
      EXPECT_TRUE(contains(text, name));
      EXPECT_TRUE(contains(text, "row length " + std::to_string(in)));
      EXPECT_TRUE(contains(text, "multiple of " + std::to_string(F::block_size)));
      EXPECT_TRUE(contains(text, F::name));
      EXPECT_TRUE(contains(text, "remainder " + std::to_string(in % F::block_size)));
    };
    const OutIn shape{F::block_size, In{in}}; // the whole count is a multiple; that must not help
    const std::span<const std::byte> none;
    check([&] { (void)PackedView<F, RowMajor>{none, shape}; }, "quern::PackedView");
    check([&] { (void)PackedView<F, InputBlockMajor>{none, shape}; }, "quern::PackedView");
    check([&] { (void)quern::PackedWeight<F, RowMajor>{shape}; }, "quern::PackedWeight");
    check([&] { (void)quern::blocks_per_row<F>(in); }, "quern::blocks_per_row");
    check([&] { (void)quern::to_kernel_order<F>(none, shape); }, "quern::to_kernel_order");
  }
}

TYPED_TEST(EachFormat, RefusesProductsThatDoNotFit) {
  using F = TypeParam;
  const std::size_t top_blocks = std::numeric_limits<std::size_t>::max() / F::block_size;
  const OutIn huge[] = {
      OutIn{std::size_t{1} << 32, std::size_t{1} << 32},
      OutIn{std::numeric_limits<std::size_t>::max(), 2 * F::block_size},
      OutIn{2, In{top_blocks * F::block_size}},
      OutIn{std::size_t{1} << 40, std::size_t{1} << 30},
  };
  for (const OutIn shape : huge) {
    ASSERT_EQ(shape.in % F::block_size, 0u);
    const auto code = ErrorCode::size_overflow;
    const std::span<const std::byte> none;
    (void)error_of(code, [&] { (void)PackedView<F, RowMajor>{none, shape}; });
    (void)error_of(code, [&] { (void)PackedView<F, InputBlockMajor>{none, shape}; });
    (void)error_of(code, [&] { (void)quern::PackedWeight<F, RowMajor>{shape}; });
    (void)error_of(code, [&] { (void)quern::to_canonical_order<F>(none, shape); });
  }
  // 2^64 values can never be.
  const std::string text = error_of(ErrorCode::size_overflow, [&] {
    (void)PackedView<F, RowMajor>{std::span<const std::byte>{},
                                  OutIn{std::size_t{1} << 32, std::size_t{1} << 32}};
  });
  EXPECT_TRUE(contains(text, "element count overflow"));
  EXPECT_TRUE(contains(text, "[4294967296, 4294967296]"));
}

TYPED_TEST(EachFormat, ReckonsSizesBeyond31And32Bits) {
  using F = TypeParam;
  // No memory of that size is needed to learn what the size is: the message has it.
  for (const std::size_t blocks : {(std::size_t{1} << 31) / F::bytes_per_block + 1,
                                   (std::size_t{1} << 32) / F::bytes_per_block + 1}) {
    const std::string text = error_of(ErrorCode::size_mismatch, [&] {
      (void)PackedView<F, RowMajor>{std::span<const std::byte>{},
                                    OutIn{Out{blocks}, In{3 * F::block_size}}};
    });
    EXPECT_TRUE(contains(text, std::to_string(blocks * 3 * F::bytes_per_block)));
  }
}

TEST(ByteSize, OfALargeEmbeddingIsNotCutTo32Bits) {
  // 262144 rows of 42 blocks of 210 bytes: 2,312,110,080, negative in 32 signed bits. And 65536 x
  // 65536 blocks: 0 in 32 bits.
  const auto needs = [](OutIn shape) {
    return error_of(ErrorCode::size_mismatch, [&] {
      (void)PackedView<quern::Q6_K, RowMajor>{std::span<const std::byte>{}, shape};
    });
  };
  EXPECT_TRUE(contains(needs(OutIn{262144, 42 * 256}), "2312110080 bytes"));
  EXPECT_TRUE(contains(needs(OutIn{65536, 65536 * 256}), "901943132160 bytes"));
}

} // namespace
