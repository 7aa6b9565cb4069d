// floor: 7.3
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <quern/detail/checked.hpp>
#include <quern/error.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/split.hpp>
#include <quern/plan_tensor.hpp>
#include <quern/trace.hpp>

namespace quern {

/// A conversion that could be given up, and the bytes that would save.
struct Suggestion {
  std::string_view tensor; ///< its name, owned by the plan
  std::size_t saving;      ///< bytes
  std::string text;        ///< the whole of it as a sentence
};

/// What loading a model will do and what it will cost, known from the header alone. Valid as long
/// as the files it was made from.
class ModelPlan {
public:
  /// Made by plan_model(). `budget` is in bytes.
  explicit ModelPlan(std::vector<PlannedTensor> tensors, std::size_t budget)
      : tensors_(std::move(tensors)), budget_(budget) {}

  /// One entry per tensor, in file order.
  [[nodiscard]] std::span<const PlannedTensor> tensors() const noexcept { return tensors_; }
  /// Bytes that the loaded tensors may take, mapped ones included.
  [[nodiscard]] std::size_t budget() const noexcept { return budget_; }

  /// Bytes of all tensors as they are in the files.
  [[nodiscard]] std::size_t bytes_before() const { return sum(&PlannedTensor::bytes_before); }
  /// Bytes of all tensors as they will be, in memory and in mapped files together.
  [[nodiscard]] std::size_t bytes() const { return sum(&PlannedTensor::bytes); }
  /// Those of them that a scope will hold.
  [[nodiscard]] std::size_t new_bytes() const {
    return sum([](const PlannedTensor& tensor) { return tensor.new_bytes(); });
  }
  /// Those of them that stay in mapped files; the system may drop and read them again.
  [[nodiscard]] std::size_t mapped_bytes() const {
    return sum([](const PlannedTensor& tensor) {
      return tensor.residency == WeightResidency::mapped ? tensor.bytes : 0;
    });
  }
  /// Tensors whose bytes will differ from the file's.
  [[nodiscard]] std::size_t conversions() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(tensors_, [](const auto& tensor) { return !tensor.keeps_bytes(); }));
  }
  /// True when bytes() is within the budget.
  [[nodiscard]] bool fits() const { return bytes() <= budget_; }

  /// What could be given up to need less, largest saving first: conversions that make a tensor
  /// larger. Empty when there is none.
  [[nodiscard]] std::vector<Suggestion> suggestions() const {
    std::vector<Suggestion> result;
    for (const std::size_t i : by_saving()) {
      const PlannedTensor& tensor = tensors_[i];
      result.push_back({tensor.name, saving(tensor),
                        "keep " + gguf::detail::in_quotes(tensor.name) + " in " +
                            tensor.stored_name() + " instead of " + tensor.type_name() +
                            ": saves " + std::to_string(saving(tensor)) + " bytes"});
    }
    return result;
  }

  /// Gives up conversions that make a tensor larger, largest saving first, until the plan fits or
  /// none is left. Each is a downgrade of its tensor. Returns fits().
  bool fit_to_budget() {
    if (fits()) return true;
    const std::vector<std::size_t> order = by_saving();
    // From the small end, how many conversions there is room for.
    std::size_t total =
        sum([](const PlannedTensor& tensor) { return tensor.bytes - saving(tensor); });
    std::size_t given_up = order.size();
    while (given_up > 0) {
      const auto more = detail::checked_add(total, saving(tensors_[order[given_up - 1]]));
      if (!more || *more > budget_) break;
      total = *more;
      --given_up;
    }
    for (const std::size_t i : std::span(order).first(given_up))
      tensors_[i].keep_as_stored("the model would exceed its budget of " + std::to_string(budget_) +
                                 " bytes");
    return fits();
  }

private:
  /// Bytes that the conversion of a tensor adds.
  [[nodiscard]] static std::size_t saving(const PlannedTensor& tensor) noexcept {
    return tensor.bytes - std::min(tensor.bytes, tensor.bytes_before);
  }
  /// The tensors whose conversion adds bytes, by their place in the plan, the most first.
  [[nodiscard]] std::vector<std::size_t> by_saving() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (saving(tensors_[i]) != 0) found.push_back(i);
    std::ranges::stable_sort(found, std::ranges::greater{},
                             [this](std::size_t i) { return saving(tensors_[i]); });
    return found;
  }
  template <class Value>
  [[nodiscard]] std::size_t sum(Value value) const {
    std::size_t total = 0;
    for (const PlannedTensor& tensor : tensors_)
      total = detail::checked_add(total, std::size_t{std::invoke(value, tensor)})
                  .value_or(std::numeric_limits<std::size_t>::max());
    return total;
  }

  std::vector<PlannedTensor> tensors_;
  std::size_t budget_;
};

namespace detail {

inline void plan_file(const gguf::File& file, const FormPolicy& policy,
                      std::vector<PlannedTensor>& planned) {
  for (const gguf::Tensor& tensor : file.tensors())
    planned.push_back(plan_tensor(file, tensor, policy));
}

inline ModelPlan finish_plan(std::vector<PlannedTensor> planned, std::size_t budget,
                             const FormPolicy& policy, Trace& trace) {
  if (policy.strict) refuse_downgrades("quern::plan_model", planned);
  ModelPlan plan(std::move(planned), budget);
  trace.emit(ModelPlanned{plan.tensors().size(), plan.conversions(), plan.bytes_before(),
                          plan.bytes(), budget});
  return plan;
}

} // namespace detail

/// Plans the loading of all tensors of a file. Reads no tensor data. Emits ModelPlanned. With
/// `policy.strict`, throws Error(refused) when a tensor could not be loaded as asked, naming the
/// first eight and counting the others.
[[nodiscard]] inline ModelPlan plan_model(const gguf::File& file, std::size_t budget,
                                          const FormPolicy& policy = {}, Trace& trace = no_trace) {
  std::vector<PlannedTensor> planned;
  detail::plan_file(file, policy, planned);
  return detail::finish_plan(std::move(planned), budget, policy, trace);
}

/// The same for all files of a split set.
[[nodiscard]] inline ModelPlan plan_model(const gguf::SplitSet& files, std::size_t budget,
                                          const FormPolicy& policy = {}, Trace& trace = no_trace) {
  std::vector<PlannedTensor> planned;
  for (const gguf::File& file : files.files())
    detail::plan_file(file, policy, planned);
  return detail::finish_plan(std::move(planned), budget, policy, trace);
}

/// One line with the totals, and one for each tensor that is converted or downgraded.
[[nodiscard]] inline std::string to_string(const ModelPlan& plan) {
  std::string text = std::to_string(plan.tensors().size()) + " tensors, " +
                     std::to_string(plan.bytes_before()) + " bytes in files, " +
                     std::to_string(plan.bytes()) + " bytes when loaded (" +
                     std::to_string(plan.new_bytes()) + " new, " +
                     std::to_string(plan.mapped_bytes()) + " mapped), budget " +
                     std::to_string(plan.budget()) + (plan.fits() ? ": fits\n" : ": too large\n");
  for (const PlannedTensor& tensor : plan.tensors())
    if (!tensor.keeps_bytes() || !tensor.downgrades.empty()) text += to_string(tensor) + "\n";
  return text;
}

} // namespace quern
