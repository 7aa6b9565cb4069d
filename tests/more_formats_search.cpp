#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/iq1_m.hpp>
#include <quern/formats/iq1_s.hpp>
#include <quern/formats/iq2_s.hpp>
#include <quern/formats/iq2_xs.hpp>
#include <quern/formats/iq2_xxs.hpp>
#include <quern/formats/iq3_s.hpp>
#include <quern/formats/iq3_xxs.hpp>
#include <quern/formats/iq4_nl.hpp>
#include <quern/formats/iq4_xs.hpp>
#include <quern/formats/q2_k.hpp>
#include <quern/formats/q3_k.hpp>

#include "support/crc32.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

/// The searched formats.
template <class F>
class MoreFormatsSearch : public testing::Test {};

using Searched = testing::Types<quern::Q2_K, quern::Q3_K, quern::IQ2_XXS, quern::IQ2_XS,
                                quern::IQ3_XXS, quern::IQ1_S, quern::IQ4_NL, quern::IQ3_S,
                                quern::IQ2_S, quern::IQ4_XS, quern::IQ1_M>;
TYPED_TEST_SUITE(MoreFormatsSearch, Searched, support::Names);

/// x[i] = ((7919 i mod 2001) - 1000) / 1000
std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<int>(7919 * i % 2001) - 1000) / 1000.0f;
  return values;
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
std::vector<std::byte> encode_all(std::span<const float> values,
                                  std::span<const float> importance = {}) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < values.size(); at += F::block_size) {
    const std::span<const float, F::block_size> block{values.data() + at, F::block_size};
    const auto encoded =
        F::encode(block, importance.empty() ? importance : importance.subspan(at, F::block_size));
    bytes.insert(bytes.end(), encoded.bytes().begin(), encoded.bytes().end());
  }
  return bytes;
}

double squared_error(std::span<const float> values, std::span<const float> kept,
                     std::span<const float> weights = {}) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double miss = static_cast<double>(kept[i]) - static_cast<double>(values[i]);
    sum += miss * miss * (weights.empty() ? 1.0 : static_cast<double>(weights[i]));
  }
  return sum;
}

template <class F>
double relative_error(std::span<const float> values) {
  const auto kept = support::decoded<F>(encode_all<F>(values));
  return std::sqrt(squared_error(values, kept) /
                   squared_error(values, std::vector<float>(values.size())));
}

/// The relative error that GGML's quantizers leave, importance all one, for ramp(768) and
/// bell(768, 5).
template <class F>
constexpr std::array<double, 2> ggml_error() {
  if constexpr (std::is_same_v<F, quern::Q2_K>) return {0.22309, 0.25318};
  if constexpr (std::is_same_v<F, quern::Q3_K>) return {0.12551, 0.13406};
  if constexpr (std::is_same_v<F, quern::IQ4_NL>) return {0.06821, 0.07352};
  if constexpr (std::is_same_v<F, quern::IQ4_XS>) return {0.06911, 0.07406};
  if constexpr (std::is_same_v<F, quern::IQ2_XXS>) return {0.37089, 0.34842};
  if constexpr (std::is_same_v<F, quern::IQ2_XS>) return {0.30511, 0.30030};
  if constexpr (std::is_same_v<F, quern::IQ2_S>) return {0.20249, 0.24276};
  if constexpr (std::is_same_v<F, quern::IQ3_XXS>) return {0.22860, 0.18758};
  if constexpr (std::is_same_v<F, quern::IQ3_S>) return {0.15147, 0.13148};
  if constexpr (std::is_same_v<F, quern::IQ1_S>) return {0.38607, 0.45629};
  if constexpr (std::is_same_v<F, quern::IQ1_M>) return {0.33925, 0.43738};
}

TYPED_TEST(MoreFormatsSearch, LeavesLessErrorThanGgml) {
  using F = TypeParam;
  EXPECT_LT(relative_error<F>(ramp(768)), ggml_error<F>()[0]);
  EXPECT_LT(relative_error<F>(bell(768, 5)), ggml_error<F>()[1]);
}

TYPED_TEST(MoreFormatsSearch, PowersOfTwoChangeOnlyTheScale) {
  using F = TypeParam;
  auto values = bell(2 * F::block_size, 11);
  const auto kept = support::decoded<F>(encode_all<F>(values));
  for (float& value : values)
    value *= 8.0f;
  const auto kept_larger = support::decoded<F>(encode_all<F>(values));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(kept_larger[i], 8.0f * kept[i]) << i;
}

TYPED_TEST(MoreFormatsSearch, ImportanceMovesErrorToWhatMattersLess) {
  using F = TypeParam;
  const auto values = bell(8 * F::block_size, 3);
  std::vector<float> importance(values.size());
  support::Random random(4);
  for (float& weight : importance)
    weight = random.bits() % 4 == 0 ? 10.0f : 0.1f;
  const auto plain = support::decoded<F>(encode_all<F>(values));
  const auto weighted = support::decoded<F>(encode_all<F>(values, importance));
  EXPECT_LT(squared_error(values, weighted, importance),
            0.97 * squared_error(values, plain, importance));
  EXPECT_GE(squared_error(values, weighted), squared_error(values, plain));
}

TYPED_TEST(MoreFormatsSearch, ImportanceThatSaysNothingChangesNothing) {
  using F = TypeParam;
  const auto values = bell(2 * F::block_size, 6);
  const auto plain = encode_all<F>(values);
  EXPECT_EQ(encode_all<F>(values, std::vector<float>(values.size(), 0.0f)), plain);
  EXPECT_EQ(encode_all<F>(values, std::vector<float>(values.size(), 1.0f)), plain);
}

TYPED_TEST(MoreFormatsSearch, ValuesWithoutImportanceAreStillKeptInPart) {
  using F = TypeParam;
  const auto values = bell(4 * F::block_size, 8);
  // Only one value in 64 matters, which sets the scale of the others too. Levels of one bit are
  // coarse then, but they must not be picked at random either.
  std::vector<float> importance(values.size());
  for (std::size_t i = 0; i < importance.size(); i += 64)
    importance[i] = 1.0f;
  const auto kept = support::decoded<F>(encode_all<F>(values, importance));
  for (const float value : kept)
    ASSERT_TRUE(std::isfinite(value));
  const double energy = squared_error(values, std::vector<float>(values.size()));
  EXPECT_LT(squared_error(values, kept), F::bits_per_weight < 2.0 ? 2.0 * energy : energy);
}

/// The formats whose search is among these headers alone.
template <class F>
class MoreFormatsBytes : public testing::Test {};

using Own = testing::Types<quern::Q3_K, quern::IQ2_XXS, quern::IQ2_XS, quern::IQ3_XXS, quern::IQ1_S,
                           quern::IQ4_NL, quern::IQ3_S, quern::IQ2_S, quern::IQ4_XS, quern::IQ1_M>;
TYPED_TEST_SUITE(MoreFormatsBytes, Own, support::Names);

/// The bytes must not depend on the compiler or its flags, fused multiplication included: a stored
/// model is what its hash says. A better search may change these numbers.
template <class F>
constexpr std::uint32_t own_bytes() {
  if constexpr (std::is_same_v<F, quern::Q3_K>) return 0x239E4E29;
  if constexpr (std::is_same_v<F, quern::IQ2_XXS>) return 0x4C0E722A;
  if constexpr (std::is_same_v<F, quern::IQ2_XS>) return 0x448CD4E5;
  if constexpr (std::is_same_v<F, quern::IQ3_XXS>) return 0x84DA6A8E;
  if constexpr (std::is_same_v<F, quern::IQ1_S>) return 0x3C689E18;
  if constexpr (std::is_same_v<F, quern::IQ4_NL>) return 0x2DD9E5B4;
  if constexpr (std::is_same_v<F, quern::IQ3_S>) return 0x202D3C74;
  if constexpr (std::is_same_v<F, quern::IQ2_S>) return 0x26B8D1FD;
  if constexpr (std::is_same_v<F, quern::IQ4_XS>) return 0x9759CBE8;
  if constexpr (std::is_same_v<F, quern::IQ1_M>) return 0x33BD1257;
}

TYPED_TEST(MoreFormatsBytes, AreTheSameBytesEverywhere) {
  using F = TypeParam;
  auto values = bell(16 * F::block_size, 21);
  support::Random random(22);
  for (float& value : values)
    if (random.bits() % 61 == 0) value *= 7.3f;
  std::vector<float> importance(values.size());
  for (float& weight : importance)
    weight = 1.0f + random.value();
  auto bytes = encode_all<F>(values);
  const auto weighted = encode_all<F>(values, importance);
  bytes.insert(bytes.end(), weighted.begin(), weighted.end());
  EXPECT_EQ(support::crc32(bytes), own_bytes<F>());
}

} // namespace
