#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/detail/poison.hpp>
#include <quern/matmul.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/step_span.hpp>
#include <quern/trace_sinks.hpp>

#include "support/counting_new.hpp"
#include "support/errors.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;

std::byte* take(Scope& scope, std::size_t bytes, std::size_t alignment = 8) {
  return static_cast<std::byte*>(scope.allocate(bytes, alignment));
}

TEST(Scopes, OneSlabServesAllSteps) {
  CountingTrace counts;
  RingTrace ring;
  CompositeTrace trace{&counts, &ring};
  {
    ForwardScope scope(1024, trace);
    for (int step = 0; step < 3; ++step) {
      std::byte* const first = take(scope, 100);
      std::byte* const second = take(scope, 200);
      EXPECT_GE(second, first + 100);
      EXPECT_EQ(scope.live_bytes(), 300u);
      scope.reset();
      EXPECT_EQ(scope.live_bytes(), 0u);
    }
    EXPECT_EQ(scope.steps(), 3u);
    EXPECT_EQ(scope.peak_bytes(), 300u);
  }
  EXPECT_EQ(counts.count<Allocation>(), 1u);
  EXPECT_EQ(counts.count<Free>(), 1u);
  EXPECT_EQ(counts.count<ScopeReset>(), 3u);
  EXPECT_EQ(counts.allocated_bytes(), 1024u);
  EXPECT_EQ(counts.freed_bytes(), 1024u);
  for (const TimedEvent& event : ring.events())
    if (const auto* reset = std::get_if<ScopeReset>(&event.event)) {
      EXPECT_EQ(reset->scope, "forward");
      EXPECT_EQ(reset->bytes, 300u);
      EXPECT_EQ(reset->peak, 300u);
    }
}

class OverflowTest : public testing::TestWithParam<ResetChecks> {};

TEST_P(OverflowTest, OverflowIsCountedAndFreedAtReset) {
  CountingTrace counts;
  ForwardScope scope(64, counts, GetParam());
  take(scope, 60);
  take(scope, 100);
  take(scope, 1000);
  EXPECT_EQ(scope.overflow_bytes(), 1100u);
  EXPECT_EQ(scope.live_bytes(), 1160u);
  EXPECT_EQ(counts.count<Allocation>(), 3u);
  scope.reset();
  EXPECT_EQ(scope.overflow_bytes(), 0u);
  EXPECT_EQ(scope.live_bytes(), 0u);
  EXPECT_EQ(scope.peak_bytes(), 1160u);
  EXPECT_EQ(counts.freed_bytes(), 1100u);
  take(scope, 100);
  scope.reset();
  EXPECT_EQ(counts.freed_bytes(), 1200u);
}

TEST_P(OverflowTest, MemoryThatCanNotBeHadLeavesTheScopeAsItWas) {
  ForwardScope scope(64, no_trace, GetParam());
  take(scope, 60);
  for (long nth = 0; nth < 3; ++nth) {
    const support::FailingAllocation failing(nth);
    try {
      take(scope, 100);
      break;
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(scope.live_bytes(), 60u);
      EXPECT_EQ(scope.overflow_bytes(), 0u);
    }
  }
  scope.reset();
  EXPECT_EQ(scope.live_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Scopes, OverflowTest, testing::Values(ResetChecks::off, ResetChecks::on),
                         [](const auto& test) {
                           return test.param == ResetChecks::on ? "checked" : "unchecked";
                         });

TEST(Scopes, LiveBytesAreExactToTheByte) {
  CountingTrace counts;
  ModelScope scope(counts);
  std::size_t live = 0;
  std::size_t peak = 0;
  std::vector<std::pair<void*, std::size_t>> blocks;
  support::Random random(3);
  for (int i = 0; i < 500; ++i) {
    if (blocks.size() < 10 || random.bits() % 2 == 0) {
      const std::size_t bytes = 1 + random.bits() % 5000;
      blocks.emplace_back(scope.allocate(bytes, std::size_t{1} << (random.bits() % 8)), bytes);
      live += bytes;
      peak = std::max(peak, live);
    } else {
      const auto victim = static_cast<std::ptrdiff_t>(random.bits() % blocks.size());
      const auto [data, bytes] = blocks[static_cast<std::size_t>(victim)];
      scope.deallocate(data, bytes, 1);
      blocks.erase(blocks.begin() + victim);
      live -= bytes;
    }
    ASSERT_EQ(scope.live_bytes(), live);
    ASSERT_EQ(scope.peak_bytes(), peak);
    ASSERT_EQ(counts.allocated_bytes() - counts.freed_bytes(), live);
  }
  // Memory that the scope does not have, or gave back before, is left alone.
  scope.deallocate(blocks.front().first, blocks.front().second, 1);
  scope.deallocate(blocks.front().first, blocks.front().second, 1);
  EXPECT_EQ(scope.live_bytes(), live - blocks.front().second);
}

TEST(Scopes, AModelScopeGivesEverythingBackOnce) {
  CountingTrace counts;
  {
    ModelScope scope(counts);
    take(scope, 10);
    take(scope, 20);
    scope.deallocate(take(scope, 30), 30, 8);
  }
  EXPECT_EQ(counts.count<Allocation>(), 3u);
  EXPECT_EQ(counts.count<Free>(), 3u);
  EXPECT_EQ(counts.freed_bytes(), 60u);
}

TEST(Scopes, WeightsOutliveStepsAndTheStepScope) {
  ModelScope model;
  const auto bytes = support::counting_weight(4, 3);
  const PackedView<Q4_0, RowMajor> stored(bytes, OutIn{4, 96});
  const auto expected = stored.to_floats();
  const auto weight = prepack<InputBlockMajor>(stored, model);
  {
    ForwardScope forward(256);
    for (int step = 0; step < 50; ++step) {
      std::memset(take(forward, 256), 0x55, 256);
      forward.reset();
    }
  }
  EXPECT_EQ(weight.to_floats(), expected);
  EXPECT_EQ(model.live_bytes(), weight.bytes());
}

TEST(Scopes, AThousandStepsAreAFlatLine) {
  CountingTrace counts;
  ModelScope model(counts);
  ForwardScope forward(std::size_t{4} * (96 + 4), counts);
  const auto bytes = support::counting_weight(4, 3);
  const auto weight =
      prepack<InputBlockMajor>(PackedView<Q4_0, RowMajor>(bytes, OutIn{4, 96}), model, counts);
  const auto step = [&] {
    const std::span<float> x = StepSpan<float>(forward, 96).span();
    const std::span<float> y = StepSpan<float>(forward, 4).span();
    std::ranges::fill(x, 1.0f);
    matmul_weight_transposed(std::span<const float>(x), weight, y, {.trace = &counts});
    EXPECT_EQ(y[3], 32.0f * (10 + 11 + 12));
    EXPECT_EQ(forward.live_bytes(), 400u);
    forward.reset();
  };
  step();
  const std::size_t allocations = support::count_allocations([&] {
    for (int i = 0; i < 1000; ++i)
      step();
  });
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(forward.steps(), 1001u);
  EXPECT_EQ(forward.peak_bytes(), 400u);
  EXPECT_EQ(forward.overflow_bytes(), 0u);
  EXPECT_EQ(model.live_bytes(), 216u);
  EXPECT_EQ(counts.count<Allocation>(), 2u); // the slab and the weight
  EXPECT_EQ(counts.count<Free>(), 0u);
  EXPECT_EQ(counts.adapters("prepack").count, 1u);
  EXPECT_EQ(counts.count<KernelRun>(), 1001u);
}

TEST(Scopes, AStepSpanKnowsWhenItsStepHasEnded) {
  ForwardScope forward(1024);
  ModelScope model;
  const StepSpan<float> values(forward, 5);
  EXPECT_TRUE(values.alive());
  EXPECT_EQ(values.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i)
    values.span()[i] = static_cast<float>(i);
  const std::span<float> kept = retain(values, model);
  EXPECT_EQ(model.live_bytes(), 20u);

  forward.reset();
  EXPECT_FALSE(values.alive());
  const StepSpan<float> later(forward, 5);
  std::ranges::fill(later.span(), 100.0f);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(kept[i], static_cast<float>(i));
  const std::string message =
      support::error_of(ErrorCode::use_after_reset, [&] { (void)values.span(); });
  EXPECT_TRUE(support::contains(message, "step 0"));
  EXPECT_TRUE(support::contains(message, "step 1"));
  EXPECT_TRUE(support::contains(message, "retain()"));
  (void)support::error_of(ErrorCode::use_after_reset, [&] { (void)retain(values, model); });
  EXPECT_EQ(model.live_bytes(), 20u);
}

TEST(Scopes, AnEmptyStepSpanAndOneThatIsTooLarge) {
  ForwardScope forward(16);
  EXPECT_TRUE(StepSpan<float>(forward, 0).span().empty());
  ModelScope model;
  EXPECT_TRUE(retain(StepSpan<float>(forward, 0), model).empty());
  EXPECT_EQ(forward.live_bytes() + model.live_bytes(), 0u);
  (void)support::error_of(ErrorCode::size_overflow, [&] {
    const StepSpan<double> huge(forward, static_cast<std::size_t>(-1) / 4);
  });
}

#if defined(QUERN_HAS_ASAN)

TEST(ScopesDeathTest, TheSanitizerStopsAUseAfterReset) {
  for (const ResetChecks checks : {ResetChecks::off, ResetChecks::on}) {
    ForwardScope forward(1024, no_trace, checks);
    auto* const piece = static_cast<float*>(forward.allocate(64, 4));
    piece[0] = 1.0f;
    EXPECT_DEATH(piece[16] = 1.0f, "use-after-poison|insufficient space"); // past the end
    forward.reset();
    EXPECT_DEATH(piece[0] = 2.0f, "use-after-poison");
    EXPECT_DEATH(
        {
          volatile float read = piece[0];
          (void)read;
        },
        "use-after-poison");
    auto* const next = static_cast<float*>(forward.allocate(64, 4));
    next[15] = 3.0f;
    if (checks == ResetChecks::on) { // the next step has another slab
      EXPECT_NE(next, piece);
      EXPECT_DEATH(piece[15] = 4.0f, "use-after-poison");
    }
  }
}

#else

// Writes as a program would that kept a pointer too long; hidden from the compiler.
void stale_write(std::byte* at, std::size_t bytes) {
  volatile std::byte* const to = at;
  for (std::size_t i = 0; i < bytes; ++i)
    to[i] = std::byte{0x3C};
}

TEST(Scopes, ReadingAfterResetGivesNaNWhenChecked) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  auto* const values = static_cast<float*>(forward.allocate(64, 4));
  auto* const outside = static_cast<float*>(forward.allocate(4096, 4));
  std::fill_n(values, 16, 1.0f);
  std::fill_n(outside, 1024, 1.0f);
  EXPECT_EQ(forward.overflow_bytes(), 4096u);
  forward.reset();
  const volatile float* const seen = values;
  const volatile float* const seen_outside = outside;
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_TRUE(std::isnan(seen[i]));
  for (std::size_t i = 0; i < 1024; ++i)
    EXPECT_TRUE(std::isnan(seen_outside[i]));
}

TEST(Scopes, WritingAfterResetIsFoundByTheNextReset) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  std::byte* const stale = take(forward, 512) + 300;
  forward.reset();
  take(forward, 16);
  stale_write(stale, 1);
  const std::string message =
      support::error_of(ErrorCode::use_after_reset, [&] { forward.reset(); });
  EXPECT_TRUE(support::contains(message, "byte 300"));
  EXPECT_EQ(forward.steps(), 2u);
  EXPECT_EQ(forward.live_bytes(), 0u);
}

TEST(Scopes, WritingAfterResetIsFoundByTheNextAllocation) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  std::byte* const stale = take(forward, 512) + 16;
  forward.reset();
  take(forward, 16);
  stale_write(stale, 4);
  (void)support::error_of(ErrorCode::use_after_reset, [&] { take(forward, 8); });
  EXPECT_EQ(forward.live_bytes(), 16u);
}

TEST(Scopes, AUseAfterResetIsFoundThoughTheNextStepAsksForTheSame) {
  // As a loop does that keeps a pointer: every step takes the same pieces.
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  const auto piece = [&] { return static_cast<float*>(forward.allocate(256, 4)); };
  float* const stale = piece();
  std::fill_n(stale, 64, 1.0f);
  forward.reset();
  float* const live = piece();
  EXPECT_NE(live, stale);
  std::fill_n(live, 64, 2.0f);
  const volatile float* const seen = stale;
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_TRUE(std::isnan(seen[i])) << "the values of the next step would look right";
  stale_write(reinterpret_cast<std::byte*>(stale) + 200, 1);
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_EQ(live[i], 2.0f);
  EXPECT_TRUE(support::contains(
      support::error_of(ErrorCode::use_after_reset, [&] { forward.reset(); }), "byte 200"));
}

TEST(Scopes, StepsAreCleanAgainAfterOneThatWasNot) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  std::byte* const stale = take(forward, 512);
  forward.reset();
  stale_write(stale + 500, 4);        // in the slab of the step before
  stale_write(take(forward, 64), 80); // and past a piece of this one
  (void)support::error_of(ErrorCode::use_after_reset, [&] { forward.reset(); });
  for (int step = 0; step < 4; ++step) {
    std::memset(take(forward, 1024, 1), step, 1024);
    forward.reset();
  }
  EXPECT_EQ(forward.steps(), 6u);
}

TEST(Scopes, WritingBetweenPiecesIsFound) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  std::byte* const piece = take(forward, 5, 1);
  take(forward, 64, 64);
  stale_write(piece, 6);
  EXPECT_TRUE(support::contains(
      support::error_of(ErrorCode::use_after_reset, [&] { forward.reset(); }), "byte 5"));
}

TEST(Scopes, WritingPastAPieceIsFound) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  std::byte* const piece = take(forward, 64);
  stale_write(piece, 65);
  (void)support::error_of(ErrorCode::use_after_reset, [&] { forward.reset(); });
}

TEST(Scopes, WritingAfterResetOutsideTheSlabIsFound) {
  ForwardScope forward(16, no_trace, ResetChecks::on);
  std::byte* const stale = take(forward, 512);
  forward.reset();
  stale_write(stale + 511, 1);
  const std::string message =
      support::error_of(ErrorCode::use_after_reset, [&] { forward.reset(); });
  EXPECT_TRUE(support::contains(message, "outside the slab"));
}

TEST(Scopes, ProperUsePassesTheChecks) {
  CountingTrace counts;
  ForwardScope forward(1024, counts, ResetChecks::on);
  for (int step = 0; step < 100; ++step) {
    for (std::size_t bytes : {1u, 7u, 64u, 300u, 500u, 600u})
      std::memset(take(forward, bytes, bytes % 2 == 0 ? 32 : 1), step, bytes);
    forward.reset();
  }
  EXPECT_EQ(counts.allocated_bytes() - counts.freed_bytes(), 2048u) << "two slabs, and no more";
}

TEST(Scopes, CheckedStepsAreAFlatLineToo) {
  ForwardScope forward(1024, no_trace, ResetChecks::on);
  const auto step = [&] {
    for (std::size_t bytes : {1u, 7u, 64u, 300u})
      std::memset(take(forward, bytes, 16), 1, bytes);
    forward.reset();
  };
  step();
  EXPECT_EQ(support::count_allocations([&] {
              for (int i = 0; i < 1000; ++i)
                step();
            }),
            0u);
  EXPECT_EQ(forward.peak_bytes(), 372u);
}

#endif

} // namespace
