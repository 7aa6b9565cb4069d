// Q8_1 and Q8_K, the encodings of activations in GGUF: their bytes, and that they are no weights.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/q8_1.hpp>
#include <quern/q8_k.hpp>

#include "support/reference_sets.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;

static_assert(!BlockFormat<Q8_1> && !BlockFormat<Q8_K>);
static_assert(Q8_1::gguf_type == 9 && Q8_1::width == 32 && Q8_1::bytes == 36);
static_assert(Q8_K::gguf_type == 15 && Q8_K::width == 256 && Q8_K::bytes == 292);

template <class B>
using Values = std::array<float, B::width>;

template <class B>
constexpr Values<B> starting_with(std::initializer_list<float> first) {
  Values<B> values{};
  std::size_t i = 0;
  for (const float value : first)
    values[i++] = value;
  return values;
}

template <class B>
std::array<int, 9> first_codes(const std::array<std::byte, B::bytes>& block) {
  std::array<int, 9> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = detail::load_i8(block.data() + 4 + i);
  return codes;
}

constexpr float below_half = 0.49999997f;

TEST(ActivationBlocks, RoundHalvesEachInItsOwnWay) {
  const auto q8_1 = Q8_1::encode(starting_with<Q8_1>(
      {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, below_half, -below_half}));
  EXPECT_EQ(first_codes<Q8_1>(q8_1.bytes()), (std::array{127, 1, 2, 3, -1, -2, -3, 0, 0}));
  EXPECT_EQ(Q8_1::decode(q8_1.bytes())[0], 127.0f);
  EXPECT_EQ(Q8_1::sum(q8_1.bytes()), 127.0f);
  const auto q8_k = Q8_K::encode(starting_with<Q8_K>(
      {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, below_half, -below_half}));
  EXPECT_EQ(first_codes<Q8_K>(q8_k.bytes()), (std::array{-127, 0, -2, -2, 0, 2, 2, 0, 0}));
  EXPECT_EQ(Q8_K::decode(q8_k.bytes())[0], 127.0f); // the scale is -1
  EXPECT_EQ(Q8_K::sum(q8_k.bytes(), 0), -127);
  EXPECT_EQ(Q8_K::sum(q8_k.bytes(), 1), 0);
}

TEST(ActivationBlocks, Q8_KHasTheBytesOfTheReference) {
  const std::filesystem::path folder = std::filesystem::path(QUERN_SHARED_DIR) / "golden/q8_K";
  const auto values = support::file_floats(folder / "encode_input.f32");
  const auto expected = support::file_bytes(folder / "encoded.bin");
  if (expected.empty()) GTEST_SKIP() << "no data of the reference in '" QUERN_SHARED_DIR "'";
  ASSERT_EQ(values.size() / Q8_K::width, expected.size() / Q8_K::bytes);
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < values.size(); at += Q8_K::width) {
    const auto block =
        Q8_K::encode(std::span<const float, Q8_K::width>{values.data() + at, Q8_K::width}).bytes();
    bytes.insert(bytes.end(), block.begin(), block.end());
  }
  EXPECT_EQ(bytes, expected);
}

template <class B>
class ActivationBlock : public testing::Test {};
using Blocks = testing::Types<Q8_1, Q8_K>;
TYPED_TEST_SUITE(ActivationBlock, Blocks, support::Names);

TYPED_TEST(ActivationBlock, DecodesToWithinHalfACode) {
  using B = TypeParam;
  const auto values = support::random_values(B::width, 5);
  const auto block = B::encode(std::span<const float, B::width>{values.data(), B::width}).bytes();
  const auto kept = B::decode(block);
  float peak = 0.0f;
  for (const float value : values)
    peak = std::max(peak, std::abs(value));
  for (std::size_t i = 0; i < B::width; ++i)
    EXPECT_NEAR(kept[i], values[i], peak / 127.0f * 0.5f + peak * 0x1p-10f) << i;
}

TYPED_TEST(ActivationBlock, StoresTheSumsOfItsCodes) {
  using B = TypeParam;
  const auto values = support::random_values(B::width, 6);
  const auto block = B::encode(std::span<const float, B::width>{values.data(), B::width}).bytes();
  if constexpr (B::width == 32) {
    double sum = 0.0;
    for (const float value : B::decode(block))
      sum += static_cast<double>(value);
    EXPECT_NEAR(static_cast<double>(B::sum(block)), sum, std::abs(sum) * 0x1p-9 + 1e-3);
  } else {
    for (std::size_t g = 0; g < 16; ++g) {
      int sum = 0;
      for (std::size_t i = 16 * g; i < 16 * g + 16; ++i)
        sum += detail::load_i8(block.data() + 4 + i);
      EXPECT_EQ(B::sum(block, g), sum);
    }
  }
}

TYPED_TEST(ActivationBlock, ZerosAndTheSmallestNumbersAreZeros) {
  using B = TypeParam;
  for (const float value : {0.0f, -0.0f, 1e-45f, -1e-39f}) {
    Values<B> values{};
    values.fill(value);
    const auto encoded = B::encode(values);
    ASSERT_TRUE(encoded.ok());
    for (const float kept : B::decode(encoded.bytes()))
      EXPECT_EQ(kept, 0.0f);
  }
}

TYPED_TEST(ActivationBlock, WorksAtCompileTime) {
  using B = TypeParam;
  static constexpr auto block = B::encode(starting_with<B>({-2.0f, 1.0f})).bytes();
  static_assert(B::decode(block)[0] == -2.0f || B::width == 32);
  const auto now = B::encode(starting_with<B>({-2.0f, 1.0f})).bytes();
  EXPECT_EQ(now, block);
}

TYPED_TEST(ActivationBlock, NotFiniteIsAFaultInItsLane) {
  using B = TypeParam;
  for (const std::size_t lane : {std::size_t{0}, B::width - 1}) {
    Values<B> values{};
    values[lane] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(B::encode(values).fault(), EncodeFault::not_a_number);
    EXPECT_EQ(B::encode(values).lane(), lane);
    values[lane] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(B::encode(values).fault(), EncodeFault::infinite);
    EXPECT_EQ(B::encode(values).lane(), lane);
  }
}

TEST(ActivationBlocks, ASumBeyondBinary16IsRefusedNotInfinite) {
  Values<Q8_1> values{};
  values.fill(3000.0f); // the sum is 96000
  EXPECT_EQ(Q8_1::encode(values).fault(), EncodeFault::scale_overflow);
  values.fill(2000.0f);
  const auto encoded = Q8_1::encode(values);
  ASSERT_TRUE(encoded.ok());
  EXPECT_NEAR(Q8_1::sum(encoded.bytes()), 64000.0f, 32.0f);
  values.fill(0.0f);
  values[7] = 1e8f; // so is the scale
  EXPECT_EQ(Q8_1::encode(values).fault(), EncodeFault::scale_overflow);
  EXPECT_EQ(Q8_1::encode(values).lane(), 7u);
  // Q8_K has scales in binary32 and sums of codes.
  Values<Q8_K> large{};
  large.fill(1e38f);
  const auto kept = Q8_K::encode(large);
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(std::isfinite(Q8_K::decode(kept.bytes())[0]));
  EXPECT_EQ(Q8_K::sum(kept.bytes(), 15), -127 * 16);
}

} // namespace
