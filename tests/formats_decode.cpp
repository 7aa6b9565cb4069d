// What decoders do with chosen bytes.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>

namespace {

using namespace quern;

template <class F>
std::array<float, F::block_size> decoded(std::span<const std::byte> bytes) {
  return F::decode(bytes.first<F::bytes_per_block>());
}

template <class F>
std::array<std::byte, F::bytes_per_block> block_of(std::initializer_list<int> first, int rest) {
  std::array<std::byte, F::bytes_per_block> block{};
  block.fill(static_cast<std::byte>(rest));
  std::size_t i = 0;
  for (const int byte : first)
    block[i++] = static_cast<std::byte>(byte);
  return block;
}

TEST(FormatsDecode, Q4_1HasAHeaderOfFourBytes) {
  const auto block = block_of<Q4_1>({0x00, 0x3c, 0x00, 0x38}, 0x10);
  std::vector<std::byte> row(block.begin(), block.end());
  row.insert(row.end(), block.begin(), block.end());
  const PackedView<Q4_1, RowMajor> w{std::span<const std::byte>(row), OutIn{1, 64}};
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_EQ(w.get(0, i), i % 32 < 16 ? 0.5f : 1.5f) << "value " << i;
}

TEST(FormatsDecode, ZeroBytesAreZeros) {
  for (const float value : decoded<Q4_K>(block_of<Q4_K>({}, 0))) {
    EXPECT_EQ(value, 0.0f);
    EXPECT_FALSE(std::signbit(value));
  }
  // Code 0 stands for -32 here, so the zero is a negative one.
  for (const float value : decoded<Q6_K>(block_of<Q6_K>({}, 0))) {
    EXPECT_EQ(value, 0.0f);
    EXPECT_TRUE(std::signbit(value));
  }
}

TEST(FormatsDecode, ZeroBytesUnderAScaleAreNotZerosInQ3_K) {
  auto block = block_of<Q3_K>({}, 0);
  block[109] = std::byte{0x3c};
  for (const float value : decoded<Q3_K>(block))
    EXPECT_EQ(value, 128.0f);
}

TEST(FormatsDecode, TheLastScalesOfQ4_KAreSplit) {
  const auto block =
      block_of<Q4_K>({0x00, 0x3c, 0x00, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, 0x11);
  const auto values = decoded<Q4_K>(block);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], i < 128 ? 0.0f : static_cast<float>(i / 32 - 3)) << "value " << i;
}

TEST(FormatsDecode, ABadScaleStaysInItsBlock) {
  for (const int high : {0x7e, 0x7c}) {
    std::vector<std::byte> bytes;
    for (int b = 0; b < 6; ++b) {
      const auto block = block_of<Q8_0>({0x00, b == 4 ? high : 0x3c}, 1);
      bytes.insert(bytes.end(), block.begin(), block.end());
    }
    const PackedView<Q8_0, RowMajor> w{std::span<const std::byte>(bytes), OutIn{2, 96}};
    for (std::size_t o = 0; o < 2; ++o)
      for (std::size_t i = 0; i < 96; ++i)
        EXPECT_EQ(std::isfinite(w.get(o, i)), !(o == 1 && i / 32 == 1)) << o << ", " << i;
  }
}

TEST(FormatsDecode, TernaryCodeThreeIsTwo) {
  auto block = block_of<TQ2_0>({}, 0xff);
  block[64] = std::byte{0x00};
  block[65] = std::byte{0x3c};
  for (const float value : decoded<TQ2_0>(block))
    EXPECT_EQ(value, 2.0f);
}

TEST(FormatsDecode, DependsOnNoAddress) {
  std::array<std::byte, Q5_K::bytes_per_block + 1> bytes{};
  const auto fill = [&](std::size_t offset) {
    for (std::size_t i = 0; i < Q5_K::bytes_per_block; ++i)
      bytes[offset + i] = static_cast<std::byte>(i < 4 ? (i % 2 == 0 ? 0 : 0x3c) : 37 * i + 11);
    return decoded<Q5_K>(std::span<const std::byte>(bytes).subspan(offset));
  };
  EXPECT_EQ(fill(0), fill(1));
}

} // namespace
