// The product with int8 activations has the same bits on every machine. What the portable kernel
// gives is compared here with check sums; what other kernels give is compared with the portable
// kernel in kernel_int8.cpp. Run on processors of any kind, the two hold machines together.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/activation.hpp>
#include <quern/formats.hpp>
#include <quern/kernels/int8_scalar.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>

#include "support/crc32.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;

/// CRC-32 of the floats, little-endian. Machines differ in their NaNs: all of them count as one.
std::uint32_t check_sum(std::span<const float> values) {
  std::vector<std::byte> bytes;
  for (std::uint32_t bits : support::bits_of(values)) {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) bits = 0x7FC00000u;
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::byte>(bits >> shift));
  }
  return support::crc32(bytes);
}

/// Random blocks that decode to numbers.
template <class F>
std::vector<std::byte> random_blocks(std::size_t count) {
  support::Random random(5);
  std::vector<std::byte> bytes(count * F::bytes_per_block);
  for (std::size_t at = 0; at < bytes.size(); at += F::bytes_per_block) {
    const std::span<std::byte, F::bytes_per_block> block{bytes.data() + at, F::bytes_per_block};
    do
      for (std::byte& byte : block)
        byte = static_cast<std::byte>(random.bits() >> 24);
    while (!std::ranges::all_of(F::decode(block), [](float v) { return std::isfinite(v); }));
  }
  return bytes;
}

template <class F>
std::uint32_t check_sum_of_product() {
  constexpr std::size_t rows = 3, out = 7, blocks = 2 + 256 / F::block_size,
                        in = blocks * F::block_size;
  const auto bytes = random_blocks<F>(out * blocks);
  const PackedView<F, RowMajor> w{bytes, OutIn{Out{out}, In{in}}};
  const auto values = support::random_values(rows * in, 6);
  ModelScope scope;
  const auto x =
      quantize_activations<int8_width<F>>(MatrixView<const float>{values, rows, in}, scope);
  std::vector<float> y(rows * out);
  kernels::Matmul<Int8For<F>, F, RowMajor, isa::Scalar>::run(
      x, w, MatrixView<float>{std::span<float>(y), rows, out});
  return check_sum(y);
}

TEST(KernelSameBits, Int8ProductsOfEveryFormat) {
  const std::map<std::string, std::uint32_t> expected{
      {"Q4_0", 0x5EB81476},    {"Q4_1", 0x60CBE0F6},    {"Q5_0", 0xCC819979},
      {"Q5_1", 0x5D58B29B},    {"Q8_0", 0xB86D4CAF},    {"Q2_K", 0xDFDF7BCD},
      {"Q3_K", 0x76D5C316},    {"Q4_K", 0x4D00EB6A},    {"Q5_K", 0x5C27715F},
      {"Q6_K", 0xEE73079D},    {"IQ2_XXS", 0xD4E76FCA}, {"IQ2_XS", 0x52CC8D48},
      {"IQ3_XXS", 0xB79537D4}, {"IQ1_S", 0x865B7365},   {"IQ4_NL", 0x0DFC54B7},
      {"IQ3_S", 0xE873AB16},   {"IQ2_S", 0x98A931FE},   {"IQ4_XS", 0x71E90A63},
      {"IQ1_M", 0x184A7DEC},   {"TQ1_0", 0x8112F86C},   {"TQ2_0", 0xFF431739},
      {"MXFP4", 0x3DCDC608},   {"NVFP4", 0xAF452774},   {"Q1_0", 0x0B851DA3},
      {"Q2_0", 0x2EF81AD3},
  };
  std::size_t seen = 0;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Formats>>([&](auto tag) {
    using F = typename decltype(tag)::type;
    if constexpr (int8_width<F> != 0) {
      ++seen;
      const std::string name(F::name);
      const std::uint32_t sum = check_sum_of_product<F>();
      const auto found = expected.find(name);
      if (found == expected.end())
        ADD_FAILURE() << name << " has no check sum; here it is 0x" << std::hex << sum;
      else
        EXPECT_EQ(sum, found->second) << name;
    }
  });
  EXPECT_EQ(seen, expected.size());
}

} // namespace
