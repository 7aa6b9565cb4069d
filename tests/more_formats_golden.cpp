#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
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
#include <quern/formats/q6_k.hpp>

#include "support/reference_sets.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

// What GGML decodes and encodes, in files that are no part of the project.

#ifndef QUERN_SHARED_DIR
#define QUERN_SHARED_DIR "../shared"
#endif

namespace {

namespace fs = std::filesystem;

/// Formats whose encoder writes the same bytes.
template <class F>
constexpr bool same_bytes = std::is_same_v<F, quern::F16> || std::is_same_v<F, quern::BF16> ||
                            std::is_same_v<F, quern::MXFP4> || std::is_same_v<F, quern::NVFP4> ||
                            std::is_same_v<F, quern::Q1_0> || std::is_same_v<F, quern::Q2_0>;

template <class F>
class MoreFormatsGolden : public testing::Test {
protected:
  static constexpr std::size_t rows = 8;

  void SetUp() override {
    // Folders are named like formats, in lower case but for the K of K-quants.
    std::string name(F::name);
    const bool k_quant = name.ends_with("_K");
    for (char& letter : name)
      letter = static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
    if (k_quant) name.back() = 'K';
    folder_ = fs::path(QUERN_SHARED_DIR) / "golden" / name;
    if (std::string_view(QUERN_SHARED_DIR).empty() || !fs::exists(folder_ / "blocks.bin"))
      GTEST_SKIP() << "no golden files of " << F::name << " in '" << folder_.string()
                   << "'; set QUERN_SHARED_DIR to the folder that holds golden/";
  }

  [[nodiscard]] std::vector<std::byte> bytes(const char* file) const {
    std::ifstream stream(folder_ / file, std::ios::binary);
    const std::vector<char> raw{std::istreambuf_iterator<char>(stream), {}};
    std::vector<std::byte> result(raw.size());
    if (!raw.empty()) std::memcpy(result.data(), raw.data(), raw.size());
    EXPECT_FALSE(result.empty()) << file;
    return result;
  }
  [[nodiscard]] std::vector<float> floats(const char* file) const {
    const auto raw = bytes(file);
    std::vector<float> result(raw.size() / sizeof(float));
    if (!raw.empty()) std::memcpy(result.data(), raw.data(), result.size() * sizeof(float));
    return result;
  }

  static double error_of_row(std::span<const float> values, std::span<const float> kept,
                             std::size_t row) {
    const std::size_t length = values.size() / rows;
    double sum = 0.0;
    for (std::size_t i = row * length; i < (row + 1) * length; ++i) {
      const double miss = static_cast<double>(kept[i]) - static_cast<double>(values[i]);
      sum += miss * miss;
    }
    return std::sqrt(sum / static_cast<double>(length));
  }

private:
  fs::path folder_;
};

using Golden = testing::Types<quern::F16, quern::Q2_K, quern::Q3_K, quern::IQ2_XXS, quern::IQ2_XS,
                              quern::IQ3_XXS, quern::IQ1_S, quern::IQ4_NL, quern::IQ3_S,
                              quern::Q6_K, quern::IQ2_S, quern::IQ4_XS, quern::IQ1_M, quern::BF16,
                              quern::MXFP4, quern::NVFP4, quern::Q1_0, quern::Q2_0>;
TYPED_TEST_SUITE(MoreFormatsGolden, Golden, support::Names);

TYPED_TEST(MoreFormatsGolden, DecodesBitForBit) {
  using F = TypeParam;
  for (const auto& [packed, values] :
       {std::pair{"blocks.bin", "blocks.f32"}, std::pair{"encoded.bin", "encoded.f32"}}) {
    const auto blocks = this->bytes(packed);
    ASSERT_EQ(blocks.size() % F::bytes_per_block, 0u);
    EXPECT_EQ(support::bits_of(support::decoded<F>(blocks)), support::bits_of(this->floats(values)))
        << packed;
  }
}

TYPED_TEST(MoreFormatsGolden, EncodesAtLeastAsWell) {
  using F = TypeParam;
  const auto values = this->floats("encode_input.f32");
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < values.size(); at += F::block_size) {
    const auto block =
        F::encode(std::span<const float, F::block_size>{values.data() + at, F::block_size}).bytes();
    bytes.insert(bytes.end(), block.begin(), block.end());
  }
  if constexpr (same_bytes<F>) {
    EXPECT_EQ(bytes, this->bytes("encoded.bin"));
  }

  const auto kept = support::decoded<F>(bytes);
  const auto theirs = this->floats("encoded.f32");
  double ratios = 0.0;
  int counted = 0;
  for (std::size_t row = 0; row < this->rows; ++row) {
    const double own = this->error_of_row(values, kept, row);
    const double other = this->error_of_row(values, theirs, row);
    EXPECT_LE(own, other) << "row " << row;
    if (other == 0.0) continue;
    ratios += own / other;
    ++counted;
  }
  ASSERT_GT(counted, 0);
  std::cout << F::name << ": error / GGML's error, mean over rows: " << ratios / counted << "\n";
  if constexpr (!same_bytes<F>) {
    EXPECT_LT(ratios / counted, 0.97);
  }
}

// Every fourth row of a layer, since the search takes its time.
TYPED_TEST(MoreFormatsGolden, PacksTrainedLayersAtLeastAsWell) {
  using F = TypeParam;
  for (const auto& set : support::reference_sets<F>()) {
    if (!set.name.ends_with(support::reference_name(F::name))) continue;
    double own = 0.0;
    double other = 0.0;
    for (std::size_t at = 0; at < set.values.size(); at += 4 * set.cols) {
      const std::span<const float> row(set.values.data() + at, set.cols);
      std::vector<float> kept;
      for (std::size_t from = 0; from < row.size(); from += F::block_size) {
        const auto block =
            F::decode(F::encode(row.subspan(from).template first<F::block_size>()).bytes());
        kept.insert(kept.end(), block.begin(), block.end());
      }
      own += support::squared_error(row, kept);
      other += support::squared_error(row, std::span(set.kept).subspan(at, set.cols));
    }
    ASSERT_GT(other, 0.0) << set.name;
    std::cout << set.name << ": error / GGML's error: " << std::sqrt(own / other) << "\n";
    if constexpr (same_bytes<F>)
      EXPECT_EQ(own, other) << set.name;
    else
      EXPECT_LT(std::sqrt(own / other), 0.98) << set.name;
  }
}

} // namespace
