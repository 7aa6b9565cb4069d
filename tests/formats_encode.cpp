// Encoders at the edges of their rules: zeros, the smallest numbers, halves, scales that overflow,
// and checksums of a fixed input, as the reference implementation gives them.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats.hpp>

#include "support/crc32.hpp"
#include "support/typed.hpp"

namespace {

using namespace quern;

template <class F>
constexpr std::array<float, F::block_size> filled(float value) {
  std::array<float, F::block_size> values{};
  values.fill(value);
  return values;
}

/// The values, and zeros behind them.
template <class F>
constexpr std::array<float, F::block_size> starting_with(std::initializer_list<float> first) {
  std::array<float, F::block_size> values{};
  std::ranges::copy(first, values.begin());
  return values;
}

template <class F>
constexpr std::array<std::byte, F::bytes_per_block>
encoded(const std::array<float, F::block_size>& values) {
  return F::encode(std::span<const float, F::block_size>{values}).bytes();
}

template <class F>
constexpr std::array<float, F::block_size>
decoded(const std::array<std::byte, F::bytes_per_block>& block) {
  return F::decode(std::span<const std::byte, F::bytes_per_block>{block});
}

constexpr int at(std::span<const std::byte> bytes, std::size_t i) {
  return std::to_integer<int>(bytes[i]);
}

/// The bytes of `first`, and `rest` up to the end.
template <class F>
std::array<std::byte, F::bytes_per_block> block_of(std::initializer_list<int> first, int rest) {
  std::array<std::byte, F::bytes_per_block> block{};
  block.fill(static_cast<std::byte>(rest));
  std::ranges::transform(first, block.begin(), [](int b) { return static_cast<std::byte>(b); });
  return block;
}

template <class... F>
constexpr bool work_at_compile_time() {
  return ((decoded<F>(encoded<F>(filled<F>(0.0f)))[0] == 0.0f) && ...);
}
static_assert(work_at_compile_time<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, TQ1_0, TQ2_0>());
static_assert(decoded<Q4_0>(encoded<Q4_0>(starting_with<Q4_0>({-8, 7, 1})))[1] == 7.0f);
// The searches of the K formats take more steps than a compiler allows by default for more than
// one block; a single one is within the limits.
static_assert(decoded<Q6_K>(encoded<Q6_K>(filled<Q6_K>(0.0f)))[255] == 0.0f);
static_assert(decoded<Q4_K>(encoded<Q4_K>(filled<Q4_K>(0.0f)))[255] == 0.0f);
static_assert(decoded<Q5_K>(encoded<Q5_K>(filled<Q5_K>(0.0f)))[255] == 0.0f);

TEST(FormatsEncode, ZerosGiveTheBytesOfTheReference) {
  for (const float zero : {0.0f, -0.0f}) {
    EXPECT_EQ(encoded<Q4_0>(filled<Q4_0>(zero)), block_of<Q4_0>({0x00, 0x80}, 0x88));
    EXPECT_EQ(encoded<Q5_0>(filled<Q5_0>(zero)),
              block_of<Q5_0>({0x00, 0x80, 0xff, 0xff, 0xff, 0xff}, 0));
    EXPECT_EQ(encoded<Q8_0>(filled<Q8_0>(zero)), block_of<Q8_0>({}, 0));
    EXPECT_EQ(encoded<Q2_K>(filled<Q2_K>(zero)), block_of<Q2_K>({}, 0));
    EXPECT_EQ(encoded<Q3_K>(filled<Q3_K>(zero)), block_of<Q3_K>({}, 0));
    EXPECT_EQ(encoded<Q4_K>(filled<Q4_K>(zero)), block_of<Q4_K>({}, 0));
    EXPECT_EQ(encoded<Q5_K>(filled<Q5_K>(zero)), block_of<Q5_K>({}, 0));
    EXPECT_EQ(encoded<Q6_K>(filled<Q6_K>(zero)), block_of<Q6_K>({}, 0));
  }
  EXPECT_EQ(encoded<Q4_1>(filled<Q4_1>(0.0f)), block_of<Q4_1>({}, 0));
  EXPECT_EQ(encoded<Q5_1>(filled<Q5_1>(0.0f)), block_of<Q5_1>({}, 0));
  EXPECT_EQ(encoded<Q4_1>(filled<Q4_1>(-0.0f)), block_of<Q4_1>({0, 0, 0x00, 0x80}, 0));
  EXPECT_EQ(encoded<Q5_1>(filled<Q5_1>(-0.0f)), block_of<Q5_1>({0, 0, 0x00, 0x80}, 0));
}

template <class F>
class FormatEncode : public testing::Test {};
TYPED_TEST_SUITE(FormatEncode, support::EachFormat, support::Names);

TYPED_TEST(FormatEncode, NumbersTooSmallForAScaleBecomeZero) {
  using F = TypeParam;
  if constexpr (F::block_size == 1) {
    GTEST_SKIP() << F::name << " has no scale";
  } else {
    for (const float unit : {1e-30f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
      std::array<float, F::block_size> values{};
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = unit * static_cast<float>(static_cast<int>(i % 7) - 3);
      const auto result = decoded<F>(encoded<F>(values));
      // MXFP4 has exponents down there; its smallest step is 2^-127 and its smallest value half.
      for (const float value : result)
        EXPECT_LE(std::abs(value), std::abs(3 * unit) + 0x1p-127f) << F::name << " of " << unit;
    }
  }
}

TYPED_TEST(FormatEncode, HugeNumbersFailOrStayFinite) {
  using F = TypeParam;
  if constexpr (F::block_size == 1) {
    GTEST_SKIP() << F::name << " has no scale";
  } else {
    for (const float huge : {1e6f, 524160.0f, 8321040.0f, 1e30f, 3e38f}) {
      for (const float sign : {1.0f, -1.0f}) {
        auto values = filled<F>(0.25f);
        values[F::block_size - 3] = sign * huge;
        const auto result = F::encode(std::span<const float, F::block_size>{values});
        if (!result.ok()) {
          EXPECT_EQ(result.fault(), EncodeFault::scale_overflow) << F::name << " of " << huge;
          EXPECT_EQ(result.lane(), F::block_size - 3) << F::name << " of " << huge;
          continue;
        }
        for (const float value : decoded<F>(result.bytes()))
          EXPECT_TRUE(std::isfinite(value)) << F::name << " of " << huge;
      }
    }
  }
}

TEST(FormatsEncode, TheLargestScaleIsTheLastFiniteHalf) {
  const auto q4_0 = encoded<Q4_0>(starting_with<Q4_0>({-524159.0f}));
  EXPECT_EQ(at(q4_0, 0), 0xff);
  EXPECT_EQ(at(q4_0, 1), 0x7b);
  const auto beyond = starting_with<Q4_0>({0.0f, -524160.0f});
  const auto refused = Q4_0::encode(std::span<const float, 32>{beyond});
  EXPECT_EQ(refused.fault(), EncodeFault::scale_overflow);
  EXPECT_EQ(refused.lane(), 1u);
  EXPECT_THROW((void)refused.bytes(), Error);
  const auto q8_0 = encoded<Q8_0>(starting_with<Q8_0>({8319008.0f}));
  EXPECT_EQ(at(q8_0, 0), 0xff);
  EXPECT_EQ(at(q8_0, 1), 0x7b);
  const auto q8_beyond = starting_with<Q8_0>({8321040.0f});
  EXPECT_EQ(Q8_0::encode(std::span<const float, 32>{q8_beyond}).fault(),
            EncodeFault::scale_overflow);
}

TEST(FormatsEncode, Q8_0RoundsHalvesAwayFromZero) {
  const auto block = encoded<Q8_0>(
      starting_with<Q8_0>({127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, -0.49999997f}));
  const auto expected =
      block_of<Q8_0>({0x00, 0x3c, 127, 1, 2, 3, 0xff, 0xfe, 0xfd, 0, 0}, 0); // d = 1
  EXPECT_EQ(block, expected);
}

TEST(FormatsEncode, Q4_0RoundsOnItsShiftedCodes) {
  const auto block =
      encoded<Q4_0>(starting_with<Q4_0>({-8, 0.5f, 1.5f, -0.5f, -1.5f, 7, 7.5f, 7.4999995f}));
  EXPECT_EQ(at(block, 0), 0x00);
  EXPECT_EQ(at(block, 1), 0x3c);
  const int codes[] = {0, 9, 10, 8, 7, 15, 15, 15};
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(at(block, 2 + i) & 15, codes[i]) << "value " << i;
}

TEST(FormatsEncode, Q4_0TakesTheSignOfTheFirstLargestValue) {
  auto values = filled<Q4_0>(0.5f);
  values[0] = 1;
  values[1] = -1;
  auto block = encoded<Q4_0>(values);
  EXPECT_EQ(at(block, 0), 0x00);
  EXPECT_EQ(at(block, 1), 0xb0);
  EXPECT_EQ(decoded<Q4_0>(block)[0], 1.0f);
  EXPECT_EQ(decoded<Q4_0>(block)[1], -0.875f);
  std::swap(values[0], values[1]);
  block = encoded<Q4_0>(values);
  EXPECT_EQ(at(block, 0), 0x00);
  EXPECT_EQ(at(block, 1), 0x30);
  EXPECT_EQ(decoded<Q4_0>(block)[0], -1.0f);
  EXPECT_EQ(decoded<Q4_0>(block)[1], 0.875f);
}

/// What the reference makes of 512 fixed values: the bytes, and the error relative to the values.
struct Known {
  std::string_view format;
  std::uint32_t crc;
  double relative_error;
  bool same_bytes; ///< the rule leaves no choice
};
constexpr Known known[] = {
    {"Q4_0", 0x8f1e5f6d, 0.0666, true},    {"Q4_1", 0x6a62b61b, 0.0610, true},
    {"Q5_0", 0xb0ab5ab3, 0.0318, true},    {"Q5_1", 0x1b2d3493, 0.0308, true},
    {"Q8_0", 0x62ce71ae, 0.0038, true},    {"Q2_K", 0xd58f85ce, 0.230, false},
    {"Q3_K", 0xb97b521b, 0.131, false},    {"Q4_K", 0x26e8555b, 0.0604, false},
    {"Q5_K", 0xadb4a492, 0.0305, false},   {"Q6_K", 0x245dbd25, 0.0142, false},
    {"IQ4_NL", 0xb74dc7aa, 0.0712, false}, {"MXFP4", 0x8976edb9, 0.141, false},
    {"TQ1_0", 0x40cf54d3, 0, true},        {"TQ2_0", 0xc9e336ff, 0, true},
    {"Q2_0", 0x9b24332f, 0, true},         {"Q1_0", 0x7dffca07, 0, true},
};

TYPED_TEST(FormatEncode, FixedValuesAreEncodedAsWellAsTheReference) {
  using F = TypeParam;
  const auto* expected = std::ranges::find(known, F::name, &Known::format);
  if (expected == std::end(known)) GTEST_SKIP() << "no figures for " << F::name;
  std::vector<float> values(512);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(7919 * i % 2001) - 1000) / 1000.0f;
  std::vector<std::byte> bytes;
  double error = 0;
  double square = 0;
  for (std::size_t first = 0; first < values.size(); first += F::block_size) {
    std::array<float, F::block_size> block{};
    std::copy_n(values.data() + first, F::block_size, block.data());
    const auto packed = encoded<F>(block);
    bytes.insert(bytes.end(), packed.begin(), packed.end());
    const auto result = decoded<F>(packed);
    for (std::size_t i = 0; i < F::block_size; ++i) {
      error += std::pow(static_cast<double>(result[i]) - static_cast<double>(block[i]), 2);
      square += std::pow(static_cast<double>(block[i]), 2);
    }
  }
  if (expected->same_bytes) {
    EXPECT_EQ(support::crc32(bytes), expected->crc);
  }
  if (expected->relative_error > 0) {
    EXPECT_LE(std::sqrt(error / square), expected->relative_error * 1.01) << F::name;
  }
}

} // namespace
