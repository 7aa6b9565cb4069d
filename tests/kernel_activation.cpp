// Activations as signed bytes.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <span>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <quern/activation.hpp>
#include <quern/error.hpp>
#include <quern/isas.hpp>
#include <quern/matrix_view.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>

#include "support/errors.hpp"
#include "support/guarded.hpp"
#include "support/weights.hpp"

namespace {

using quern::Int8Blocks;
using quern::MatrixView;

template <class T>
class Int8Activations : public testing::Test {};
using Widths = testing::Types<std::integral_constant<std::size_t, 32>,
                              std::integral_constant<std::size_t, 256>>;
TYPED_TEST_SUITE(Int8Activations, Widths);

/// Blocks of many magnitudes, with zeros, subnormals, halves between codes, and extremes.
std::vector<float> awkward_values(std::size_t width) {
  std::vector<float> x;
  std::uint32_t seed = 1;
  for (const float scale : {1.0f, 1e-3f, 3e37f, 1e-30f, 1e-37f, 1e-39f, 1e-44f, 127.0f}) {
    auto block = support::random_values(width, seed++);
    for (float& value : block)
      value *= scale;
    x.insert(x.end(), block.begin(), block.end());
  }
  std::vector<float> special(4 * width, 0.0f); // a block of zeros comes first
  for (std::size_t i = 0; i < width; ++i)
    special[width + i] = -0.0f;
  special[2 * width] = 127.0f;
  for (std::size_t i = 1; i < width; ++i)
    special[2 * width + i] = static_cast<float>(static_cast<int>(i % 250) - 125) + 0.5f;
  special[3 * width + 5] = -std::numeric_limits<float>::max();
  x.insert(x.end(), special.begin(), special.end());
  return x;
}

TYPED_TEST(Int8Activations, CodesAreTheNearestAndSumsAddUp) {
  constexpr std::size_t width = TypeParam::value;
  const auto x = awkward_values(width);
  quern::ModelScope scope;
  const auto q = quern::quantize_activations<width>(
      MatrixView<const float>{std::span<const float>(x), 1, x.size()}, scope);
  ASSERT_EQ(q.blocks_per_row(), x.size() / width);
  for (std::size_t b = 0; b < q.blocks_per_row(); ++b) {
    float peak = 0.0f;
    for (std::size_t i = b * width; i < (b + 1) * width; ++i)
      peak = std::max(peak, std::abs(x[i]));
    EXPECT_EQ(q.scales(0)[b], peak / 127.0f);
    int largest = 0;
    for (std::size_t i = b * width; i < (b + 1) * width; ++i) {
      const double exact = peak == 0.0f ? 0.0 : static_cast<double>(x[i]) * 127.0 / peak;
      EXPECT_LE(std::abs(q.codes(0)[i] - exact), 0.5 + 2e-5) << i;
      largest = std::max(largest, std::abs(static_cast<int>(q.codes(0)[i])));
    }
    EXPECT_EQ(largest, peak == 0.0f ? 0 : 127) << "block " << b;
  }
  for (std::size_t g = 0; g < x.size() / 16; ++g) {
    int half[2] = {0, 0};
    for (std::size_t i = 0; i < 16; ++i)
      half[i % 4 < 2 ? 0 : 1] += q.codes(0)[16 * g + i];
    EXPECT_EQ(q.half_sums(0)[2 * g], half[0]);
    EXPECT_EQ(q.half_sums(0)[2 * g + 1], half[1]);
    EXPECT_EQ(q.sums(0)[g], half[0] + half[1]);
  }
}

TYPED_TEST(Int8Activations, HalvesGoToTheEvenCode) {
  constexpr std::size_t width = TypeParam::value;
  std::vector<float> x(width, 0.0f);
  const float values[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f};
  std::ranges::copy(values, x.begin());
  quern::ModelScope scope;
  const auto q = quern::quantize_activations<width>(
      MatrixView<const float>{std::span<const float>(x), 1, width}, scope);
  const int expected[] = {127, 0, 2, 2, 0, -2, -2, 0};
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(q.codes(0)[i], expected[i]) << i;
  EXPECT_EQ(q.scales(0)[0], 1.0f);
}

TYPED_TEST(Int8Activations, EveryInstructionSetWritesTheSameBytes) {
  constexpr std::size_t width = TypeParam::value;
  auto x = awkward_values(width);
  const std::size_t cols = x.size();
  x.resize(3 * cols, 1.0f);
  x[cols + 7] = std::numeric_limits<float>::quiet_NaN();
  x[cols + width + 9] = -std::numeric_limits<float>::infinity();
  x[2 * cols] = std::numeric_limits<float>::infinity();
  x[2 * cols + 1] = -std::numeric_limits<float>::quiet_NaN();
  const std::size_t bytes = Int8Blocks<width>::bytes_for(3, cols);
  std::vector<std::byte> best(bytes), portable(bytes);
  const MatrixView<const float> view{std::span<const float>(x), 3, cols};
  const auto a = quern::quantize_activations<width>(view, std::span<std::byte>(best));
  const auto b = quern::quantize_activations<width>(view, std::span<std::byte>(portable),
                                                    quern::at_most<quern::isa::Scalar>());
  EXPECT_EQ(best, portable);
  EXPECT_TRUE(std::isnan(b.scales(1)[0]));
  EXPECT_TRUE(std::isinf(b.scales(1)[1]));
  EXPECT_TRUE(std::isnan(b.scales(2)[0])) << "a NaN beside an infinity";
  for (std::size_t i = 0; i < width; ++i)
    EXPECT_EQ(a.codes(1)[i], 0);
}

TYPED_TEST(Int8Activations, TakesExactlyTheBytesItSays) {
  constexpr std::size_t width = TypeParam::value;
  const auto x = support::random_values(3 * 3 * width);
  const MatrixView<const float> view{std::span<const float>(x), 3, 3 * width};
  const std::size_t bytes = Int8Blocks<width>::bytes_for(3, 3 * width);
  support::Guarded<std::byte> exact(bytes);
  quern::quantize_activations<width>(view, exact.span());
  std::vector<std::byte> untouched(bytes, std::byte{0x5A});
  const auto message = support::error_of(quern::ErrorCode::size_mismatch, [&] {
    quern::quantize_activations<width>(view, std::span<std::byte>(untouched).first(bytes - 1));
  });
  EXPECT_TRUE(support::contains(message, std::to_string(bytes)));
  EXPECT_EQ(untouched, std::vector<std::byte>(bytes, std::byte{0x5A}));
  (void)support::error_of(quern::ErrorCode::size_mismatch, [&] {
    quern::quantize_activations<width>(view.narrow_rows(0, 1),
                                       std::span<std::byte>(untouched).subspan(1));
  });
}

TYPED_TEST(Int8Activations, RefusesRowsThatAreNotWholeBlocks) {
  constexpr std::size_t width = TypeParam::value;
  (void)support::error_of(quern::ErrorCode::not_block_multiple,
                          [] { return Int8Blocks<width>::bytes_for(1, width + 16); });
  (void)support::error_of(quern::ErrorCode::size_overflow, [] {
    return Int8Blocks<width>::bytes_for(std::numeric_limits<std::size_t>::max() / 4, 4 * width);
  });
  (void)support::error_of(quern::ErrorCode::size_overflow, [] {
    return Int8Blocks<width>::bytes_for(1, std::numeric_limits<std::size_t>::max() / width * width);
  });
  const std::vector<std::byte> bytes(Int8Blocks<width>::bytes_for(2, width));
  const Int8Blocks<width> q{std::span<const std::byte>(bytes), 2, width};
  (void)support::error_of(quern::ErrorCode::out_of_range, [&] { return q.narrow_rows(1, 2); });
  quern::ModelScope scope;
  (void)support::error_of(quern::ErrorCode::size_mismatch,
                          [&] { return quern::int8_activations<width>({}, {}, 1, width, scope); });
}

TEST(QuantizeActivations, IsAnAdapterWithAPrice) {
  struct Sink final : quern::Trace {
    std::vector<quern::AdapterInserted> seen;
    void record(const quern::Event& event) override {
      if (const auto* adapter = std::get_if<quern::AdapterInserted>(&event))
        seen.push_back(*adapter);
    }
  } sink;
  const std::vector<float> x(2 * 96, 1.0f);
  quern::ForwardScope scope(1 << 16);
  const auto q = quern::quantize_activations<32>(
      MatrixView<const float>{std::span<const float>(x), 2, 96}, scope, sink);
  ASSERT_EQ(sink.seen.size(), 1u);
  EXPECT_EQ(sink.seen[0].kind, "quantize_activations");
  EXPECT_EQ(sink.seen[0].from, "float");
  EXPECT_EQ(sink.seen[0].to, "Int8Blocks<32>");
  EXPECT_EQ(sink.seen[0].bytes_before, 2 * 96 * sizeof(float));
  EXPECT_EQ(sink.seen[0].bytes, q.bytes());
  EXPECT_EQ(sink.seen[0].scope, "forward");
  EXPECT_EQ(scope.live_bytes(), q.bytes());
}

} // namespace
