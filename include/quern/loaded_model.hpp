// floor: 7.4
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <quern/any_view.hpp>
#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/formats.hpp>
#include <quern/gguf/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/plan_tensor.hpp>
#include <quern/weight_form.hpp>

namespace quern {

/// A loaded tensor: where its bytes are, and the types to read them with. It does not own them:
/// they are valid as long as the scope they were loaded into, or the file when it was not copied.
class LoadedTensor {
public:
  /// Made by load(). `bytes` are as `plan` says.
  LoadedTensor(PlannedTensor plan, std::span<const std::byte> bytes)
      : plan_(std::move(plan)), bytes_(bytes) {
    plan_.stored = {};
    plan_.reader = {};
  }

  /// What was done and why.
  [[nodiscard]] const PlannedTensor& plan() const noexcept { return plan_; }
  /// The name in the file.
  [[nodiscard]] const std::string& name() const noexcept { return plan_.name; }
  /// The shape of one matrix.
  [[nodiscard]] OutIn shape() const noexcept { return plan_.shape; }
  /// Matrices in the tensor.
  [[nodiscard]] std::size_t slices() const noexcept { return plan_.slices; }
  /// row_major or input_block_major.
  [[nodiscard]] WeightOrder order() const noexcept { return plan_.order; }
  /// Where the bytes are: in the mapped file, or in memory, of a scope or of a file that is not
  /// mapped.
  [[nodiscard]] WeightResidency residency() const noexcept { return plan_.residency; }
  /// All bytes, slice after slice. Empty for a skipped tensor.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// The matrix, in format F and order O. Throws Error(wrong_format) when it was loaded in others,
  /// and Error(not_a_matrix) when the tensor has several and none is named.
  template <BlockFormat F, BlockOrder O>
  [[nodiscard]] PackedView<F, O> as(std::optional<std::size_t> slice = std::nullopt) const {
    if (plan_.type != F::gguf_type || order_name() != O::name)
      throw Error(ErrorCode::wrong_format,
                  "quern::LoadedTensor::as: " + gguf::detail::in_quotes(name()) + " is " +
                      plan_.type_name() + " in " + std::string(order_name()) + ", not " +
                      std::string(F::name) + " in " + std::string(O::name) +
                      "; ask for the form it was loaded in, or use visit");
    return {slice_bytes(slice), plan_.shape};
  }

  /// Calls `f` with the view of the format and order that the matrix has, and returns what it
  /// returns, which must be of one type for all. Throws Error(wrong_format) for tensors that are
  /// no weights, and Error(not_a_matrix) as above.
  template <class Visitor>
  decltype(auto) visit(Visitor&& f, std::optional<std::size_t> slice = std::nullopt) const {
    const auto format = find_format(plan_.type);
    if (!format)
      throw Error(ErrorCode::wrong_format,
                  "quern::LoadedTensor::visit: " + gguf::detail::in_quotes(name()) + " is " +
                      plan_.type_name() + ", which is no weight format; bytes() gives its data");
    return boost::mp11::mp_with_index<format_count>(*format, [&](auto i) -> decltype(auto) {
      using F = boost::mp11::mp_at_c<Formats, i>;
      const std::span<const std::byte> one = slice_bytes(slice);
      if (plan_.order == WeightOrder::input_block_major)
        return std::forward<Visitor>(f)(PackedView<F, InputBlockMajor>{one, plan_.shape});
      return std::forward<Visitor>(f)(PackedView<F, RowMajor>{one, plan_.shape});
    });
  }

  /// The matrix as a variant of views. Throws as visit() does.
  [[nodiscard]] AnyView view(std::optional<std::size_t> slice = std::nullopt) const {
    return visit([](const auto& typed) { return AnyView(typed); }, slice);
  }

private:
  [[nodiscard]] std::string_view order_name() const noexcept {
    return plan_.order == WeightOrder::input_block_major ? InputBlockMajor::name : RowMajor::name;
  }

  [[nodiscard]] std::span<const std::byte> slice_bytes(std::optional<std::size_t> slice) const {
    if (!slice && plan_.slices != 1)
      throw Error(ErrorCode::not_a_matrix,
                  "quern::LoadedTensor: " + gguf::detail::in_quotes(name()) + " has " +
                      std::to_string(plan_.slices) + " matrices; name the slice that you want");
    if (slice.value_or(0) >= plan_.slices)
      throw Error(ErrorCode::out_of_range, "quern::LoadedTensor: slice " + std::to_string(*slice) +
                                               " of " + gguf::detail::in_quotes(name()) +
                                               ", which has " + std::to_string(plan_.slices));
    const std::size_t size = bytes_.size() / plan_.slices;
    return bytes_.subspan(slice.value_or(0) * size, size);
  }

  PlannedTensor plan_;
  std::span<const std::byte> bytes_;
};

/// All tensors of a model, by name and in file order. Owns no bytes, see LoadedTensor.
class LoadedModel {
public:
  /// Made by load_model(). Of several tensors of one name, find() gives the first.
  explicit LoadedModel(std::vector<LoadedTensor> tensors) : tensors_(std::move(tensors)) {
    index_.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      index_.emplace(tensors_[i].name(), i);
  }
  // The index refers to the names, which stay in place when the model is moved.
  /// Takes the tensors over: what was taken from the other model stays valid.
  LoadedModel(LoadedModel&&) noexcept = default;
  /// The same; what was taken from this model before is invalid.
  LoadedModel& operator=(LoadedModel&&) noexcept = default;

  /// All tensors, in file order.
  [[nodiscard]] std::span<const LoadedTensor> tensors() const& noexcept { return tensors_; }
  /// The tensor of this name, or null.
  [[nodiscard]] const LoadedTensor* find(std::string_view name) const& noexcept {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }
  /// The tensor of this name. Throws Error(no_such_tensor).
  [[nodiscard]] const LoadedTensor& at(std::string_view name) const& {
    if (const LoadedTensor* const tensor = find(name)) return *tensor;
    throw Error(ErrorCode::no_such_tensor, "quern::LoadedModel: no tensor " +
                                               gguf::detail::in_quotes(name) + " among the " +
                                               std::to_string(tensors_.size()) + " of the model");
  }

  // clang-format off
  std::span<const LoadedTensor> tensors() const&& QUERN_DELETED("quern::LoadedModel: tensors of a temporary would dangle; keep the model in a variable");
  const LoadedTensor* find(std::string_view) const&& QUERN_DELETED("quern::LoadedModel: a tensor of a temporary would dangle; keep the model in a variable");
  const LoadedTensor& at(std::string_view) const&& QUERN_DELETED("quern::LoadedModel: a tensor of a temporary would dangle; keep the model in a variable");
  // clang-format on

private:
  std::vector<LoadedTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

/// One line for each tensor that was converted or downgraded.
[[nodiscard]] inline std::string report(const LoadedModel& model) {
  std::string text;
  for (const LoadedTensor& tensor : model.tensors())
    if (!tensor.plan().keeps_bytes() || !tensor.plan().downgrades.empty())
      text += to_string(tensor.plan()) + "\n";
  return text;
}

} // namespace quern
