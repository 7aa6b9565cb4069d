// floor: 7
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <quern/block_format.hpp>
#include <quern/formats.hpp>
#include <quern/formats/f32.hpp>

/// @file
/// In which form a weight is to be in memory, as opposed to how its file has it.

namespace quern {

/// In which format the values of a weight are to be: as in the file, or decoded and encoded anew.
class Encoding {
public:
  /// What is done to the values.
  enum class Kind : std::uint8_t {
    as_stored,  ///< they stay as in the file
    dequantize, ///< decoded once, to single numbers
    requantize, ///< decoded, then encoded in another packed format
  };

  /// As in the file.
  constexpr Encoding() noexcept = default;
  /// Meant for `dequantize<T>` and `requantize<F>`, which check the target. `gguf_type` is the id
  /// of the format to come, 0 for as_stored.
  constexpr Encoding(Kind kind, std::uint32_t gguf_type) noexcept
      : kind_(kind), gguf_type_(gguf_type) {}

  /// What is done to the values when they are loaded.
  [[nodiscard]] constexpr Kind kind() const noexcept { return kind_; }
  /// The GGUF type of the values to come, or nothing for those of the file.
  [[nodiscard]] constexpr std::optional<std::uint32_t> gguf_type() const noexcept {
    return kind_ == Kind::as_stored ? std::nullopt : std::optional(gguf_type_);
  }

  /// Equal when the kind and the id of the type are.
  friend constexpr bool operator==(const Encoding&, const Encoding&) noexcept = default;

private:
  Kind kind_ = Kind::as_stored;
  std::uint32_t gguf_type_ = 0;
};

namespace detail {

template <class T>
struct DenseFormat {
  using type = T;
};
template <>
struct DenseFormat<float> {
  using type = F32;
};

template <class T>
[[nodiscard]] consteval Encoding dequantize_to() {
  using F = typename DenseFormat<T>::type;
  constexpr bool dense = [] {
    if constexpr (BlockFormat<F>)
      return ListedFormat<F> && F::block_size == 1;
    else
      return false;
  }();
  static_assert(dense,
                "quern::dequantize: the values are decoded to float, F32, F16 or BF16; for a "
                "packed format write requantize<Format>");
  if constexpr (dense) return {Encoding::Kind::dequantize, F::gguf_type};
}

template <class F>
[[nodiscard]] consteval Encoding requantize_to() {
  constexpr bool listed = [] {
    if constexpr (BlockFormat<F>)
      return ListedFormat<F>;
    else
      return false;
  }();
  static_assert(listed, "quern::requantize: the target is a format of quern::Formats; for floats "
                        "write dequantize<float>");
  if constexpr (listed) return {Encoding::Kind::requantize, F::gguf_type};
}

} // namespace detail

/// Values decoded once, when they are loaded, to single numbers: float (the same as F32), F16 or
/// BF16.
template <class T>
inline constexpr Encoding dequantize = detail::dequantize_to<T>();

/// Values decoded and encoded anew, when they are loaded, in another packed format. Loses accuracy.
template <class F>
inline constexpr Encoding requantize = detail::requantize_to<F>();

/// In which order the blocks of a weight are to lie.
enum class WeightOrder : std::uint8_t {
  as_stored,         ///< as in the file, which is RowMajor
  kernel,            ///< the one that the best kernel for the weight is listed for
  row_major,         ///< RowMajor
  input_block_major, ///< InputBlockMajor
};

/// Where the bytes of a weight are to be.
enum class WeightResidency : std::uint8_t {
  mapped, ///< in the file, as long as nothing is converted: no copy is made
  memory, ///< in a scope
};

/// The form of a weight. The default is the weight as the file has it, without a copy.
struct WeightForm {
  Encoding encoding = {};                              ///< format of the values
  WeightOrder order = WeightOrder::as_stored;          ///< order of the blocks
  WeightResidency residency = WeightResidency::mapped; ///< where the bytes are

  /// True when the bytes are those of the file, wherever they are.
  [[nodiscard]] constexpr bool keeps_bytes() const noexcept {
    return encoding == Encoding{} &&
           (order == WeightOrder::as_stored || order == WeightOrder::row_major);
  }

  /// Equal when all three parts are.
  friend constexpr bool operator==(const WeightForm&, const WeightForm&) noexcept = default;
};

/// The order in words.
[[nodiscard]] constexpr std::string_view to_string(WeightOrder order) noexcept {
  switch (order) {
  case WeightOrder::as_stored:
    return "as stored";
  case WeightOrder::kernel:
    return "kernel order";
  case WeightOrder::row_major:
    return "RowMajor";
  case WeightOrder::input_block_major:
    return "InputBlockMajor";
  }
  return "unknown order";
}

/// "mapped" or "memory".
[[nodiscard]] constexpr std::string_view to_string(WeightResidency residency) noexcept {
  return residency == WeightResidency::mapped ? "mapped" : "memory";
}

/// "as stored", "dequantize<F32>" or "requantize<Q8_0>".
[[nodiscard]] inline std::string to_string(const Encoding& encoding) {
  if (encoding.kind() == Encoding::Kind::as_stored) return "as stored";
  std::string text = encoding.kind() == Encoding::Kind::dequantize ? "dequantize<" : "requantize<";
  with_format(*encoding.gguf_type(), [&](auto tag) { text += decltype(tag)::type::name; });
  return text + ">";
}

/// "requantize<Q8_0>, kernel order, memory".
[[nodiscard]] inline std::string to_string(const WeightForm& form) {
  return to_string(form.encoding) + ", " + std::string(to_string(form.order)) + ", " +
         std::string(to_string(form.residency));
}

} // namespace quern
