// floor: 4
#pragma once

#include <compare>
#include <concepts>
#include <string>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/isa.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// What a kernel is: code for one activation type, one format, one block order and one instruction
/// set, with all four in its type.

namespace quern {

/// The identity of a kernel as a value, for messages and traces. All names are static strings.
struct KernelKey {
  std::string_view operation;  ///< "matmul" or "decode"
  std::string_view activation; ///< what it multiplies: activation_name(); "float" for what decodes
  std::string_view format;     ///< `name` of the BlockFormat that it reads
  std::string_view order;      ///< `name` of the BlockOrder that it reads
  std::string_view isa;        ///< `name` of its instruction set

  /// Equal when all five texts are.
  friend constexpr bool operator==(const KernelKey&, const KernelKey&) noexcept = default;
};

/// y = x * W^T, as the operation of a key.
struct MatmulOperation {
  static constexpr std::string_view name = "matmul"; ///< KernelKey::operation of these kernels
};

/// The name of a type of activations: "float", or what the type says.
template <class Activation>
[[nodiscard]] constexpr std::string_view activation_name() noexcept {
  if constexpr (std::same_as<Activation, float>)
    return "float";
  else
    return Activation::name;
}

/// The identity of a kernel as a type; `value` is the same as a value. Two kernels differ in one of
/// the five, and then both their types and their values do.
template <class Operation, class Activation, BlockFormat F, BlockOrder O, Isa I>
struct KernelKeyOf {
  /// The five names.
  static constexpr KernelKey value{Operation::name, activation_name<Activation>(), F::name, O::name,
                                   I::name};
};

/// "matmul<float, Q4_K, RowMajor, Scalar>".
[[nodiscard]] inline std::string to_string(const KernelKey& key) {
  std::string text(key.operation);
  text.append("<").append(key.activation).append(", ").append(key.format).append(", ");
  return text.append(key.order).append(", ").append(key.isa).append(">");
}

namespace kernels {
inline namespace QUERN_BUILD_TAG {

/// y = x * W^T for activations of type `Activation`, weights in format `Format` and block order
/// `Order`, with the instructions of `Isa`. Specialised by the headers under quern/kernels/; a
/// combination without a specialisation is incomplete, which has_kernel reports as false.
template <class Activation, BlockFormat Format, BlockOrder Order, Isa Isa_>
struct Matmul;

} // namespace QUERN_BUILD_TAG
} // namespace kernels

/// A kernel: it has a key, says whether it is compiled in, and runs on views of its own format and
/// order only. `run(x, w, y)` computes `y[m, out] = x[m, in] * W^T`; its extents must agree:
/// `x.rows() == y.rows()`, `x.cols() == w.in()`, `y.cols() == w.out()`. matmul_weight_transposed()
/// checks them, run() does not.
template <class K>
concept Kernel = requires(typename K::Input x, typename K::Weight w, MatrixView<float> y) {
  { K::key } -> std::convertible_to<KernelKey>;
  { K::compiled_here } -> std::convertible_to<bool>;
  { K::run(x, w, y) }
  noexcept->std::same_as<void>;
};

} // namespace quern
