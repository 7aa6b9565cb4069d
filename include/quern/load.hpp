// floor: 7.6
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/detail/config.hpp>
#include <quern/error.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/type.hpp>
#include <quern/load_pieces.hpp>
#include <quern/loaded_model.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/plan_model.hpp>
#include <quern/plan_tensor.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>
#include <quern/weight_form.hpp>

/// @file
/// From a file to weights in memory. What has to be copied goes in pieces straight to its final
/// place and form, so there never is a second copy of a tensor.

namespace quern {

namespace detail {

/// The event of a tensor that was converted.
inline AdapterInserted load_event(const PlannedTensor& plan, const Scope& scope) {
  if (!plan.converts())
    return {"prepack",    RowMajor::name, InputBlockMajor::name, plan.bytes_before, plan.bytes,
            scope.kind(), plan.name};
  const bool dense = gguf::find_type(plan.type)->block_size == 1;
  const std::string_view kind = plan.relays()
                                    ? (dense ? "dequantize+prepack" : "requantize+prepack")
                                    : (dense ? "dequantize" : "requantize");
  return {kind,
          gguf::find_type(plan.stored_type)->name,
          gguf::find_type(plan.type)->name,
          plan.bytes_before,
          plan.bytes,
          scope.kind(),
          plan.name};
}

/// Loads and returns what `finish` makes of the tensors. When that fails too, nothing stays taken.
template <class Finish>
[[nodiscard]] auto load_all(std::span<const PlannedTensor> planned, Scope& scope, Trace& trace,
                            const LoadOptions& options, Finish finish) {
  if (!scope.holds_weights())
    throw Error(ErrorCode::scope_kind,
                "quern::load: a " + std::string(scope.kind()) +
                    " scope frees its memory at every step; load into a ModelScope");
  if (options.strict) refuse_downgrades("quern::load", planned);
  const Phase phase(trace, "load");
  LoadMemory memory(scope);
  PieceLoader loader(options);
  std::vector<LoadedTensor> loaded;
  loaded.reserve(planned.size());
  for (const PlannedTensor& plan : planned) {
    const std::span<std::byte> to = memory.take(plan.new_bytes());
    if (plan.copies) loader.add(plan, to);
    loaded.emplace_back(plan, plan.copies ? to : plan.stored);
  }
  loader.run();
  auto result = finish(std::move(loaded));
  memory.keep();
  for (const PlannedTensor& plan : planned)
    if (!plan.keeps_bytes()) trace.emit(load_event(plan, scope));
  return result;
}

} // namespace detail

/// Loads one tensor as it was planned. Copies go to `scope`; a tensor that stays as it is in the
/// file costs nothing. Emits one AdapterInserted event when the bytes change: of kind "prepack",
/// "dequantize" or "requantize", or both at once.
///
/// Throws Error(scope_kind) when the scope does not hold weights, Error(unknown_type) for a tensor
/// that can't be loaded, Error(refused) for a downgrade with `options.strict`, std::bad_alloc, what
/// encoding throws (with tensor, row and column) and what `options.progress` throws. Then the scope
/// has given back what the call took.
[[nodiscard]] inline LoadedTensor load(const PlannedTensor& plan, Scope& scope,
                                       Trace& trace = no_trace, const LoadOptions& options = {}) {
  if (plan.skipped)
    throw Error(ErrorCode::unknown_type, "quern::load: tensor " +
                                             gguf::detail::in_quotes(plan.name) + " is of " +
                                             plan.stored_name() + ", so its size is not known");
  return detail::load_all({&plan, 1}, scope, trace, options,
                          [](auto tensors) { return std::move(tensors.front()); });
}

/// Loads the tensor `name` in the form asked for, as far as that is possible: `plan()` of the
/// result tells what was not. Throws as above, and Error(no_such_tensor).
[[nodiscard]] inline LoadedTensor load(const gguf::File& file, std::string_view name,
                                       const WeightForm& form, Scope& scope,
                                       Trace& trace = no_trace, const LoadOptions& options = {}) {
  FormPolicy policy;
  policy.form_of = [&](const gguf::Tensor&) { return form; };
  return load(plan_tensor(file, file.tensors().at(name), policy), scope, trace, options);
}

/// The matrix `name`, which the file has in format F, with its blocks in order O: RowMajor is a
/// view of the file, InputBlockMajor a copy in `scope`. Throws as above, and Error(wrong_format)
/// when the file has another format.
template <BlockFormat F, BlockOrder O>
[[nodiscard]] PackedView<F, O> load(const gguf::File& file, std::string_view name, Scope& scope,
                                    Trace& trace = no_trace, const LoadOptions& options = {}) {
  const PackedView<F, RowMajor> stored = file.weight<F>(name); // refuses other formats and stacks
  if constexpr (std::same_as<O, RowMajor>)
    return stored;
  else
    return load(file, name, {{}, WeightOrder::input_block_major, WeightResidency::mapped}, scope,
                trace, options)
        .template as<F, O>();
}

/// Loads all tensors of a plan. Emits a phase "load" and the events of the tensors in plan order.
/// The files must still be open. Throws as load() does; skipped tensors are no error here unless
/// `options.strict` says so.
[[nodiscard]] inline LoadedModel load_model(const ModelPlan& plan, Scope& scope,
                                            Trace& trace = no_trace,
                                            const LoadOptions& options = {}) {
  return detail::load_all(plan.tensors(), scope, trace, options,
                          [](auto tensors) { return LoadedModel(std::move(tensors)); });
}

// clang-format off
template <class... Rest>
void load(const PlannedTensor&, ForwardScope&, Rest&&...) QUERN_DELETED("quern::load: a ForwardScope frees its memory at every step, so no weight can live there; load into a ModelScope");
template <class... Rest>
void load(const gguf::File&, std::string_view, const WeightForm&, ForwardScope&, Rest&&...) QUERN_DELETED("quern::load: a ForwardScope frees its memory at every step, so no weight can live there; load into a ModelScope");
template <BlockFormat F, BlockOrder O, class... Rest>
void load(const gguf::File&, std::string_view, ForwardScope&, Rest&&...) QUERN_DELETED("quern::load: a ForwardScope frees its memory at every step, so no weight can live there; load into a ModelScope");
template <class... Rest>
void load_model(const ModelPlan&, ForwardScope&, Rest&&...) QUERN_DELETED("quern::load_model: a ForwardScope frees its memory at every step, so no weight can live there; load into a ModelScope");
// clang-format on

} // namespace quern
