// Quantizing to the formats that have a rule of their own, and the short search of Q4_K and Q5_K:
// the rule's bytes when that is asked for, less error than the rule's otherwise.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/mxfp4.hpp>
#include <quern/formats/nvfp4.hpp>
#include <quern/formats/q1_0.hpp>
#include <quern/formats/q2_0.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/formats/q4_1.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/formats/q5_0.hpp>
#include <quern/formats/q5_1.hpp>
#include <quern/formats/q5_k.hpp>
#include <quern/formats/q8_0.hpp>
#include <quern/formats/tq1_0.hpp>
#include <quern/formats/tq2_0.hpp>
#include <quern/quantize.hpp>

#include "support/crc32.hpp"
#include "support/reference_sets.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;

const QuantizeOptions fast{.mode = QuantizeMode::fast};

template <class F>
std::vector<std::byte> packed(std::span<const float> values, std::size_t cols,
                              const QuantizeOptions& options = {}) {
  const auto weight = quantize<F>(values, OutIn{values.size() / cols, In{cols}}, options);
  return {weight.bytes().begin(), weight.bytes().end()};
}

/// Sums of four uniform numbers: bell-shaped, and exact in float.
std::vector<float> bell(std::size_t count, std::uint32_t seed) {
  support::Random random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    for (int k = 0; k < 4; ++k)
      value += random.value();
  return values;
}

template <class F>
class QuantizeRules : public testing::Test {};
using Rules = testing::Types<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0>;
TYPED_TEST_SUITE(QuantizeRules, Rules, support::Names);

/// Q8_0 has its rule alone, and nothing is better than the rule of Q1_0.
template <class F>
constexpr bool has_nothing_to_gain = std::is_same_v<F, Q8_0> || std::is_same_v<F, Q1_0>;

TYPED_TEST(QuantizeRules, FastModeWritesTheBytesOfTheReference) {
  using F = TypeParam;
  const auto sets = support::reference_sets<F>();
  if (sets.empty()) GTEST_SKIP() << "no data of the reference in '" QUERN_SHARED_DIR "'";
  for (const auto& set : sets)
    EXPECT_EQ(packed<F>(set.values, set.cols, fast), set.blocks) << set.name;
}

TYPED_TEST(QuantizeRules, BestModeLeavesLessErrorThanTheReference) {
  using F = TypeParam;
  const auto sets = support::reference_sets<F>();
  if (sets.empty()) GTEST_SKIP() << "no data of the reference in '" QUERN_SHARED_DIR "'";
  double ratios = 0.0;
  int counted = 0;
  for (const auto& set : sets) {
    const auto kept = support::decoded<F>(packed<F>(set.values, set.cols));
    const double own = std::sqrt(support::squared_error(set.values, kept));
    const double other = std::sqrt(support::squared_error(set.values, set.kept));
    EXPECT_LE(own, other) << set.name;
    if (other == 0.0) continue;
    ratios += own / other;
    ++counted;
  }
  ASSERT_GT(counted, 0);
  std::cout << F::name << ": error / reference's error, mean: " << ratios / counted << "\n";
  if constexpr (!has_nothing_to_gain<F>) {
    EXPECT_LT(ratios / counted, 0.97);
  }
}

TYPED_TEST(QuantizeRules, FastModeIsTheEncoderOfTheFormat) {
  using F = TypeParam;
  const auto values = bell(4 * F::block_size, 2);
  std::vector<std::byte> expected;
  for (std::size_t at = 0; at < values.size(); at += F::block_size) {
    const auto block =
        F::encode(std::span<const float, F::block_size>{values.data() + at, F::block_size}).bytes();
    expected.insert(expected.end(), block.begin(), block.end());
  }
  EXPECT_EQ(packed<F>(values, 2 * F::block_size, fast), expected);
}

TYPED_TEST(QuantizeRules, EveryBlockIsAtLeastAsGoodAsByTheRule) {
  using F = TypeParam;
  // Bells, the same with a few values far out, runs of one value, and values of one sign.
  auto values = bell(256 * F::block_size, 3);
  support::Random random(4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t kind = i / F::block_size % 4;
    if (kind == 1 && random.bits() % 23 == 0) values[i] *= 30.0f;
    if (kind == 2) values[i] = i % 3 == 0 ? 0.75f : 0.25f;
    if (kind == 3) values[i] = 5.0f + 0.1f * std::abs(values[i]);
  }
  const auto by_rule = support::decoded<F>(packed<F>(values, values.size(), fast));
  const auto searched = support::decoded<F>(packed<F>(values, values.size()));
  double less = 0.0;
  for (std::size_t at = 0; at < values.size(); at += F::block_size) {
    const auto part = [&](const auto& all) {
      return std::span<const float>(all).subspan(at, F::block_size);
    };
    const double rule = support::squared_error(part(values), part(by_rule));
    const double own = support::squared_error(part(values), part(searched));
    ASSERT_LE(own, rule * (1.0 + 1e-12)) << "block " << at / F::block_size;
    less += own < rule ? 1.0 : 0.0;
  }
  if constexpr (has_nothing_to_gain<F>)
    EXPECT_EQ(less, 0.0);
  else
    EXPECT_GT(less, (std::is_same_v<F, MXFP4>) ? 4.0 : 64.0);
}

TYPED_TEST(QuantizeRules, ImportanceMovesErrorToWhatMattersLess) {
  using F = TypeParam;
  if constexpr (!std::is_same_v<F, Q8_0>) {
    const std::size_t cols = 2 * F::block_size;
    const auto values = bell(16 * cols, 5);
    std::vector<float> importance(cols);
    support::Random random(6);
    for (float& weight : importance)
      weight = random.bits() % 4 == 0 ? 10.0f : 0.1f;
    const auto plain = support::decoded<F>(packed<F>(values, cols));
    const QuantizeOptions options{.importance = importance};
    const auto bytes = packed<F>(values, cols, options);
    const auto weighted = support::decoded<F>(bytes);
    // A scale of signs or a power of two leaves little room to move.
    const double limit = (std::is_same_v<F, Q1_0> || std::is_same_v<F, MXFP4>) ? 1.0 : 0.98;
    EXPECT_LT(support::squared_error(values, weighted, importance),
              limit * support::squared_error(values, plain, importance));
    EXPECT_GT(support::squared_error(values, weighted), support::squared_error(values, plain));
    // No rule knows importances: asked for them, fast mode searches as well.
    EXPECT_EQ(packed<F>(values, cols, {.mode = QuantizeMode::fast, .importance = importance}),
              bytes);
  }
}

TYPED_TEST(QuantizeRules, PowersOfTwoChangeOnlyTheScale) {
  using F = TypeParam;
  auto values = bell(4 * F::block_size, 7);
  const auto kept = support::decoded<F>(packed<F>(values, values.size()));
  for (float& value : values)
    value *= 8.0f;
  const auto kept_larger = support::decoded<F>(packed<F>(values, values.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(kept_larger[i], 8.0f * kept[i]) << i;
}

TYPED_TEST(QuantizeRules, ExtremesAreEncodedOrRefusedAsByTheRule) {
  using F = TypeParam;
  for (const float size : {1e-45f, 1e-40f, 1e-30f, 1e-8f, 1e-6f, 1.0f, 6e4f, 1e6f, 1e10f, 1e30f,
                           std::numeric_limits<float>::max()}) {
    std::array<float, F::block_size> values{};
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = size * static_cast<float>(static_cast<int>(i % 7) - 3) / 3.0f;
    const auto by_rule = F::encode(std::span<const float, F::block_size>{values});
    const auto searched = detail::encode_best<F>(values, {});
    ASSERT_EQ(searched.fault(), by_rule.fault()) << size;
    ASSERT_EQ(searched.lane(), by_rule.lane()) << size;
    if (!searched.ok()) continue;
    for (const float value : F::decode(searched.bytes()))
      ASSERT_TRUE(std::isfinite(value)) << size;
    EXPECT_LE(support::squared_error(values, F::decode(searched.bytes())),
              support::squared_error(values, F::decode(by_rule.bytes())) * (1.0 + 1e-12))
        << size;
  }
}

// The best scale of signs is the mean magnitude: no binary16 number does better.
TEST(QuantizeSigns, NoScaleIsBetterThanTheMean) {
  const auto values = bell(Q1_0::block_size, 8);
  auto block = Q1_0::encode(std::span<const float, Q1_0::block_size>{values.data(), 128}).bytes();
  const double own = support::squared_error(values, Q1_0::decode(block));
  for (unsigned bits = 0; bits < 0x7C00; ++bits) {
    block[0] = static_cast<std::byte>(bits & 0xFF);
    block[1] = static_cast<std::byte>(bits >> 8);
    ASSERT_GE(support::squared_error(values, Q1_0::decode(block)), own);
  }
}

// With two levels beside zero, all choices of codes can be tried for a few values.
TEST(QuantizeTernary, NoChoiceOfCodesIsBetter) {
  std::vector<float> values(TQ2_0::block_size);
  const std::array<float, 8> first{0.9f, -0.4f, 0.35f, -1.5f, 0.1f, 0.65f, -0.7f, 1.1f};
  std::copy(first.begin(), first.end(), values.begin());
  const double own = support::squared_error(
      values, support::decoded<TQ2_0>(packed<TQ2_0>(values, TQ2_0::block_size)));
  double least = 1e9;
  for (int choice = 0; choice < 6561; ++choice) {
    double pull = 0.0, squares = 0.0, energy = 0.0;
    for (int i = 0, rest = choice; i < 8; ++i, rest /= 3) {
      const double value = static_cast<double>(first[static_cast<std::size_t>(i)]);
      const int code = rest % 3 - 1;
      pull += value * code;
      squares += code * code;
      energy += value * value;
    }
    if (squares > 0.0) least = std::min(least, energy - pull * pull / squares);
  }
  // The scale is rounded to binary16.
  EXPECT_NEAR(own, least, 1e-5);
}

// The exponent of MXFP4 has so few values that all can be tried.
TEST(QuantizePowerOfTwoScale, NoExponentIsBetter) {
  const auto values = bell(64 * MXFP4::block_size, 9);
  const auto own = support::decoded<MXFP4>(packed<MXFP4>(values, values.size()));
  for (std::size_t at = 0; at < values.size(); at += MXFP4::block_size) {
    const auto part = std::span<const float>(values).subspan(at, MXFP4::block_size);
    double least = 1e9;
    for (int e = 100; e < 140; ++e) {
      const double unit = std::ldexp(1.0, e - 127);
      double error = 0.0;
      for (const float value : part) {
        double nearest = 1e9;
        for (const double level : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0})
          nearest =
              std::min(nearest, std::abs(std::abs(static_cast<double>(value)) - level * unit));
        error += nearest * nearest;
      }
      least = std::min(least, error);
    }
    EXPECT_NEAR(
        support::squared_error(part, std::span<const float>(own).subspan(at, MXFP4::block_size)),
        least, 1e-9);
  }
}

template <class F>
class QuantizeShortSearch : public testing::Test {};
using Short = testing::Types<Q4_K, Q5_K>;
TYPED_TEST_SUITE(QuantizeShortSearch, Short, support::Names);

TYPED_TEST(QuantizeShortSearch, LeavesHardlyMoreErrorThanTheReference) {
  using F = TypeParam;
  const auto sets = support::reference_sets<F>();
  if (sets.empty()) GTEST_SKIP() << "no data of the reference in '" QUERN_SHARED_DIR "'";
  for (const auto& set : sets) {
    const double other = std::sqrt(support::squared_error(set.values, set.kept));
    const auto error = [&](const QuantizeOptions& options) {
      return std::sqrt(support::squared_error(
          set.values, support::decoded<F>(packed<F>(set.values, set.cols, options))));
    };
    EXPECT_LE(error(fast), 1.02 * other) << set.name;
    EXPECT_LE(error({}), other) << set.name;
  }
}

TYPED_TEST(QuantizeShortSearch, IsNotTheLongOneAndKnowsImportance) {
  using F = TypeParam;
  const auto values = bell(8 * F::block_size, 10);
  const auto all = packed<F>(values, F::block_size);
  const auto some = packed<F>(values, F::block_size, fast);
  const double best = support::squared_error(values, support::decoded<F>(all));
  const double quick = support::squared_error(values, support::decoded<F>(some));
  EXPECT_LT(best, quick);
  EXPECT_LT(quick, 1.1 * best);

  std::vector<float> importance(F::block_size);
  support::Random random(11);
  for (float& weight : importance)
    weight = random.bits() % 4 == 0 ? 10.0f : 0.1f;
  const auto weighted = support::decoded<F>(
      packed<F>(values, F::block_size, {.mode = QuantizeMode::fast, .importance = importance}));
  EXPECT_LT(support::squared_error(values, weighted, importance),
            0.97 * support::squared_error(values, support::decoded<F>(some), importance));
}

TYPED_TEST(QuantizeShortSearch, IsTheSameOnEveryInstructionSet) {
  using F = TypeParam;
  auto values = bell(64 * F::block_size, 12);
  support::Random random(13);
  for (float& value : values)
    if (random.bits() % 61 == 0) value *= 7.3f;
  std::vector<float> importance(F::block_size);
  for (float& weight : importance)
    weight = 1.0f + random.value();
  for (const auto weights : {std::span<const float>(), std::span<const float>(importance)}) {
    QuantizeOptions options{.mode = QuantizeMode::fast, .importance = weights};
    const auto here = packed<F>(values, F::block_size, options);
    options.max_isa = at_most<isa::Scalar>();
    EXPECT_EQ(packed<F>(values, F::block_size, options), here);
  }
}

/// The bytes must not depend on the compiler or its flags, fused multiplication included: a stored
/// model is what its hash says. A better search may change these numbers.
template <class F>
constexpr std::uint32_t own_bytes() {
  if constexpr (std::is_same_v<F, Q4_0>) return 0xFEF538AA;
  if constexpr (std::is_same_v<F, Q4_1>) return 0xB194E83F;
  if constexpr (std::is_same_v<F, Q5_0>) return 0xA5CE22DA;
  if constexpr (std::is_same_v<F, Q5_1>) return 0xC9D0EF50;
  if constexpr (std::is_same_v<F, TQ1_0>) return 0x7A7E627E;
  if constexpr (std::is_same_v<F, TQ2_0>) return 0x2E357510;
  if constexpr (std::is_same_v<F, MXFP4>) return 0x8CC3BF4E;
  if constexpr (std::is_same_v<F, NVFP4>) return 0xFAF6DCA7;
  if constexpr (std::is_same_v<F, Q1_0>) return 0xC86C5A41;
  if constexpr (std::is_same_v<F, Q2_0>) return 0xB24715A0;
  if constexpr (std::is_same_v<F, Q4_K>) return 0x394E3543;
  if constexpr (std::is_same_v<F, Q5_K>) return 0xE77E31BA;
}

template <class F>
class QuantizeBytes : public testing::Test {};
using Own =
    testing::Types<Q4_0, Q4_1, Q5_0, Q5_1, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0, Q4_K, Q5_K>;
TYPED_TEST_SUITE(QuantizeBytes, Own, support::Names);

TYPED_TEST(QuantizeBytes, AreTheSameEverywhere) {
  using F = TypeParam;
  auto values = bell(64 * F::block_size, 21);
  support::Random random(22);
  for (float& value : values)
    if (random.bits() % 61 == 0) value *= 7.3f;
  std::vector<float> importance(F::block_size);
  for (float& weight : importance)
    weight = 1.0f + random.value();
  std::vector<std::byte> all;
  for (const QuantizeMode mode : {QuantizeMode::best, QuantizeMode::fast})
    for (const auto weights : {std::span<const float>(), std::span<const float>(importance)}) {
      const auto bytes = packed<F>(values, F::block_size, {.mode = mode, .importance = weights});
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  EXPECT_EQ(support::crc32(all), own_bytes<F>()) << std::hex << support::crc32(all);
}

} // namespace
