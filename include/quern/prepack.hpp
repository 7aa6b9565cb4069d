// floor: 4
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <quern/block_format.hpp>
#include <quern/detail/relayout.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>

/// @file
/// The only way from one block order to the other. It is a visible call, its bytes live where the
/// caller says, and it emits one event with its price.

namespace quern {

/// The weight already is in the order asked for: the same view, no bytes moved, no event.
template <BlockOrder To, BlockFormat F>
[[nodiscard]] constexpr PackedView<F, To> prepack(PackedView<F, To> weight) noexcept {
  return weight;
}

/// The same when a scope is at hand; it stays untouched.
template <BlockOrder To, BlockFormat F>
[[nodiscard]] constexpr PackedView<F, To> prepack(PackedView<F, To> weight, Scope& /*scope*/,
                                                  Trace& /*trace*/ = no_trace) noexcept {
  return weight;
}

/// Copies the blocks of `weight` into `scope` in order `To`. The result is gap-free, also for a
/// narrowed view, and valid as long as the scope. The decoded matrix is the same. Emits one
/// AdapterInserted event of kind "prepack" with the bytes moved. Throws Error(scope_kind) when the
/// scope does not hold weights, and std::bad_alloc.
template <BlockOrder To, BlockFormat F>
[[nodiscard]] PackedView<F, To> prepack(PackedView<F, OtherOrder<To>> weight, Scope& scope,
                                        Trace& trace = no_trace) {
  if (!scope.holds_weights())
    throw Error(ErrorCode::scope_kind,
                "quern::prepack: a " + std::string(scope.kind()) +
                    " scope frees its memory at every step; prepack into a ModelScope");
  const std::size_t bytes = weight.bytes();
  std::span<std::byte> result;
  if (bytes != 0) {
    result = {static_cast<std::byte*>(scope.allocate(bytes, detail::cache_line)), bytes};
    const bool by_rows = std::same_as<To, InputBlockMajor>;
    detail::relayout<F::bytes_per_block>(weight.data(), weight.stride(), result.data(),
                                         by_rows ? weight.out() : weight.blocks_per_row(),
                                         by_rows ? weight.blocks_per_row() : weight.out());
  }
  trace.emit(
      AdapterInserted{"prepack", OtherOrder<To>::name, To::name, bytes, bytes, scope.kind()});
  return PackedView<F, To>{result, weight.shape()};
}

/// An owned weight already in the order asked for is handed through.
template <BlockOrder To, BlockFormat F>
[[nodiscard]] PackedWeight<F, To> prepack(PackedWeight<F, To>&& weight,
                                          Trace& /*trace*/ = no_trace) noexcept {
  return std::move(weight);
}

/// Reorders an owned weight in its own memory. Besides it, less than half of its bytes are needed
/// for a while: at most about 0.5 MiB and a bit per group of blocks, unless a row of the shorter
/// extent is longer than 32 KiB. Emits one AdapterInserted event of kind "prepack" with scope
/// "owned". Throws std::bad_alloc, and then the weight is unchanged.
template <BlockOrder To, BlockFormat F>
[[nodiscard]] PackedWeight<F, To> prepack(PackedWeight<F, OtherOrder<To>>&& weight,
                                          Trace& trace = no_trace) {
  const OutIn shape = weight.shape();
  const std::size_t blocks_per_row = shape.in / F::block_size;
  const bool by_rows = std::same_as<To, InputBlockMajor>;
  const std::size_t bytes = weight.bytes().size();
  auto result = std::move(weight).reordered([&](std::span<std::byte> blocks) {
    detail::relayout_in_place<F::bytes_per_block>(blocks.data(),
                                                  by_rows ? shape.out.value() : blocks_per_row,
                                                  by_rows ? blocks_per_row : shape.out.value());
  });
  trace.emit(AdapterInserted{"prepack", OtherOrder<To>::name, To::name, bytes, bytes, "owned"});
  return result;
}

// clang-format off
template <BlockOrder To, BlockFormat F>
void prepack(PackedView<F, OtherOrder<To>>) QUERN_DELETED("quern::prepack: a relayout needs a place for its bytes; pass the scope that holds them, prepack<To>(view, model_scope)");
template <BlockOrder To, BlockFormat F, BlockOrder From>
  requires(!std::same_as<From, To>)
void prepack(PackedView<F, From>, ForwardScope&, Trace& = no_trace) QUERN_DELETED("quern::prepack: a ForwardScope frees its memory at every step, so no weight can live there; prepack into a ModelScope");
template <BlockOrder To, AnyPackedWeight Owned, class... Rest>
  requires(std::is_lvalue_reference_v<Owned>)
void prepack(Owned&&, Rest&&...) QUERN_DELETED("quern::prepack: an owned weight is reordered in its own memory; hand it over, prepack<To>(std::move(weight)), or copy it, prepack<To>(weight.view(), model_scope)");
template <BlockOrder To, class Dense, class... Rest>
  requires(!AnyPackedView<Dense> && !AnyPackedWeight<Dense>)
void prepack(const Dense&, Rest&&...) QUERN_DELETED("quern::prepack: only a packed weight has a block order; a dense matrix needs no prepack, or quantize<Format>() first");
// clang-format on

} // namespace quern
