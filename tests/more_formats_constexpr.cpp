#include <array>
#include <cstddef>
#include <limits>

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

// Decoding and encoding in constant expressions, and that they give what they give at run time.

namespace {

template <class F>
constexpr std::array<float, F::block_size> ramp() {
  std::array<float, F::block_size> values{};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 61) - 30);
  return values;
}

template <class F>
constexpr std::array<std::byte, F::bytes_per_block> pattern() {
  std::array<std::byte, F::bytes_per_block> block{};
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::byte>((37 * i + 11) % 256 % 120); // no scale out of range
  return block;
}

template <class F>
struct Decoded {
  static constexpr auto at_compile_time = F::decode(pattern<F>());
};

template <class F>
void expect_same_values() {
  SCOPED_TRACE(F::name);
  const auto at_run_time = F::decode(pattern<F>());
  EXPECT_EQ(Decoded<F>::at_compile_time, at_run_time);
}

TEST(MoreFormatsConstexpr, Decode) {
  expect_same_values<quern::F32>();
  expect_same_values<quern::F16>();
  expect_same_values<quern::BF16>();
  expect_same_values<quern::Q1_0>();
  expect_same_values<quern::Q2_0>();
  expect_same_values<quern::MXFP4>();
  expect_same_values<quern::NVFP4>();
  expect_same_values<quern::Q2_K>();
  expect_same_values<quern::Q3_K>();
  expect_same_values<quern::IQ4_NL>();
  expect_same_values<quern::IQ4_XS>();
  expect_same_values<quern::IQ3_XXS>();
  expect_same_values<quern::IQ3_S>();
  expect_same_values<quern::IQ2_XXS>();
  expect_same_values<quern::IQ2_XS>();
  expect_same_values<quern::IQ2_S>();
  expect_same_values<quern::IQ1_S>();
  expect_same_values<quern::IQ1_M>();
}

template <class F>
struct Encoded {
  static constexpr auto at_compile_time = F::encode(ramp<F>());
};

template <class F>
void expect_same_bytes() {
  SCOPED_TRACE(F::name);
  const auto at_run_time = F::encode(ramp<F>());
  EXPECT_EQ(Encoded<F>::at_compile_time.bytes(), at_run_time.bytes());
}

TEST(MoreFormatsConstexpr, Encode) {
  expect_same_bytes<quern::F32>();
  expect_same_bytes<quern::F16>();
  expect_same_bytes<quern::BF16>();
  expect_same_bytes<quern::Q1_0>();
  expect_same_bytes<quern::Q2_0>();
  expect_same_bytes<quern::MXFP4>();
  expect_same_bytes<quern::NVFP4>();
  expect_same_bytes<quern::Q2_K>();
  expect_same_bytes<quern::Q3_K>();
  expect_same_bytes<quern::IQ4_NL>();
  expect_same_bytes<quern::IQ4_XS>();
#if !defined(__clang__)
  // A search over a code book takes millions of steps, more than clang allows itself by default
  // (-fconstexpr-steps). One such search is enough here for the others, which share its code.
  expect_same_bytes<quern::IQ2_XXS>();
#endif
}

// Blocks of zeros need no search, so every compiler can pack them.
template <class F>
constexpr bool packs_zeros() {
  constexpr auto encoded = F::encode(std::array<float, F::block_size>{});
  for (const float value : F::decode(encoded.bytes()))
    if (value != 0.0f) return false;
  return encoded.ok();
}
static_assert(packs_zeros<quern::IQ3_XXS>());
static_assert(packs_zeros<quern::IQ3_S>());
static_assert(packs_zeros<quern::IQ2_XXS>());
static_assert(packs_zeros<quern::IQ2_XS>());
static_assert(packs_zeros<quern::IQ2_S>());
static_assert(packs_zeros<quern::IQ1_S>());
static_assert(packs_zeros<quern::IQ1_M>());

// Faults are found in constant expressions too.
template <class F>
constexpr quern::Encoded<F::bytes_per_block> with_value(std::size_t lane, float value) {
  std::array<float, F::block_size> values{};
  values[lane] = value;
  return F::encode(values);
}
static_assert(with_value<quern::IQ1_M>(200, std::numeric_limits<float>::infinity()).fault() ==
              quern::EncodeFault::infinite);
static_assert(with_value<quern::IQ2_S>(9, std::numeric_limits<float>::quiet_NaN()).lane() == 9);
static_assert(with_value<quern::Q3_K>(77, 1e30f).lane() == 77);
static_assert(with_value<quern::IQ4_NL>(31, 1e30f).lane() == 31);

} // namespace
