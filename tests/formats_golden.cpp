// Every format against blocks made by the reference implementation: decoded bit for bit, encoded
// with no more error than the reference (and, where its rule is closed, to the same bytes).

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <quern/detail/bytes.hpp>
#include <quern/formats.hpp>

#include "support/crc32.hpp"
#include "support/golden_vectors.hpp"
#include "support/typed.hpp"

namespace {

using namespace quern;

template <class F>
using BlockOf = std::span<const std::byte, F::bytes_per_block>;
template <class F>
using ValuesOf = std::span<const float, F::block_size>;

// CRC-32 of the decoded floats of one block whose byte i is 37 * i + 11, with the scale fields
// overwritten as listed. Facts of the reference implementation.
struct Pinned {
  std::string_view format;
  std::vector<std::pair<std::size_t, std::vector<int>>> scales;
  std::uint32_t crc;
};

const std::vector<Pinned>& pinned() {
  static const std::vector<int> one{0x00, 0x3c};
  static const std::vector<int> half{0x00, 0x38};
  static const std::vector<int> minus_half{0x00, 0xb8};
  static const std::vector<Pinned> table{
      {"Q4_0", {{0, one}}, 0x4a5055fdu},
      {"Q4_1", {{0, one}, {2, minus_half}}, 0x5a78f9eeu},
      {"Q5_0", {{0, one}}, 0x79815bb9u},
      {"Q5_1", {{0, one}, {2, minus_half}}, 0x16455ad6u},
      {"Q8_0", {{0, one}}, 0x7e733bfau},
      {"Q2_K", {{80, one}, {82, half}}, 0x8d2c6be8u},
      {"Q3_K", {{108, one}}, 0xc1029dacu},
      {"Q4_K", {{0, one}, {2, half}}, 0x5c4c0a49u},
      {"Q5_K", {{0, one}, {2, half}}, 0x0e9ce32fu},
      {"Q6_K", {{208, one}}, 0xa84ce1f7u},
      {"IQ4_NL", {{0, one}}, 0x27bc646eu},
      {"IQ4_XS", {{0, one}}, 0x59b1032bu},
      {"MXFP4", {{0, {127}}}, 0xa8bddec7u},
      {"NVFP4", {{0, {0x38, 0x40, 0x30, 0x28}}}, 0xdee95605u},
      {"TQ1_0", {{52, one}}, 0x8ed5cce3u},
      {"TQ2_0", {{64, one}}, 0xe61a6eeau},
      {"Q1_0", {{0, one}}, 0xadacc1bau},
      {"Q2_0", {{0, one}}, 0xf0532c80u},
  };
  return table;
}

template <class F>
std::string golden_folder() {
  std::string name(F::name);
  // The folders spell the K of the K formats large and everything else small.
  for (char& c : name)
    if (c >= 'A' && c <= 'Z' && !(c == 'K' && name.ends_with("_K") && &c == &name.back()))
      c = static_cast<char>(c - 'A' + 'a');
  return std::string(QUERN_SHARED_DIR) + "/golden/" + name;
}

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

std::vector<float> read_floats(const std::string& path) {
  const auto bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

template <class F>
class FormatGolden : public testing::Test {};
TYPED_TEST_SUITE(FormatGolden, support::EachFormat, support::Names);

TYPED_TEST(FormatGolden, DecodesPinnedBlock) {
  using F = TypeParam;
  for (const Pinned& p : pinned()) {
    if (p.format != F::name) continue;
    std::array<std::byte, F::bytes_per_block> block{};
    for (std::size_t i = 0; i < block.size(); ++i)
      block[i] = static_cast<std::byte>((37 * i + 11) & 0xFF);
    for (const auto& [offset, bytes] : p.scales)
      for (std::size_t k = 0; k < bytes.size(); ++k)
        block[offset + k] = static_cast<std::byte>(bytes[k]);
    const auto values = F::decode(BlockOf<F>{block});
    EXPECT_EQ(support::crc32(std::as_bytes(std::span{values})), p.crc);
    return;
  }
  GTEST_SKIP() << "no pinned checksum for " << F::name << "; golden_blocks covers it";
}

TYPED_TEST(FormatGolden, DecodesItsOwnGoldenBlocks) {
  using F = TypeParam;
  std::size_t seen = 0;
  for (const support::GoldenBlocks& golden : support::golden_blocks) {
    if (golden.format != F::name) continue;
    ++seen;
    const auto bytes = support::bytes_of_hex(golden.bytes);
    ASSERT_EQ(bytes.size() % F::bytes_per_block, 0u);
    std::vector<float> values;
    for (std::size_t at = 0; at < bytes.size(); at += F::bytes_per_block)
      std::ranges::copy(F::decode(BlockOf<F>{bytes.data() + at, F::bytes_per_block}),
                        std::back_inserter(values));
    for (std::size_t i = 0; i < golden.first_floats.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), golden.first_floats[i]) << "value " << i;
    EXPECT_EQ(support::crc32(std::as_bytes(std::span{values})), golden.floats_crc);
  }
  EXPECT_GT(seen, 0u) << "no golden block of " << F::name;
}

TYPED_TEST(FormatGolden, DecodesEveryGoldenBlockToItsBits) {
  using F = TypeParam;
  const std::string folder = golden_folder<F>();
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "the golden data is not on this machine; only the pinned blocks were tested";
  for (const auto& [bytes_name, floats_name] :
       {std::pair{"/blocks.bin", "/blocks.f32"}, std::pair{"/encoded.bin", "/encoded.f32"}}) {
    const auto bytes = read_file(folder + bytes_name);
    const auto floats = read_floats(folder + floats_name);
    const std::size_t blocks = bytes.size() / F::bytes_per_block;
    ASSERT_GT(blocks, 0u);
    ASSERT_EQ(floats.size(), blocks * F::block_size);
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto values =
          F::decode(BlockOf<F>{bytes.data() + b * F::bytes_per_block, F::bytes_per_block});
      ASSERT_EQ(std::memcmp(values.data(), floats.data() + b * F::block_size, sizeof(values)), 0)
          << F::name << bytes_name << " block " << b;
    }
  }
}

// Formats whose quantizer is a closed rule, so that the bytes themselves are pinned.
template <class F>
constexpr bool closed_rule =
    std::same_as<F, Q4_0> || std::same_as<F, Q4_1> || std::same_as<F, Q5_0> ||
    std::same_as<F, Q5_1> || std::same_as<F, Q8_0> || std::same_as<F, TQ1_0> ||
    std::same_as<F, TQ2_0> || F::block_size == 1;

TYPED_TEST(FormatGolden, EncodesItsOwnGoldenValues) {
  using F = TypeParam;
  if constexpr (F::block_size == 1) {
    GTEST_SKIP() << F::name << " rounds single values";
  } else {
    std::size_t seen = 0;
    for (const support::GoldenEncoding& golden : support::golden_encodings) {
      if (golden.format != F::name) continue;
      ++seen;
      const auto raw = support::bytes_of_hex(golden.values);
      std::vector<float> values(raw.size() / sizeof(float));
      std::memcpy(values.data(), raw.data(), raw.size());
      ASSERT_EQ(values.size() % F::block_size, 0u);
      std::vector<std::byte> blocks;
      double error = 0;
      for (std::size_t at = 0; at < values.size(); at += F::block_size) {
        const auto encoded = F::encode(ValuesOf<F>{values.data() + at, F::block_size});
        ASSERT_TRUE(encoded.ok());
        std::ranges::copy(encoded.bytes(), std::back_inserter(blocks));
        const auto decoded = F::decode(BlockOf<F>{encoded.bytes()});
        for (std::size_t i = 0; i < F::block_size; ++i)
          error +=
              std::pow(static_cast<double>(decoded[i]) - static_cast<double>(values[at + i]), 2);
      }
      // The last digits of the sum are those of another order of summation.
      EXPECT_LE(error, golden.squared_error * (1 + 1e-12));
      if constexpr (closed_rule<F>) {
        EXPECT_EQ(support::crc32(blocks), golden.blocks_crc);
      }
    }
    EXPECT_EQ(seen, 1u) << "no golden encoding of " << F::name;
  }
}

TYPED_TEST(FormatGolden, EncodesWithAtMostTheReferenceError) {
  using F = TypeParam;
  const std::string folder = golden_folder<F>();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the golden data is not on this machine";
  const auto input = read_floats(folder + "/encode_input.f32");
  const auto expected = read_file(folder + "/encoded.bin");
  const auto reference = read_floats(folder + "/encoded.f32");
  constexpr std::size_t columns = 768;
  ASSERT_EQ(input.size() % columns, 0u);
  // Formats with a block longer than a row leaves no rest have fewer encoded rows.
  const std::size_t rows = reference.size() / columns;
  ASSERT_GT(rows, 0u);
  std::size_t at = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double ours = 0;
    double theirs = 0;
    for (std::size_t column = 0; column < columns; column += F::block_size) {
      const float* values = input.data() + row * columns + column;
      const auto encoded = F::encode(ValuesOf<F>{values, F::block_size});
      ASSERT_TRUE(encoded.ok());
      if constexpr (closed_rule<F>) {
        ASSERT_EQ(std::memcmp(encoded.bytes().data(), expected.data() + at, F::bytes_per_block), 0)
            << F::name << " row " << row << " column " << column;
      }
      at += F::bytes_per_block;
      const auto decoded = F::decode(BlockOf<F>{encoded.bytes()});
      for (std::size_t i = 0; i < F::block_size; ++i) {
        const double value = values[i];
        ours += std::pow(static_cast<double>(decoded[i]) - value, 2);
        theirs += std::pow(static_cast<double>(reference[row * columns + column + i]) - value, 2);
      }
    }
    EXPECT_LE(ours, theirs) << F::name << " row " << row;
  }
}

TYPED_TEST(FormatGolden, ZerosStayZeros) {
  using F = TypeParam;
  // Q1_0 has no code for zero beside its scale, which is zero here as well.
  for (const float zero : {0.0f, -0.0f, 1e-45f}) {
    std::array<float, F::block_size> values{};
    values.fill(zero);
    const auto encoded = F::encode(ValuesOf<F>{values});
    ASSERT_TRUE(encoded.ok());
    const auto decoded = F::decode(BlockOf<F>{encoded.bytes()});
    for (const float value : decoded)
      EXPECT_LE(std::abs(value), 1e-37f) << F::name;
  }
}

TYPED_TEST(FormatGolden, NotFiniteIsAFaultInItsLane) {
  using F = TypeParam;
  if constexpr (F::block_size == 1) {
    GTEST_SKIP() << F::name << " stores NaN and infinity as they are";
  } else {
    for (const std::size_t lane : {std::size_t{0}, F::block_size / 2, F::block_size - 1}) {
      std::array<float, F::block_size> values{};
      values.fill(0.5f);
      values[lane] = std::numeric_limits<float>::quiet_NaN();
      const auto nan = F::encode(ValuesOf<F>{values});
      EXPECT_EQ(nan.fault(), EncodeFault::not_a_number) << F::name;
      EXPECT_EQ(nan.lane(), lane) << F::name;
      values[lane] = -std::numeric_limits<float>::infinity();
      const auto infinite = F::encode(ValuesOf<F>{values});
      EXPECT_EQ(infinite.fault(), EncodeFault::infinite) << F::name;
      EXPECT_EQ(infinite.lane(), lane) << F::name;
      EXPECT_THROW((void)infinite.bytes(), Error);
    }
  }
}

} // namespace
