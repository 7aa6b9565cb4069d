#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/q4_0.hpp>
#include <quern/matrix_view.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/step_span.hpp>
#include <quern/strided_view.hpp>
#include <quern/trace_sinks.hpp>

#include "support/weights.hpp"

/// @file
/// Who owns memory: scopes what they handed out, weights their own, views nothing.

namespace {

using namespace quern;

// A view can't free what it sees: it has no destructor to do so, and copies are bytes.
template <class View>
constexpr bool borrows =
    std::is_trivially_copyable_v<View>&& std::is_trivially_destructible_v<View>;
static_assert(borrows<PackedView<Q4_0, RowMajor>> && borrows<PackedView<Q4_0, InputBlockMajor>>);
static_assert(borrows<MatrixView<const float>> && borrows<StridedView<float>>);
static_assert(borrows<StepSpan<float>>);

// A scope is one place: nobody copies or moves it, and it is told apart by its address.
template <class S>
constexpr bool stays = !std::is_copy_constructible_v<S> && !std::is_move_constructible_v<S> &&
                       !std::is_copy_assignable_v<S> && !std::is_move_assignable_v<S>;
static_assert(stays<ModelScope> && stays<ForwardScope> && std::is_abstract_v<Scope>);

TEST(ScopeRules, LivePiecesNeverOverlapAndAreAligned) {
  ModelScope model;
  ForwardScope forward(1 << 14, no_trace, ResetChecks::on);
  for (Scope* const scope : {static_cast<Scope*>(&model), static_cast<Scope*>(&forward)}) {
    support::Random random(11);
    std::vector<std::span<std::byte>> pieces;
    for (int i = 0; i < 200; ++i) { // the later ones do not fit the slab
      const std::size_t bytes = 1 + random.bits() % 300;
      const std::size_t alignment = std::size_t{1} << (random.bits() % 8);
      auto* const data = static_cast<std::byte*>(scope->allocate(bytes, alignment));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0u);
      std::fill_n(data, bytes, static_cast<std::byte>(i));
      pieces.emplace_back(data, bytes);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i)
      for (const std::byte byte : pieces[i])
        ASSERT_EQ(byte, static_cast<std::byte>(i)) << "piece " << i << " was written by another";
  }
  EXPECT_GT(forward.overflow_bytes(), 0u);
  forward.reset();
}

TEST(ScopeRules, ViewsTakeNoMemoryAndReportNothing) {
  CountingTrace counts;
  const auto bytes = support::counting_weight(4, 3);
  ModelScope scope(counts);
  {
    const PackedView<Q4_0, RowMajor> weight(bytes, OutIn{4, 96});
    const auto part = weight.narrow_out(1, 2).narrow_blocks(1, 1);
    EXPECT_EQ(part.get(0, 0), 5.0f);
    EXPECT_EQ(prepack<RowMajor>(weight, scope, counts).data(), bytes.data());
  }
  EXPECT_EQ(counts.count(), 0u);
  EXPECT_EQ(scope.live_bytes(), 0u);
  EXPECT_EQ(bytes, support::counting_weight(4, 3));
}

TEST(ScopeRules, AWeightOutsideScopesIsItsOwnOwner) {
  CountingTrace counts;
  ModelScope scope(counts);
  const auto bytes = support::counting_weight(4, 3);
  PackedWeight<Q4_0, RowMajor> weight(bytes, OutIn{4, 96});
  const auto* const place = std::as_const(weight).bytes().data();
  // In place: what moves is counted as an adapter, and no scope takes or gives anything.
  const auto relaid = prepack<InputBlockMajor>(std::move(weight), counts);
  EXPECT_EQ(relaid.bytes().data(), place);
  EXPECT_EQ(counts.count(), 1u);
  EXPECT_EQ(counts.adapters("prepack").bytes, bytes.size());
  EXPECT_EQ(scope.live_bytes(), 0u);
}

TEST(ScopeRules, AScopeFreesOnlyWhatItGave) {
  CountingTrace counts;
  ModelScope first(counts);
  ModelScope second(counts);
  std::vector<std::byte> own(64);
  void* const piece = first.allocate(64);
  second.deallocate(piece, 64);
  second.deallocate(own.data(), own.size());
  EXPECT_EQ(first.live_bytes(), 64u);
  EXPECT_EQ(counts.count<Free>(), 0u);
  EXPECT_FALSE(first.is_equal(second)) << "memory of one is not memory of the other";
  first.deallocate(piece, 64);
  EXPECT_EQ(counts.count<Free>(), 1u);
}

TEST(ScopeRules, AModelScopeDrawsFromTheResourceItIsGiven) {
  CountingTrace counts;
  std::pmr::monotonic_buffer_resource arena;
  ModelScope scope(counts, &arena);
  const auto bytes = support::counting_weight(4, 3);
  const auto weight =
      prepack<InputBlockMajor>(PackedView<Q4_0, RowMajor>(bytes, OutIn{4, 96}), scope);
  EXPECT_EQ(weight.get(3, 95), 12.0f);
  EXPECT_EQ(scope.live_bytes(), bytes.size());
  EXPECT_EQ(counts.allocated_bytes(), bytes.size());
}

TEST(ScopeRules, MoreBytesThanAnObjectCanHaveAreRefused) {
  // Rounded up to an alignment, such a number may become a small one.
  CountingTrace counts;
  ModelScope model(counts);
  ForwardScope forward(64, counts);
  for (const volatile std::size_t below : {1u, 17u, 63u, 4096u}) { // unknown to the compiler
    const std::size_t bytes = 0 - below;
    EXPECT_THROW((void)model.allocate(bytes, 64), std::bad_alloc);
    EXPECT_THROW((void)forward.allocate(bytes, 64), std::bad_alloc);
    EXPECT_THROW(ForwardScope(bytes, counts), std::bad_alloc);
  }
  EXPECT_EQ(model.live_bytes() + forward.live_bytes() + forward.overflow_bytes(), 0u);
  EXPECT_EQ(counts.allocated_bytes(), 64u);
}

TEST(ScopeRules, TextSaysKindAndBytes) {
  ModelScope model;
  void* const piece = model.allocate(200);
  (void)model.allocate(16);
  model.deallocate(piece, 200);
  EXPECT_EQ(to_string(model), "model scope, 16 bytes live, 216 at most");
  ForwardScope forward(64);
  EXPECT_EQ(to_string(forward), "forward scope, 0 bytes live, 0 at most");
}

} // namespace
