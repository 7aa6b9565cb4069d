// floor: 7.2
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
#include <vector>

#include <quern/detail/checked.hpp>
#include <quern/error.hpp>
#include <quern/formats.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/mapped_reader.hpp>
#include <quern/gguf/tensor.hpp>
#include <quern/gguf/type.hpp>
#include <quern/kernel_set.hpp>
#include <quern/order.hpp>
#include <quern/shape.hpp>
#include <quern/weight_form.hpp>

/// @file
/// What loading one tensor will do: the form asked for, the form it will get, and why the two
/// differ when they do.

namespace quern {

/// In which form tensors are to be loaded.
struct FormPolicy {
  /// The form of every matrix that is a weight; nothing: what resolve_form() chooses.
  std::optional<WeightForm> form;
  /// The form of a single tensor, which outranks `form`; nothing: as if it were not set.
  std::function<std::optional<WeightForm>(const gguf::Tensor&)> form_of;
  /// Where weights are to be whose form resolve_form() chooses.
  WeightResidency residency = WeightResidency::mapped;
  /// The kernels to choose for.
  KernelSet kernels = KernelSet::of_this_cpu();
  /// Refuse what else would be a downgrade in the report.
  bool strict = false;
};

/// How one tensor will be loaded. Made by plan_tensor().
struct PlannedTensor {
  std::string name;                           ///< as in the file
  OutIn shape{};                              ///< of one matrix
  std::size_t slices = 1;                     ///< matrices in the tensor
  std::uint32_t stored_type = 0;              ///< GGUF type in the file
  std::uint32_t type = 0;                     ///< GGUF type when loaded
  WeightForm asked{};                         ///< by the caller or by resolve_form()
  WeightOrder order = WeightOrder::row_major; ///< when loaded: row_major or input_block_major
  WeightResidency residency = WeightResidency::mapped; ///< when loaded
  bool copies = false;                                 ///< whether a scope has to hold the bytes
  bool skipped = false;                ///< the type is unknown, so the tensor can't be loaded
  std::size_t bytes_before = 0;        ///< in the file
  std::size_t bytes = 0;               ///< when loaded
  std::vector<std::string> downgrades; ///< what was not done as asked, or done unasked, and why
  std::span<const std::byte> stored;   ///< the data, in the file; valid as long as that
  gguf::MappedReader reader;           ///< of the file, when it is mapped
  bool file_is_mapped = false;         ///< whether `stored` lies in a mapping of the file

  /// True when the values are decoded and encoded anew.
  [[nodiscard]] bool converts() const noexcept { return type != stored_type; }
  /// True when the blocks change places. In a single row or column of blocks they have no other.
  [[nodiscard]] bool relays() const noexcept {
    return order == WeightOrder::input_block_major && !orders_coincide(shape.out, blocks_per_row());
  }
  /// True when the bytes will be those of the file.
  [[nodiscard]] bool keeps_bytes() const noexcept { return !converts() && !relays(); }
  /// Blocks in a row when loaded; 0 for a skipped tensor.
  [[nodiscard]] std::size_t blocks_per_row() const noexcept {
    const gguf::Type* const loaded = gguf::find_type(type);
    return loaded == nullptr ? 0 : shape.in / loaded->block_size;
  }
  /// Bytes to allocate.
  [[nodiscard]] std::size_t new_bytes() const noexcept { return copies ? bytes : 0; }
  /// The type in the file, as gguf::type_name() says it.
  [[nodiscard]] std::string stored_name() const { return gguf::type_name(stored_type); }
  /// The type when loaded, likewise.
  [[nodiscard]] std::string type_name() const { return gguf::type_name(type); }

  /// Gives up all conversions, for the reason given.
  void keep_as_stored(const std::string& reason) {
    downgrades.push_back("kept as stored (" + stored_name() + "), not " + type_name() + ": " +
                         reason);
    type = stored_type;
    order = WeightOrder::row_major;
    bytes = bytes_before;
    copies = copies && asked.residency == WeightResidency::memory;
    residency = !copies && file_is_mapped ? WeightResidency::mapped : WeightResidency::memory;
  }
};

/// "blk.0.w": Q4_K 144 bytes -> F32, InputBlockMajor, memory, 1024 bytes; and the downgrades.
[[nodiscard]] inline std::string to_string(const PlannedTensor& tensor) {
  std::string text = gguf::detail::in_quotes(tensor.name) + ": " + tensor.stored_name() + ", " +
                     std::to_string(tensor.bytes_before) + " bytes -> " + tensor.type_name() +
                     ", " + std::string(to_string(tensor.order)) + ", " +
                     std::string(to_string(tensor.residency)) + ", " +
                     std::to_string(tensor.bytes) + " bytes";
  for (const std::string& downgrade : tensor.downgrades)
    text += "; " + downgrade;
  return text;
}

/// A form and, when it converts although nobody asked, the reason.
struct ResolvedForm {
  WeightForm form;        ///< what suits the kernels
  std::string conversion; ///< empty: the encoding is kept
};

/// The form that suits the kernels: the stored format in the order of its best kernel; where no
/// kernel reads the format, values decoded once to float. Single numbers stay as they are.
[[nodiscard]] inline ResolvedForm resolve_form(const gguf::Tensor& tensor, const KernelSet& kernels,
                                               WeightResidency residency) {
  ResolvedForm resolved{{{}, WeightOrder::as_stored, residency}, {}};
  with_format(tensor.type_id, [&](auto tag) {
    using F = typename decltype(tag)::type;
    if constexpr (F::block_size != 1) {
      if (kernels.best(F::name) != nullptr) {
        resolved.form.order = WeightOrder::kernel;
        return;
      }
      resolved.form.encoding = dequantize<float>;
      // In tenths, rounded.
      const std::size_t packed = F::bytes_per_block;
      const std::size_t factor = (sizeof(float) * F::block_size * 10 + packed / 2) / packed;
      resolved.conversion = "dequantized to F32 because no kernel reads " + std::string(F::name) +
                            ", " + std::to_string(factor / 10) + "." + std::to_string(factor % 10) +
                            " times the bytes";
    }
  });
  return resolved;
}

namespace detail {

/// Applies the encoding that was asked for, or notes why it can't be had.
inline void plan_encoding(PlannedTensor& plan, const gguf::Tensor& tensor) {
  const auto wanted = plan.asked.encoding.gguf_type();
  if (!wanted || *wanted == tensor.type_id) return;
  const std::string target = "kept as " + plan.stored_name() + ", not " + gguf::type_name(*wanted);
  if (!find_format(tensor.type_id)) {
    plan.downgrades.push_back(target + ": " + plan.stored_name() + " is no weight format");
    return;
  }
  with_format(*wanted, [&](auto tag) {
    using G = typename decltype(tag)::type;
    if (tensor.extents[0] % G::block_size != 0) {
      plan.downgrades.push_back(target + ": rows of " + std::to_string(tensor.extents[0]) +
                                " values are not a multiple of " + std::to_string(G::block_size) +
                                " (remainder " + std::to_string(tensor.extents[0] % G::block_size) +
                                ")");
      return;
    }
    const auto bytes =
        checked_mul(static_cast<std::size_t>(tensor.elements / G::block_size), G::bytes_per_block);
    if (!bytes)
      throw Error(ErrorCode::size_overflow,
                  "quern::plan_tensor: " + std::to_string(tensor.elements) + " values of " +
                      gguf::detail::in_quotes(tensor.name) + " do not fit the address space in " +
                      std::string(G::name));
    plan.type = G::gguf_type;
    plan.bytes = *bytes;
  });
}

/// Applies the order that was asked for, or notes why it can't be had.
inline void plan_order(PlannedTensor& plan, const KernelSet& kernels) {
  const auto format = find_format(plan.type);
  if (plan.asked.order == WeightOrder::kernel) {
    const KernelKey* const best = kernels.best(plan.type_name());
    if (best == nullptr)
      plan.downgrades.push_back("left in RowMajor, not kernel order: no kernel reads " +
                                plan.type_name());
    else if (best->order == InputBlockMajor::name)
      plan.order = WeightOrder::input_block_major;
  } else if (plan.asked.order == WeightOrder::input_block_major) {
    if (!format)
      plan.downgrades.push_back("left in RowMajor, not InputBlockMajor: " + plan.type_name() +
                                " is no weight format");
    else
      plan.order = WeightOrder::input_block_major;
  }
}

} // namespace detail

/// How a tensor of `file` will be loaded under `policy`, from the header alone. A form for all
/// weights leaves tensors of one row alone (norms, biases): those are converted only when
/// `policy.form_of` names them. Does not look at `policy.strict`.
[[nodiscard]] inline PlannedTensor plan_tensor(const gguf::File& file, const gguf::Tensor& tensor,
                                               const FormPolicy& policy) {
  PlannedTensor plan;
  plan.name.assign(tensor.name);
  plan.shape = out_in(NeShape{tensor.extents[0], tensor.extents[1]});
  plan.slices = detail::checked_mul(static_cast<std::size_t>(tensor.extents[2]),
                                    static_cast<std::size_t>(tensor.extents[3]))
                    .value_or(std::numeric_limits<std::size_t>::max()); // beside a zero extent
  plan.stored_type = plan.type = tensor.type_id;
  plan.bytes_before = plan.bytes = static_cast<std::size_t>(tensor.bytes);
  plan.file_is_mapped = file.residency() == gguf::Residency::mapped;
  plan.reader = file.reader();
  if (tensor.type == nullptr) {
    plan.skipped = true;
    plan.downgrades.push_back("not loaded: " + gguf::type_name(tensor.type_id));
    return plan;
  }
  plan.stored = file.bytes(tensor);

  const bool one_row = tensor.extents[1] == 1 && plan.slices == 1;
  const auto own = policy.form_of ? policy.form_of(tensor) : std::nullopt;
  if (own) {
    plan.asked = *own;
  } else if (one_row || !find_format(tensor.type_id)) {
    plan.asked.residency = policy.form ? policy.form->residency : policy.residency;
  } else if (policy.form) {
    plan.asked = *policy.form;
  } else {
    ResolvedForm resolved = resolve_form(tensor, policy.kernels, policy.residency);
    plan.asked = resolved.form;
    if (!resolved.conversion.empty()) plan.downgrades.push_back(std::move(resolved.conversion));
  }
  detail::plan_encoding(plan, tensor);
  detail::plan_order(plan, policy.kernels);
  plan.copies = !plan.keeps_bytes() || plan.asked.residency == WeightResidency::memory;
  plan.residency =
      !plan.copies && plan.file_is_mapped ? WeightResidency::mapped : WeightResidency::memory;
  return plan;
}

namespace detail {

/// Throws Error(refused) when a tensor has a downgrade.
inline void refuse_downgrades(const char* call, std::span<const PlannedTensor> planned) {
  constexpr std::size_t most = 8;
  std::size_t count = 0;
  std::string list;
  for (const PlannedTensor& tensor : planned) {
    if (tensor.downgrades.empty() || ++count > most) continue;
    list += (count == 1 ? "" : "; ") + gguf::detail::in_quotes(tensor.name) + " (" +
            tensor.stored_name() + "): " + tensor.downgrades.front();
  }
  if (count == 0) return;
  if (count > most) list += "; and " + std::to_string(count - most) + " more";
  throw Error(ErrorCode::refused, std::string(call) + ": strict, and " + std::to_string(count) +
                                      (count == 1 ? " tensor would" : " tensors would") +
                                      " not be as asked: " + list +
                                      "; ask for a form that is possible, or do without strict");
}

} // namespace detail

} // namespace quern
