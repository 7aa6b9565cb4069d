#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <quern/fixtures.hpp>
#include <quern/formats.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weights.hpp>

#include "support/errors.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

namespace fixtures = quern::fixtures;
using quern::ErrorCode;
using quern::InputBlockMajor;
using quern::OutIn;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using support::contains;
using support::error_of;

template <class F>
class Fixtures : public testing::Test {};
TYPED_TEST_SUITE(Fixtures, support::EachFormat, support::Names);

TYPED_TEST(Fixtures, AgreeWithTheirOwnOrderAndNotWithTheOther) {
  using F = TypeParam;
  constexpr auto canonical = fixtures::canonical<F>();
  constexpr auto kernel = fixtures::kernel_order<F>();
  static_assert(canonical.size() == 4 * 3 * F::bytes_per_block);
  static_assert(canonical != kernel);
  static_assert(!fixtures::disagreement<F, RowMajor>(canonical));
  static_assert(!fixtures::disagreement<F, InputBlockMajor>(kernel));
  const auto wrong = fixtures::disagreement<F, InputBlockMajor>(canonical);
  ASSERT_TRUE(wrong);
  EXPECT_TRUE(contains(wrong->message(),
                       "block (0, 1) should be at flat index 4 (InputBlockMajor), found block "
                       "(1, 1) there"));
  EXPECT_TRUE((fixtures::disagreement<F, RowMajor>(kernel)));
}

TYPED_TEST(Fixtures, AreRelaidOutByTheByteFunctions) {
  using F = TypeParam;
  constexpr auto canonical = fixtures::canonical<F>();
  constexpr auto relaid = [] {
    auto bytes = fixtures::canonical<F>();
    quern::to_kernel_order<F>(fixtures::canonical<F>(), OutIn{4, 3 * F::block_size}, bytes);
    return bytes;
  }();
  static_assert(relaid == fixtures::kernel_order<F>());
  const OutIn shape{4, 3 * F::block_size};
  const auto there = quern::to_kernel_order<F>(canonical, shape);
  EXPECT_FALSE((fixtures::disagreement<F, InputBlockMajor>(there)));
  const auto back = quern::to_canonical_order<F>(there, shape);
  EXPECT_FALSE((fixtures::disagreement<F, RowMajor>(back)));
  EXPECT_TRUE((fixtures::disagreement<F, InputBlockMajor>(back)));
}

TYPED_TEST(Fixtures, SeeEveryFlippedByteAndEverySize) {
  using F = TypeParam;
  const auto canonical = fixtures::canonical<F>();
  for (std::size_t i = 0; i < canonical.size(); ++i) {
    auto bytes = canonical;
    bytes[i] ^= std::byte{1};
    const auto found = fixtures::disagreement<F, RowMajor>(bytes);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->flat_index, i / F::bytes_per_block);
  }
  std::vector<std::byte> longer(canonical.begin(), canonical.end());
  longer.push_back(std::byte{0});
  const auto size = fixtures::disagreement<F, RowMajor>(longer);
  ASSERT_TRUE(size);
  EXPECT_TRUE(contains(size->message(), "expected exactly"));
  longer.resize(canonical.size() - 1);
  EXPECT_TRUE((fixtures::disagreement<F, RowMajor>(longer)));
}

TYPED_TEST(Fixtures, TagsDoNotRepeat) {
  using F = TypeParam;
  std::set<std::vector<std::byte>> blocks;
  constexpr std::size_t rows = 20;
  constexpr std::size_t columns = 17;
  const auto bytes = fixtures::canonical<F, rows, columns>();
  for (std::size_t number = 0; number < rows * columns; ++number) {
    const auto* at = bytes.data() + number * F::bytes_per_block;
    blocks.emplace(at, at + std::min<std::size_t>(F::bytes_per_block, 2));
  }
  EXPECT_EQ(blocks.size(), rows * columns);
  auto swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + F::bytes_per_block,
                   swapped.begin() + static_cast<std::ptrdiff_t>(16 * F::bytes_per_block));
  EXPECT_TRUE((fixtures::disagreement<F, RowMajor, rows, columns>(swapped)));
}

TYPED_TEST(Fixtures, DecodableBytesDecodeToTheirMatrix) {
  using F = TypeParam;
  const auto fixture = fixtures::decodable<F>();
  const PackedView<F, RowMajor> canonical{fixture.canonical, fixture.shape()};
  const PackedView<F, InputBlockMajor> kernel{fixture.kernel_order, fixture.shape()};
  const std::vector<float> expected(fixture.matrix.begin(), fixture.matrix.end());
  EXPECT_EQ(canonical.to_floats(), expected);
  EXPECT_EQ(kernel.to_floats(), expected);
  const PackedView<F, InputBlockMajor> misread{fixture.canonical, fixture.shape()};
  EXPECT_NE(misread.to_floats(), expected);
  for (const float value : expected)
    EXPECT_TRUE(std::isfinite(value));
}

TEST(ByteRelayout, RefusesOtherSizes) {
  const std::vector<std::byte> bytes(108);
  std::vector<std::byte> room(108);
  for (const std::size_t size : {std::size_t{107}, std::size_t{0}}) {
    const auto text = error_of(ErrorCode::size_mismatch, [&] {
      quern::to_kernel_order<Q4_0>(std::span(bytes).first(size), OutIn{2, 96}, room);
    });
    EXPECT_TRUE(contains(text, "exactly 108 bytes"));
  }
  (void)error_of(ErrorCode::size_mismatch, [&] {
    quern::to_canonical_order<Q4_0>(bytes, OutIn{2, 96}, std::span(room).first(100));
  });
  (void)error_of(ErrorCode::not_block_multiple, [&] {
    quern::to_kernel_order<Q4_0>(bytes, OutIn{2, 95}, room);
  });
}

TEST(ByteRelayout, PutsTheCountingWeightWhereItBelongs) {
  const auto bytes = support::counting_weight(2, 3);
  const auto kernel = quern::to_kernel_order<Q4_0>(bytes, OutIn{2, 96});
  // Scales 1 to 6 as binary16, high bytes: 3C 40 42 44 45 46.
  const std::array<int, 6> expected{0x3C, 0x44, 0x40, 0x45, 0x42, 0x46};
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::to_integer<int>(kernel[18 * i + 1]), expected[i]);
  EXPECT_EQ(quern::to_canonical_order<Q4_0>(kernel, OutIn{2, 96}), bytes);
  EXPECT_NE(quern::to_kernel_order<Q4_0>(kernel, OutIn{2, 96}), kernel);
}

TEST(RequireOutIn, RefusesWhatLooksSwapped) {
  const auto text =
      error_of(ErrorCode::looks_swapped, [] { (void)quern::require_out_in<Q4_0>(128, 3); });
  EXPECT_TRUE(contains(text, "looks like [in, out]"));
  EXPECT_TRUE(contains(text, "OutIn{3, 128}"));
  EXPECT_TRUE(contains(text, "out_in(NeShape)"));
  static_assert(quern::require_out_in<Q4_0>(3, 128) == OutIn{3, 128});
  static_assert(quern::require_out_in<Q4_0>(64, 128) == OutIn{64, 128});
  static_assert(quern::require_out_in<Q4_0>(128, 128) == OutIn{128, 128});
  (void)error_of(ErrorCode::not_block_multiple, [] { (void)quern::require_out_in<Q4_0>(5, 7); });
  (void)error_of(ErrorCode::out_of_range, [] { (void)quern::require_out_in<Q4_0>(0, 128); });
  (void)error_of(ErrorCode::out_of_range, [] { (void)quern::require_out_in<Q4_0>(128, 0); });
  (void)error_of(ErrorCode::negative_extent, [] { (void)quern::require_out_in<Q4_0>(-3, 128); });
}

TEST(BlocksPerRow, CountsWholeBlocks) {
  static_assert(quern::blocks_per_row<Q4_0>(128) == 4);
  static_assert(quern::blocks_per_row<Q4_0>(0) == 0);
  (void)error_of(ErrorCode::not_block_multiple, [] { (void)quern::blocks_per_row<Q4_0>(100); });
}

} // namespace
