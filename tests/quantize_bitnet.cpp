// BitNet b1.58: one scale for the whole tensor, codes that run through all rows without gaps.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/bitnet.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>

#include "support/errors.hpp"
#include "support/thread_executor.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using support::contains;
using support::error_of;

static_assert(!BlockFormat<BitNet>);
static_assert(!std::is_copy_constructible_v<BitNetWeight>);

std::vector<std::byte> bytes_of(std::initializer_list<int> codes, float scale) {
  std::vector<std::byte> bytes;
  for (const int code : codes)
    bytes.push_back(static_cast<std::byte>(code));
  bytes.resize(bytes.size() + 4);
  detail::store_le(bytes.data() + bytes.size() - 4, std::bit_cast<std::uint32_t>(scale));
  return bytes;
}

TEST(BitNetBytes, AreTwoBitsEachLowestFirstAndTheScaleAtTheEnd) {
  // -1 0 1 1 | 0 -1: codes 0 1 2 2 | 1 0, and the scale is 4 / 6.
  const std::array<float, 6> values{-1.0f, 0.0f, 1.0f, 1.0f, 0.0f, -1.0f};
  const auto weight = quantize_bitnet(values, OutIn{2, 3});
  const float scale = 4.0f / 6.0f;
  const auto expected = bytes_of({0b10100100, 0b00000001}, scale);
  EXPECT_EQ(std::vector(weight.bytes().begin(), weight.bytes().end()), expected);
  const auto view = weight.view();
  EXPECT_EQ(view.scale(), scale);
  EXPECT_EQ(view.to_floats(), (std::vector{-scale, 0.0f, scale, scale, 0.0f, -scale}));
  EXPECT_EQ(view.get(1, 2), -scale);
  EXPECT_EQ(view.digit(0, 2), 1);
  std::array<float, 3> row{};
  view.decode_row(1, row);
  EXPECT_EQ(row, (std::array{scale, 0.0f, -scale}));
}

TEST(BitNetBytes, AreAsManyAsTheTensorNeeds) {
  EXPECT_EQ(BitNet::bytes_for(OutIn{1, 256}), 68u);
  EXPECT_EQ(BitNet::bytes_for(OutIn{3, 3}), 7u);
  EXPECT_EQ(BitNet::bytes_for(OutIn{0, 8}), 4u);
  (void)error_of(ErrorCode::size_overflow, [] {
    (void)BitNet::bytes_for(OutIn{std::numeric_limits<std::size_t>::max() / 2, 3});
  });
}

TEST(BitNetQuantize, ScalesByTheMeanMagnitudeAndRoundsToTheNearestSign) {
  // The mean of the magnitudes is 1; a half rounds away from zero.
  const std::array<float, 5> values{0.5f, -0.5f, 0.49f, -3.0f, 0.51f};
  const auto weight = quantize_bitnet(values, OutIn{1, 5});
  EXPECT_FLOAT_EQ(weight.view().scale(), 1.0f);
  const auto digits = [&] {
    std::vector<int> all;
    for (std::size_t i = 0; i < 5; ++i)
      all.push_back(weight.view().digit(0, i));
    return all;
  }();
  EXPECT_EQ(digits, (std::vector{1, -1, 0, -1, 1}));
}

TEST(BitNetQuantize, KeepsTernaryMatricesWithoutZerosAsTheyAre) {
  support::Random random(3);
  std::vector<float> values(7 * 9);
  for (float& value : values)
    value = random.bits() % 2 == 0 ? 0.75f : -0.75f;
  const auto weight = quantize_bitnet(values, OutIn{7, 9});
  EXPECT_EQ(weight.view().to_floats(), values);
}

TEST(BitNetQuantize, ReadsRowsThatLieApart) {
  const auto values = support::random_values(4 * 5, 4);
  std::vector<float> spread(4 * 9, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t o = 0; o < 4; ++o)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(5 * o), 5,
                spread.begin() + static_cast<std::ptrdiff_t>(9 * o));
  const auto apart = quantize_bitnet(MatrixView<const float>{spread, 4, 5, 9});
  const auto together = quantize_bitnet(values, OutIn{4, 5});
  EXPECT_EQ(apart.view().to_floats(), together.view().to_floats());
}

TEST(BitNetQuantize, ZerosAndNothingHaveScaleZero) {
  const std::vector<float> zeros(12, -0.0f);
  const auto weight = quantize_bitnet(zeros, OutIn{3, 4});
  EXPECT_EQ(weight.view().scale(), 0.0f);
  for (const float value : weight.view().to_floats())
    EXPECT_EQ(value, 0.0f);
  EXPECT_NO_THROW(weight.view().require_valid());
  EXPECT_EQ(quantize_bitnet(std::span<const float>{}, OutIn{0, 4}).bytes().size(), 4u);
}

TEST(BitNetQuantize, ExtremesDoNotOverflow) {
  const std::vector<float> huge(8, std::numeric_limits<float>::max());
  const auto largest = quantize_bitnet(huge, OutIn{2, 4});
  EXPECT_EQ(largest.view().to_floats(), huge);
  const std::vector<float> tiny(8, 1e-45f);
  const auto least = quantize_bitnet(tiny, OutIn{2, 4});
  EXPECT_EQ(least.view().to_floats(), tiny);
}

TEST(BitNetQuantize, NamesThePlaceOfAValueThatIsNotFinite) {
  std::vector<float> values(3 * 5, 1.0f);
  values[2 * 5 + 3] = std::numeric_limits<float>::quiet_NaN();
  const auto quantize = [&] { (void)quantize_bitnet(values, OutIn{3, 5}); };
  EXPECT_TRUE(contains(error_of(ErrorCode::not_a_number, quantize), "NaN at row 2, column 3"));
  values[1 * 5 + 4] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(contains(error_of(ErrorCode::infinite, quantize), "infinity at row 1, column 4"));
  (void)error_of(ErrorCode::size_mismatch, [&] { (void)quantize_bitnet(values, OutIn{3, 4}); });
}

TEST(BitNetView, RefusesWhatIsNotItsSizeOrLiesOutside) {
  const auto bytes = bytes_of({0x55, 0x55}, 1.0f);
  const BitNetView view(bytes, OutIn{2, 4});
  EXPECT_EQ(view.bytes(), 6u);
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{5}}) {
    const std::string text = error_of(ErrorCode::size_mismatch, [&] {
      (void)BitNetView(std::span<const std::byte>(bytes).first(size), OutIn{2, 4});
    });
    EXPECT_TRUE(contains(text, "[2, 4] needs exactly 6 bytes, got " + std::to_string(size)));
  }
  (void)error_of(ErrorCode::size_mismatch, [&] { (void)BitNetView(bytes, OutIn{2, 5}); });
  (void)error_of(ErrorCode::size_mismatch, [&] { (void)BitNetWeight(bytes, OutIn{3, 4}); });
  (void)error_of(ErrorCode::size_overflow, [&] {
    (void)BitNetView(bytes, OutIn{std::numeric_limits<std::size_t>::max(), 2});
  });
  (void)error_of(ErrorCode::out_of_range, [&] { (void)view.get(2, 0); });
  (void)error_of(ErrorCode::out_of_range, [&] { (void)view.get(0, 4); });
  std::array<float, 4> row{};
  (void)error_of(ErrorCode::out_of_range, [&] { view.decode_row(2, row); });
  (void)error_of(ErrorCode::size_mismatch,
                 [&] { view.decode_row(0, std::span<float>(row).first(3)); });
}

TEST(BitNetView, TellsDamagedTensors) {
  const OutIn shape{2, 3};
  EXPECT_NO_THROW(BitNetView(bytes_of({0x55, 0x05}, 1.0f), shape).require_valid());
  // Code 3 is value (1, 1); what lies behind the last value does not count.
  const auto code_3 = bytes_of({0x55, 0xF7}, 1.0f);
  const BitNetView view(code_3, shape);
  EXPECT_EQ(view.get(1, 1), 2.0f);
  EXPECT_TRUE(contains(error_of(ErrorCode::bad_block, [&] { view.require_valid(); }),
                       "value (1, 1) has code 3"));
  for (const float scale :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto bad = bytes_of({0x55, 0x05}, scale);
    EXPECT_TRUE(contains(
        error_of(ErrorCode::bad_block, [&] { BitNetView(bad, shape).require_valid(); }), "scale"));
  }
}

TEST(BitNetGemv, IsTheProductWithTheDecodedMatrix) {
  for (const auto& [out, in] :
       {std::pair{std::size_t{5}, std::size_t{96}}, std::pair{std::size_t{3}, std::size_t{6}},
        std::pair{std::size_t{37}, std::size_t{131}}, std::pair{std::size_t{4}, std::size_t{1}},
        std::pair{std::size_t{1}, std::size_t{3}}}) {
    const auto matrix = support::random_values(out * in, 7);
    const auto x = support::random_values(in, 8);
    const auto weight = quantize_bitnet(matrix, OutIn{out, In{in}});
    const auto expected = support::product(x, weight.view().to_floats(), 1, out, in);
    std::vector<float> y(out, -1.0f);
    bitnet_gemv(x, weight.view(), y);
    for (std::size_t o = 0; o < out; ++o)
      EXPECT_NEAR(static_cast<double>(y[o]), expected[o], 1e-5) << out << "x" << in << " " << o;
  }
}

TEST(BitNetGemv, CountsCode3AsTwo) {
  // Digits 2 -1 0 1.
  const auto bytes = bytes_of({0b10010011}, 0.5f);
  const std::array<float, 4> x{1.0f, 10.0f, 100.0f, 1000.0f};
  std::array<float, 1> y{};
  bitnet_gemv(x, BitNetView(bytes, OutIn{1, 4}), y);
  EXPECT_EQ(y[0], 0.5f * (2.0f - 10.0f + 1000.0f));
}

TEST(BitNetGemv, HasTheSameBitsOnAnyThreads) {
  const std::size_t out = 101, in = 259;
  const auto weight = quantize_bitnet(support::random_values(out * in, 9), OutIn{out, In{in}});
  const auto x = support::random_values(in, 10);
  std::vector<float> alone(out), shared(out);
  bitnet_gemv(x, weight.view(), alone);
  for (const std::size_t threads : {1u, 2u, 5u}) {
    support::ThreadExecutor executor(threads);
    bitnet_gemv(x, weight.view(), shared, executor);
    EXPECT_EQ(support::bits_of(shared), support::bits_of(alone));
  }
}

TEST(BitNetGemv, ReadsAnyAddress) {
  const auto weight = quantize_bitnet(support::random_values(6 * 10, 11), OutIn{6, 10});
  std::vector<std::byte> moved(weight.bytes().size() + 1);
  std::copy(weight.bytes().begin(), weight.bytes().end(), moved.begin() + 1);
  const BitNetView view(std::span<const std::byte>(moved).subspan(1), OutIn{6, 10});
  const auto x = support::random_values(10, 12);
  std::vector<float> y(6), other(6);
  bitnet_gemv(x, weight.view(), y);
  bitnet_gemv(x, view, other);
  EXPECT_EQ(y, other);
}

TEST(BitNetGemv, RefusesOtherSizesAndWritesNothing) {
  const auto weight = quantize_bitnet(support::random_values(6 * 10, 13), OutIn{6, 10});
  std::vector<float> x(10), y(6, 7.0f);
  const auto view = weight.view();
  (void)error_of(ErrorCode::size_mismatch,
                 [&] { bitnet_gemv(std::span<const float>(x).first(9), view, y); });
  (void)error_of(ErrorCode::size_mismatch,
                 [&] { bitnet_gemv(x, view, std::span<float>(y).first(5)); });
  EXPECT_EQ(y, std::vector<float>(6, 7.0f));
}

} // namespace
