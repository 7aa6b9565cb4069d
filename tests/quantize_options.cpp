// What quantize() does with its options: threads change no byte and no error, importances are
// checked before anything is done and lower the error where it matters.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/f32.hpp>
#include <quern/formats/iq4_nl.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/quantize.hpp>

#include "support/errors.hpp"
#include "support/thread_executor.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using support::contains;
using support::error_of;

constexpr std::array<QuantizeMode, 2> modes{QuantizeMode::best, QuantizeMode::fast};

template <class F>
std::vector<std::byte> packed(std::span<const float> values, OutIn shape,
                              const QuantizeOptions& options = {}) {
  const auto weight = quantize<F>(values, shape, options);
  return {weight.bytes().begin(), weight.bytes().end()};
}

template <class F>
class QuantizeOptionsOf : public testing::Test {
protected:
  static constexpr std::size_t out = 37;
  static constexpr std::size_t in = 2 * F::block_size;
  static constexpr OutIn shape{out, In{in}};

  std::vector<float> values_ = support::random_values(out * in, 3);
};
using Some = testing::Types<Q4_0, Q4_K, IQ4_NL>;
TYPED_TEST_SUITE(QuantizeOptionsOf, Some, support::Names);

TYPED_TEST(QuantizeOptionsOf, ThreadsChangeNoByte) {
  using F = TypeParam;
  std::vector<float> importance(this->in);
  for (std::size_t i = 0; i < importance.size(); ++i)
    importance[i] = static_cast<float>(i % 5);
  for (const QuantizeMode mode : modes)
    for (const auto weights : {std::span<const float>(), std::span<const float>(importance)}) {
      const auto alone =
          packed<F>(this->values_, this->shape, {.mode = mode, .importance = weights});
      for (const std::size_t threads : {1u, 2u, 3u, 16u}) {
        support::ThreadExecutor executor(threads);
        EXPECT_EQ(packed<F>(this->values_, this->shape,
                            {.mode = mode, .importance = weights, .executor = executor}),
                  alone)
            << threads;
      }
    }
}

TYPED_TEST(QuantizeOptionsOf, TheFirstBadValueIsNamedWhateverTheThreads) {
  using F = TypeParam;
  auto values = this->values_;
  const auto bad = [&](std::size_t row, std::size_t column) -> float& {
    return values[row * this->in + column];
  };
  // Later rows have faults of another kind, and so has the same row further on.
  bad(36, 0) = std::numeric_limits<float>::infinity();
  bad(20, 1) = std::numeric_limits<float>::infinity();
  bad(11, F::block_size + 3) = std::numeric_limits<float>::infinity();
  bad(11, 7) = std::numeric_limits<float>::quiet_NaN();
  const std::string place = "NaN at row 11, column 7;";
  for (const QuantizeMode mode : modes)
    for (const std::size_t threads : {1u, 2u, 5u, 16u}) {
      support::ThreadExecutor executor(threads);
      for (int repeat = 0; repeat < 4; ++repeat)
        EXPECT_TRUE(contains(error_of(ErrorCode::not_a_number,
                                      [&] {
                                        (void)packed<F>(values, this->shape,
                                                        {.mode = mode, .executor = executor});
                                      }),
                             place));
    }
}

TYPED_TEST(QuantizeOptionsOf, ImportancesAreOnePerColumnFiniteAndNotNegative) {
  using F = TypeParam;
  for (const std::size_t count : {std::size_t{1}, this->in - 1, this->in + 1, this->out}) {
    const std::vector<float> importance(count, 1.0f);
    const std::string text = error_of(ErrorCode::size_mismatch, [&] {
      (void)packed<F>(this->values_, this->shape, {.importance = importance});
    });
    EXPECT_TRUE(contains(text, std::to_string(count) + " importances for " +
                                   std::to_string(this->in) + " columns"));
    EXPECT_TRUE(contains(text, F::name));
  }
  for (const float wrong :
       {-1.0f, -1e-45f, std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> importance(this->in, 1.0f);
    importance[9] = wrong;
    importance[12] = wrong;
    for (const QuantizeMode mode : modes)
      EXPECT_TRUE(contains(error_of(ErrorCode::bad_importance,
                                    [&] {
                                      (void)packed<F>(this->values_, this->shape,
                                                      {.mode = mode, .importance = importance});
                                    }),
                           "column 9"));
    // Also where there is no row to weigh.
    (void)error_of(ErrorCode::bad_importance, [&] {
      (void)packed<F>({}, OutIn{0, In{this->in}}, {.importance = importance});
    });
  }
}

TYPED_TEST(QuantizeOptionsOf, ImportancesThatSayNothingChangeNothing) {
  using F = TypeParam;
  const auto plain = packed<F>(this->values_, this->shape);
  for (const float all : {0.0f, -0.0f, 1.0f, 1e-45f, std::numeric_limits<float>::max()}) {
    const std::vector<float> importance(this->in, all);
    EXPECT_EQ(packed<F>(this->values_, this->shape, {.importance = importance}), plain) << all;
  }
}

TYPED_TEST(QuantizeOptionsOf, ABlockWithoutImportanceIsUnweighted) {
  using F = TypeParam;
  std::vector<float> importance(this->in, 0.0f);
  for (std::size_t i = F::block_size; i < this->in; ++i)
    importance[i] = static_cast<float>(1 + i % 7);
  const auto weighted = packed<F>(this->values_, this->shape, {.importance = importance});
  const auto plain = packed<F>(this->values_, this->shape);
  std::size_t others = 0;
  for (std::size_t o = 0; o < this->out; ++o) {
    const auto block = [&](const auto& all, std::size_t b) {
      return std::vector(
          all.begin() + static_cast<std::ptrdiff_t>((2 * o + b) * F::bytes_per_block),
          all.begin() + static_cast<std::ptrdiff_t>((2 * o + b + 1) * F::bytes_per_block));
    };
    EXPECT_EQ(block(weighted, 0), block(plain, 0)) << o;
    others += block(weighted, 1) != block(plain, 1) ? 1 : 0;
  }
  EXPECT_GT(others, this->out / 2);
}

TYPED_TEST(QuantizeOptionsOf, ExtremesOfImportanceGiveFiniteBlocks) {
  using F = TypeParam;
  std::vector<float> importance(this->in, 0.0f);
  const std::array<float, 5> kinds{0.0f, 1e-45f, 1e-20f, 1.0f, std::numeric_limits<float>::max()};
  for (std::size_t i = 0; i < importance.size(); ++i)
    importance[i] = kinds[i * 7 % kinds.size()];
  for (const QuantizeMode mode : modes)
    for (const float value : support::decoded<F>(
             packed<F>(this->values_, this->shape, {.mode = mode, .importance = importance})))
      ASSERT_TRUE(std::isfinite(value));
}

TYPED_TEST(QuantizeOptionsOf, BytesDependOnTheBlockAndItsImportanceAlone) {
  using F = TypeParam;
  std::vector<float> importance(this->in);
  for (std::size_t i = 0; i < importance.size(); ++i)
    importance[i] = static_cast<float>(i % 3);
  const auto whole = packed<F>(this->values_, this->shape, {.importance = importance});
  std::vector<std::byte> parts;
  for (std::size_t at = 0; at < this->values_.size(); at += F::block_size) {
    const auto block = packed<F>(
        std::span<const float>(this->values_).subspan(at, F::block_size),
        OutIn{1, In{F::block_size}},
        {.importance = std::span<const float>(importance).subspan(at % this->in, F::block_size)});
    parts.insert(parts.end(), block.begin(), block.end());
  }
  EXPECT_EQ(whole, parts);
}

/// Counts pieces and the largest index, and runs them last to first.
struct Backwards {
  std::size_t pieces = 0;
  [[nodiscard]] static std::size_t concurrency() { return 4; }
  template <class F>
  void parallel_for(std::size_t count, F&& f) {
    pieces = count;
    for (std::size_t i = count; i-- > 0;)
      f(i);
  }
};

TEST(QuantizePieces, AreWholeRowsAndNeverEmpty) {
  for (const std::size_t rows : {1u, 2u, 31u, 32u, 33u, 100u}) {
    const auto values = support::random_values(rows * 64, 5);
    Backwards executor;
    const OutIn shape{rows, 64};
    EXPECT_EQ(packed<Q4_0>(values, shape, {.executor = executor}), packed<Q4_0>(values, shape));
    EXPECT_LE(executor.pieces, rows);
    EXPECT_LE(executor.pieces, 32u);
    // A single piece needs no executor.
    EXPECT_EQ(executor.pieces > 1, rows > 1);
  }
  Backwards executor;
  EXPECT_TRUE(packed<Q4_0>({}, OutIn{0, 64}, {.executor = executor}).empty());
  EXPECT_TRUE(packed<Q4_0>({}, OutIn{5, 0}, {.executor = executor}).empty());
}

TEST(QuantizePieces, TheFirstFaultIsNamedEvenWhenItIsFoundLast) {
  std::vector<float> values(40 * 64, 1.0f);
  values[3 * 64 + 40] = std::numeric_limits<float>::infinity();
  values[39 * 64 + 2] = std::numeric_limits<float>::quiet_NaN();
  Backwards executor;
  EXPECT_TRUE(contains(error_of(ErrorCode::infinite,
                                [&] {
                                  (void)packed<Q4_0>(values, OutIn{40, 64}, {.executor = executor});
                                }),
                       "infinity at row 3, column 40"));
}

TEST(QuantizeScale, OverflowNamesTheValueAndThePlace) {
  std::vector<float> values(2 * 64, 1.0f);
  values[64 + 33] = 1e6f;
  for (const QuantizeMode mode : modes) {
    const std::string text = error_of(ErrorCode::scale_overflow, [&] {
      (void)packed<Q4_0>(values, OutIn{2, 64}, {.mode = mode});
    });
    EXPECT_TRUE(contains(text, "row 1, column 33"));
    EXPECT_TRUE(contains(text, "1000000"));
  }
}

TEST(QuantizeDense, TakesTheSameOptionsAndKeepsEveryBit) {
  const std::array<float, 6> values{1.0f,   -0.0f, 0.1f, std::numeric_limits<float>::max(),
                                    1e-45f, 3.0f};
  const std::array<float, 3> importance{0.0f, 1.0f, 2.0f};
  const auto weight = quantize<F32>(values, OutIn{2, 3}, {.importance = importance});
  EXPECT_EQ(support::bits_of(weight.view().to_floats()), support::bits_of(values));
}

} // namespace
