// Conversion between float and its 16-bit relatives.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <quern/detail/half.hpp>

namespace {

using quern::detail::bf16_to_float;
using quern::detail::float_to_bf16;
using quern::detail::float_to_half;
using quern::detail::half_to_float;

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// The value of a binary16 by its definition.
double by_definition(std::uint32_t half) {
  const double sign = half & 0x8000u ? -1.0 : 1.0;
  const int exponent = static_cast<int>(half >> 10 & 31u);
  const double fraction = half & 0x3ffu;
  if (exponent == 31) return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(HalfFloats, EveryPatternHasItsValue) {
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    const float value = half_to_float(static_cast<std::uint16_t>(half));
    const double expected = by_definition(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << half;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << half;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << half;
      ASSERT_EQ(float_to_half(value), half);
    }
  }
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);
  EXPECT_TRUE(std::isnan(half_to_float(0x7c01)));
}

TEST(HalfFloats, RoundToNearestEven) {
  const std::pair<std::uint32_t, unsigned> pairs[] = {
      {0x477fefff, 0x7bff}, {0x477ff000, 0x7c00}, {0x33000000, 0x0000}, {0x33000001, 0x0001},
      {0x33c00000, 0x0002}, {0x38400000, 0x0300}, {0x387fffff, 0x0400}, {0x80000000, 0x8000},
  };
  for (const auto& [bits, half] : pairs)
    EXPECT_EQ(float_to_half(float_of(bits)), half) << std::hex << bits;
  // Between each two neighbours: below, at and above the middle.
  for (std::uint32_t half = 0; half < 0x7bffu; ++half) {
    const auto low = static_cast<double>(half_to_float(static_cast<std::uint16_t>(half)));
    const auto high = static_cast<double>(half_to_float(static_cast<std::uint16_t>(half + 1)));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(float_to_half(std::nextafter(middle, -1.0f)), half);
    ASSERT_EQ(float_to_half(middle), half + (half & 1u));
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), half + 1);
    ASSERT_EQ(float_to_half(-middle), (half + (half & 1u)) | 0x8000u);
  }
}

TEST(HalfFloats, NaNStaysNaNWithItsSign) {
  EXPECT_EQ(float_to_half(float_of(0x7f800001)), 0x7e00);
  EXPECT_EQ(float_to_half(float_of(0xffc12345)), 0xfe00);
  EXPECT_EQ(float_to_half(float_of(0x7f800000)), 0x7c00);
  EXPECT_EQ(float_to_half(float_of(0xff800000)), 0xfc00);
}

TEST(HalfFloats, Bf16IsTheUpperHalfRoundedToEven) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    if (!std::isnan(value)) {
      ASSERT_EQ(float_to_bf16(value), bits);
    }
  }
  EXPECT_EQ(float_to_bf16(float_of(0x3f808000)), 0x3f80); // tie, even stays
  EXPECT_EQ(float_to_bf16(float_of(0x3f818000)), 0x3f82); // tie, odd goes up
  EXPECT_EQ(float_to_bf16(float_of(0x3f808001)), 0x3f81);
  EXPECT_EQ(float_to_bf16(float_of(0x7f7fffff)), 0x7f80); // beyond the last finite one
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(float_of(0x7f800001)))));
}

} // namespace
