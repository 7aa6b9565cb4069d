#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <quern/block_format.hpp>
#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/formats/iq1_m.hpp>
#include <quern/formats/iq1_s.hpp>
#include <quern/formats/iq2_s.hpp>
#include <quern/formats/iq2_xs.hpp>
#include <quern/formats/iq2_xxs.hpp>
#include <quern/formats/iq3_s.hpp>
#include <quern/formats/iq3_xxs.hpp>
#include <quern/formats/iq4_nl.hpp>
#include <quern/formats/iq4_xs.hpp>
#include <quern/formats/mxfp4.hpp>
#include <quern/formats/nvfp4.hpp>
#include <quern/formats/q1_0.hpp>
#include <quern/formats/q2_0.hpp>
#include <quern/formats/q2_k.hpp>
#include <quern/formats/q3_k.hpp>

#include "support/crc32.hpp"
#include "support/errors.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using quern::EncodeFault;

template <class F>
using Values = std::array<float, F::block_size>;

/// A scale that reaches as far as float does, or that saturates: nothing finite overflows.
template <class F>
constexpr bool takes_any_finite =
    std::is_same_v<F, quern::F32> || std::is_same_v<F, quern::MXFP4> ||
    std::is_same_v<F, quern::NVFP4>;
/// Numbers far below the least binary16 survive.
template <class F>
constexpr bool keeps_tiny = std::is_same_v<F, quern::F32> || std::is_same_v<F, quern::BF16> ||
                            std::is_same_v<F, quern::MXFP4>;

template <class F>
class MoreFormatsEncode : public testing::Test {};

using Every = testing::Types<quern::F32, quern::F16, quern::Q2_K, quern::Q3_K, quern::IQ2_XXS,
                             quern::IQ2_XS, quern::IQ3_XXS, quern::IQ1_S, quern::IQ4_NL,
                             quern::IQ3_S, quern::IQ2_S, quern::IQ4_XS, quern::IQ1_M, quern::BF16,
                             quern::MXFP4, quern::NVFP4, quern::Q1_0, quern::Q2_0>;
TYPED_TEST_SUITE(MoreFormatsEncode, Every, support::Names);

/// x[i] = ((7919 i mod 2001) - 1000) / 1000
std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<int>(7919 * i % 2001) - 1000) / 1000.0f;
  return values;
}

double squared_error(std::span<const float> values, std::span<const float> kept) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double miss = static_cast<double>(kept[i]) - static_cast<double>(values[i]);
    sum += miss * miss;
  }
  return sum;
}

template <class F>
std::uint32_t crc_of_bytes(std::span<const float> values) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < values.size(); at += F::block_size) {
    const auto block = F::encode(values.subspan(at).template first<F::block_size>()).bytes();
    bytes.insert(bytes.end(), block.begin(), block.end());
  }
  return support::crc32(bytes);
}

// --- values at the edges

TYPED_TEST(MoreFormatsEncode, ZerosStayZero) {
  using F = TypeParam;
  for (const float zero : {0.0f, -0.0f}) {
    Values<F> values{};
    values.fill(zero);
    const auto encoded = F::encode(values);
    ASSERT_TRUE(encoded.ok());
    for (const float value : F::decode(encoded.bytes()))
      EXPECT_EQ(value, 0.0f);
    EXPECT_EQ(encoded.bytes(), F::encode(values).bytes());
  }
}

TEST(MoreFormatsEncodeBytes, OfZeros) {
  const auto all_zero = [](const auto& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  };
  EXPECT_TRUE(all_zero(quern::Q2_K::encode(Values<quern::Q2_K>{}).bytes()));
  EXPECT_TRUE(all_zero(quern::Q3_K::encode(Values<quern::Q3_K>{}).bytes()));
  const auto block = quern::IQ4_NL::encode(Values<quern::IQ4_NL>{}).bytes();
  EXPECT_TRUE(block[0] == std::byte{0} && block[1] == std::byte{0});
  for (std::size_t i = 2; i < block.size(); ++i)
    EXPECT_EQ(block[i], std::byte{0x88}); // the level nearest to zero
}

TYPED_TEST(MoreFormatsEncode, NumbersTooSmallForTheScaleBecomeZero) {
  using F = TypeParam;
  if constexpr (keeps_tiny<F>) {
    GTEST_SKIP() << F::name << " keeps numbers this small";
  } else {
    for (const float unit : {1e-30f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
      Values<F> values{};
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = unit * static_cast<float>(static_cast<int>(i % 7) - 3);
      const auto encoded = F::encode(values);
      ASSERT_TRUE(encoded.ok());
      for (const float value : F::decode(encoded.bytes()))
        EXPECT_EQ(value, 0.0f);
    }
  }
}

TYPED_TEST(MoreFormatsEncode, EverySizeOfNumbersFailsOrStaysFinite) {
  using F = TypeParam;
  support::Random random(9);
  bool overflowed = false;
  for (int exponent = -149; exponent <= 127; ++exponent) {
    Values<F> values{};
    for (float& value : values)
      value = std::ldexp(random.value(), exponent);
    values[0] = std::ldexp(1.0f, exponent);
    const auto encoded = F::encode(values);
    if (!encoded.ok()) {
      EXPECT_EQ(encoded.fault(), EncodeFault::scale_overflow);
      EXPECT_LT(encoded.lane(), F::block_size);
      overflowed = true;
      continue;
    }
    EXPECT_FALSE(overflowed) << "a larger number fits again, exponent " << exponent;
    const auto kept = F::decode(encoded.bytes());
    double energy = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(kept[i])) << exponent;
      energy += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    EXPECT_LE(squared_error(values, kept), energy) << exponent;
  }
  // BF16 reaches as far as these numbers do.
  constexpr bool can_overflow = !(takes_any_finite<F> || std::is_same_v<F, quern::BF16>);
  EXPECT_EQ(overflowed, can_overflow);
}

TYPED_TEST(MoreFormatsEncode, NamesTheLaneThatCantBeEncoded) {
  using F = TypeParam;
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t lane : {std::size_t{0}, F::block_size / 2, F::block_size - 1}) {
    for (const float bad : {nan, -nan, infinity, -infinity}) {
      Values<F> values{};
      values.fill(1.0f);
      values[lane] = bad;
      const auto encoded = F::encode(values);
      EXPECT_FALSE(encoded.ok());
      EXPECT_EQ(encoded.lane(), lane);
      const bool is_nan = std::isnan(bad);
      EXPECT_EQ(encoded.fault(), is_nan ? EncodeFault::not_a_number : EncodeFault::infinite);
      const std::string message =
          support::error_of(is_nan ? quern::ErrorCode::not_a_number : quern::ErrorCode::infinite,
                            [&] { static_cast<void>(encoded.bytes()); });
      EXPECT_TRUE(support::contains(message, "lane " + std::to_string(lane)));
    }
  }
}

TYPED_TEST(MoreFormatsEncode, NamesTheLaneThatNeedsTooLargeAScale) {
  using F = TypeParam;
  if constexpr (takes_any_finite<F>) {
    GTEST_SKIP() << F::name << " has no scale that a finite number overflows";
  } else {
    Values<F> values{};
    values.fill(1.0f);
    const std::size_t lane = F::block_size / 3;
    values[lane] = std::is_same_v<F, quern::BF16> ? std::numeric_limits<float>::max() : -1e30f;
    const auto encoded = F::encode(values);
    EXPECT_EQ(encoded.fault(), EncodeFault::scale_overflow);
    EXPECT_EQ(encoded.lane(), lane);
  }
}

TEST(MoreFormatsEncodeLimits, OfScales) {
  // 65519 is the largest whole number that binary16 rounds to a finite one.
  EXPECT_TRUE(quern::F16::encode(std::array{65519.0f}).ok());
  EXPECT_FALSE(quern::F16::encode(std::array{65520.0f}).ok());
  EXPECT_TRUE(quern::BF16::encode(std::array{0x1.FEp127f}).ok());
  EXPECT_FALSE(quern::BF16::encode(std::array{0x1.FFp127f}).ok());
  Values<quern::Q2_0> two{};
  two[5] = -65519.0f;
  EXPECT_TRUE(quern::Q2_0::encode(two).ok());
  two[5] = -65520.0f;
  EXPECT_EQ(quern::Q2_0::encode(two).lane(), 5u);
  Values<quern::Q1_0> one{};
  one.fill(65519.0f);
  EXPECT_TRUE(quern::Q1_0::encode(one).ok());
  one.fill(65520.0f);
  EXPECT_FALSE(quern::Q1_0::encode(one).ok());
  // Numbers below the least scale of MXFP4 get that scale: 2^-127 is its code 2.
  Values<quern::MXFP4> tiny{};
  tiny[3] = 0x1p-127f;
  const auto block = quern::MXFP4::encode(tiny).bytes();
  EXPECT_EQ(block[0], std::byte{0});
  EXPECT_EQ(quern::MXFP4::decode(block)[3], 0x1p-127f);
}

// --- formats whose bytes are a rule

TEST(MoreFormatsEncodeBytes, MatchGgml) {
  const auto values = ramp(512);
  EXPECT_EQ(crc_of_bytes<quern::Q2_0>(values), 0x9B24332Fu);
  EXPECT_EQ(crc_of_bytes<quern::Q1_0>(values), 0x7DFFCA07u);
  EXPECT_EQ(crc_of_bytes<quern::MXFP4>(values), 0x8976EDB9u);
  EXPECT_EQ(crc_of_bytes<quern::NVFP4>(values), 0x14F1B2C1u);
}

TEST(MoreFormatsEncodeBytes, DenseFormatsRoundToNearestEven) {
  const auto half = [](float value) {
    const auto bytes = quern::F16::encode(std::array{value}).bytes();
    return std::to_integer<unsigned>(bytes[0]) | (std::to_integer<unsigned>(bytes[1]) << 8);
  };
  EXPECT_EQ(half(1.0f), 0x3C00u);
  EXPECT_EQ(half(-0.0f), 0x8000u);
  EXPECT_EQ(half(0x1.002p0f), 0x3C00u); // halfway, down to even
  EXPECT_EQ(half(0x1.006p0f), 0x3C02u); // halfway, up to even
  EXPECT_EQ(half(0x1p-25f), 0x0000u);
  EXPECT_EQ(half(0x1.000002p-25f), 0x0001u);
  const auto brain = [](float value) {
    const auto bytes = quern::BF16::encode(std::array{value}).bytes();
    return std::to_integer<unsigned>(bytes[0]) | (std::to_integer<unsigned>(bytes[1]) << 8);
  };
  EXPECT_EQ(brain(1.0f), 0x3F80u);
  EXPECT_EQ(brain(0x1.01p0f), 0x3F80u);
  EXPECT_EQ(brain(0x1.03p0f), 0x3F82u);
  EXPECT_EQ(brain(0x1p-149f), 0x0000u);
  for (const float value : {-0.0f, 0x1p-149f, 3.25f, std::numeric_limits<float>::max()}) {
    const auto kept = quern::F32::decode(quern::F32::encode(std::array{value}).bytes())[0];
    EXPECT_EQ(std::memcmp(&kept, &value, sizeof value), 0);
  }
}

TEST(MoreFormatsEncodeBytes, Mxfp4ScaleIsTheRoundedLogarithm) {
  const auto scale = [](float largest) {
    Values<quern::MXFP4> values{};
    values[31] = -largest;
    return std::to_integer<int>(quern::MXFP4::encode(values).bytes()[0]) - 127 + 2;
  };
  EXPECT_EQ(scale(1.0f), 0);
  EXPECT_EQ(scale(0x1.FFFFFEp-1f), -1); // log2 differs from 0 by half a step of float and more
  EXPECT_EQ(scale(0x1.FFFFFEp9f), 10);  // log2 is 10 when rounded to float
  EXPECT_EQ(scale(0x1.FFFFF4p9f), 9);
  for (float value = 0x1.3p-100f; value < 1e30f; value *= 1.7f)
    EXPECT_EQ(scale(value), static_cast<int>(std::floor(std::log2(value)))) << value;
}

} // namespace
