#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
#include "support/guarded.hpp"

namespace {

template <class F>
using Block = std::array<std::byte, F::bytes_per_block>;

template <class F>
void put_half(Block<F>& block, std::size_t at, std::uint16_t half) {
  block[at] = static_cast<std::byte>(half & 255u);
  block[at + 1] = static_cast<std::byte>(half >> 8);
}

/// Bytes of every kind under scales that keep all values exact: block `k` of a series.
template <class F>
Block<F> pattern(unsigned k) {
  Block<F> block{};
  for (unsigned i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::byte>(37 * i + 11 + k * (2 * i + 29));
  if constexpr (std::is_same_v<F, quern::Q2_K>) {
    put_half<F>(block, 80, 0x3C00);
    put_half<F>(block, 82, 0x3800);
  } else if constexpr (std::is_same_v<F, quern::Q3_K>) {
    put_half<F>(block, 108, 0x3C00);
  } else if constexpr (std::is_same_v<F, quern::MXFP4>) {
    block[0] = std::byte{127};
  } else if constexpr (std::is_same_v<F, quern::NVFP4>) {
    constexpr std::array<std::uint8_t, 4> scales = {0x38, 0x40, 0x30, 0x28};
    std::memcpy(block.data(), scales.data(), scales.size());
  } else if constexpr (std::is_same_v<F, quern::IQ1_M>) {
    for (std::size_t n = 0; n < 4; ++n) // 1 as binary16, a nibble for each 16-bit number
      block[49 + 2 * n] = (block[49 + 2 * n] & std::byte{15}) |
                          static_cast<std::byte>(((0x3C00u >> (4 * n)) & 15u) << 4);
  } else {
    put_half<F>(block, 0, 0x3C00);
  }
  return block;
}

template <class F>
std::uint32_t crc_of_series(unsigned blocks) {
  std::vector<float> values;
  for (unsigned k = 0; k < blocks; ++k) {
    const auto block = F::decode(pattern<F>(k));
    values.insert(values.end(), block.begin(), block.end());
  }
  return support::crc32(std::as_bytes(std::span<const float>(values)));
}

/// Geometry, and what GGML decodes the series of patterns to: CRC-32 of the little-endian floats of
/// one block and of sixteen, sum and first values of the first block.
template <class F>
void expect_decodes(std::uint32_t type, std::size_t values, std::size_t bytes, std::uint32_t one,
                    std::uint32_t sixteen, double sum, std::array<float, 4> first) {
  SCOPED_TRACE(F::name);
  EXPECT_EQ(F::gguf_type, type);
  EXPECT_EQ(F::block_size, values);
  EXPECT_EQ(F::bytes_per_block, bytes);
  const auto decoded = F::decode(pattern<F>(0));
  double total = 0.0;
  for (const float value : decoded)
    total += value;
  EXPECT_EQ(total, sum);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(decoded[i], first[i]) << i;
  EXPECT_EQ(crc_of_series<F>(1), one);
  EXPECT_EQ(crc_of_series<F>(16), sixteen);
}

TEST(MoreFormatsDecode, SmallBlocks) {
  expect_decodes<quern::IQ4_NL>(20, 32, 18, 0x27BC646E, 0x10AC4EDF, -257, {-35, 25, 113, -49});
  expect_decodes<quern::MXFP4>(39, 32, 17, 0xA8BDDEC7, 0xC2E3897C, 12.5, {0, 3, -1, -6});
  expect_decodes<quern::NVFP4>(40, 64, 36, 0xDEE95605, 0x629E419F, -3.125, {-6, 2, -0.5f, -4});
  expect_decodes<quern::Q1_0>(41, 128, 18, 0xADACC1BA, 0xA1F5928C, 0, {1, -1, 1, -1});
  expect_decodes<quern::Q2_0>(42, 64, 18, 0xF0532C80, 0x5579E689, 30, {0, 0, 0, 0});
}

TEST(MoreFormatsDecode, SuperBlocks) {
  expect_decodes<quern::Q2_K>(10, 256, 84, 0x8D2C6BE8, 0xA5A6A1F5, 2059, {33, 0, 11, 22});
  expect_decodes<quern::Q3_K>(11, 256, 110, 0xC1029DAC, 0xC2C93507, 958, {81, -108, 27, -54});
  expect_decodes<quern::IQ4_XS>(23, 256, 136, 0x59B1032B, 0x03518347, -11005, {65, -1, -69, 83});
}

TEST(MoreFormatsDecode, CodeBooks) {
  expect_decodes<quern::IQ2_XXS>(16, 256, 66, 0xB0F68F77, 0x138FC545, 763.75,
                                 {-59.125f, 59.125f, 34.375f, -34.375f});
  expect_decodes<quern::IQ2_XS>(17, 256, 74, 0x75105875, 0x6E1D6EE4, 1490.5,
                                {-11, 34.375f, -11, -59.125f});
  expect_decodes<quern::IQ2_S>(22, 256, 82, 0xEC4C222F, 0xEA64DF71, -800.625,
                               {-145.125f, 84.375f, -27, 27});
  expect_decodes<quern::IQ3_XXS>(18, 256, 98, 0xB4D76B65, 0x3F2FE1B5, -684, {-13, 9, -7, 3});
  expect_decodes<quern::IQ3_S>(21, 256, 110, 0xA7D8230A, 0x21DDF3B7, 1456, {-81, 243, -351, -189});
  expect_decodes<quern::IQ1_S>(19, 256, 50, 0xF73C58BB, 0x6D0DC550, 20,
                               {-2.625f, 0.375f, 3.375f, 3.375f});
  expect_decodes<quern::IQ1_M>(29, 256, 56, 0xA3139F53, 0xA69B7FE5, 41,
                               {-0.875f, 6.125f, -0.875f, -0.875f});
}

TEST(MoreFormatsDecode, DenseFormatsAreBlocksOfOneValue) {
  static_assert(quern::F32::block_size == 1 && quern::F32::bytes_per_block == 4);
  static_assert(quern::F16::block_size == 1 && quern::F16::bytes_per_block == 2);
  static_assert(quern::BF16::block_size == 1 && quern::BF16::bytes_per_block == 2);
  static_assert(quern::F32::gguf_type == 0 && quern::F16::gguf_type == 1 &&
                quern::BF16::gguf_type == 30);
  // Every 16-bit number, against another way to compute it.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Block<quern::F16> block{};
    put_half<quern::F16>(block, 0, static_cast<std::uint16_t>(bits));
    const float half = quern::F16::decode(block)[0];
    const auto brain = std::bit_cast<std::uint32_t>(quern::BF16::decode(block)[0]);
    ASSERT_EQ(brain, bits << 16);
    const auto exponent = static_cast<int>((bits >> 10) & 31u);
    const auto mantissa = static_cast<double>(bits & 1023u);
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(half), mantissa != 0.0) << bits;
      ASSERT_EQ(std::isinf(half), mantissa == 0.0) << bits;
    } else {
      const double size =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
      ASSERT_EQ(static_cast<double>(std::fabs(half)), size) << bits;
    }
    ASSERT_EQ(std::signbit(half), bits >= 0x8000u) << bits;
  }
  const auto third = std::bit_cast<std::array<std::byte, 4>>(std::uint32_t{0xBEAAAAAB});
  EXPECT_EQ(quern::F32::decode(third)[0], -1.0f / 3.0f);
}

TEST(MoreFormatsDecode, PowerOfTwoScales) {
  const auto value = [](unsigned e, unsigned code) {
    Block<quern::MXFP4> block{};
    block[0] = static_cast<std::byte>(e);
    block[1] = static_cast<std::byte>(code);
    return quern::MXFP4::decode(block)[0];
  };
  EXPECT_EQ(value(127, 2), 1.0f);
  EXPECT_EQ(value(0, 1), 0x1p-128f); // a subnormal number, not 0
  EXPECT_EQ(value(0, 2), 0x1p-127f);
  EXPECT_EQ(value(1, 1), 0x1p-127f);
  EXPECT_EQ(value(254, 1), 0x1p126f);
  EXPECT_EQ(value(255, 1), 0x1p127f); // reserved for NaN elsewhere
  constexpr std::array<float, 16> e2m1 = {0,  0.5f,  1,  1.5f,  2,  3,  4,  6,
                                          -0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (unsigned code = 0; code < 16; ++code)
    EXPECT_EQ(value(127, code), e2m1[code]);
}

TEST(MoreFormatsDecode, EightBitFloatScales) {
  const auto value = [](unsigned scale) {
    Block<quern::NVFP4> block{};
    block[0] = static_cast<std::byte>(scale);
    block[4] = std::byte{2}; // means 1
    return quern::NVFP4::decode(block)[0];
  };
  EXPECT_EQ(value(0x38), 1.0f);
  EXPECT_EQ(value(0xB8), 1.0f); // bit 7 is ignored
  EXPECT_EQ(value(0x7E), 448.0f);
  EXPECT_EQ(value(0x7F), 0.0f);
  EXPECT_EQ(value(0x00), 0.0f);
  EXPECT_EQ(value(0x80), 0.0f);
  EXPECT_EQ(value(0x01), 0x1p-9f); // subnormal
  EXPECT_EQ(value(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(value(0x08), 0x1p-6f);
  for (unsigned scale = 0; scale < 0x7F; ++scale) {
    const int exponent = static_cast<int>(scale >> 3);
    const double mantissa = scale & 7u;
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0 + mantissa, exponent - 10);
    EXPECT_EQ(static_cast<double>(value(scale)), expected) << scale;
  }
}

TEST(MoreFormatsDecode, ZeroBytesOfQ3KAreNotZeros) {
  Block<quern::Q3_K> block{};
  put_half<quern::Q3_K>(block, 108, 0x3C00);
  for (const float value : quern::Q3_K::decode(block))
    EXPECT_EQ(value, 128.0f); // scale -32 times code -4
}

TEST(MoreFormatsDecode, UnusedCodesAreValuesToo) {
  Block<quern::Q2_0> block{};
  put_half<quern::Q2_0>(block, 0, 0x4000);
  block[2] = std::byte{0b11100100}; // 0 1 2 3
  const auto values = quern::Q2_0::decode(block);
  EXPECT_EQ(values[0], -2.0f);
  EXPECT_EQ(values[1], 0.0f);
  EXPECT_EQ(values[2], 2.0f);
  EXPECT_EQ(values[3], 4.0f); // never written by the encoder
}

TEST(MoreFormatsDecode, AnEvenNumberOfSignsIsNegative) {
  // Stored signs 0000001 and 0000011: the eighth sign follows from the others.
  Block<quern::IQ2_XS> block{};
  put_half<quern::IQ2_XS>(block, 0, 0x4800); // 8, so that scale 0 makes entries whole numbers
  put_half<quern::IQ2_XS>(block, 2, 1u << 9);
  put_half<quern::IQ2_XS>(block, 4, 3u << 9);
  const auto values = quern::IQ2_XS::decode(block);
  constexpr std::array<float, 16> expected = {-8, 8, 8, 8, 8, 8, 8, -8, -8, -8, 8, 8, 8, 8, 8, 8};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(values[i], expected[i]) << i;
}

/// Decoding reads the bytes of its block, at an odd address too, and nothing around them.
template <class F>
void expect_stays_inside() {
  SCOPED_TRACE(F::name);
  const auto block = pattern<F>(3);
  const auto expected = F::decode(block);
  for (const auto against : {support::Against::front, support::Against::back}) {
    const support::Guarded<std::byte> bytes(std::span<const std::byte>(block), against);
    const auto values = F::decode(bytes.span().template first<F::bytes_per_block>());
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), sizeof values), 0);
  }
}

TEST(MoreFormatsDecode, StaysInsideItsBlock) {
  expect_stays_inside<quern::Q2_K>();
  expect_stays_inside<quern::Q3_K>();
  expect_stays_inside<quern::IQ4_NL>();
  expect_stays_inside<quern::IQ4_XS>();
  expect_stays_inside<quern::IQ3_XXS>();
  expect_stays_inside<quern::IQ3_S>();
  expect_stays_inside<quern::IQ2_XXS>();
  expect_stays_inside<quern::IQ2_XS>();
  expect_stays_inside<quern::IQ2_S>();
  expect_stays_inside<quern::IQ1_S>();
  expect_stays_inside<quern::IQ1_M>();
  expect_stays_inside<quern::MXFP4>();
  expect_stays_inside<quern::NVFP4>();
  expect_stays_inside<quern::Q1_0>();
  expect_stays_inside<quern::Q2_0>();
  expect_stays_inside<quern::F16>();
}

} // namespace
