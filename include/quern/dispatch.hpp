// floor: 7.1
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/has_kernel.hpp>
#include <quern/isa/scalar.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernel_set.hpp>
#include <quern/order.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>

/// @file
/// Which kernel serves a weight, and what has to be converted for it. The steps, in this order:
/// a kernel for the activations, the format and the order as they are; one for the int8 activations
/// that the format asks for; one for the other block order, if a relayout was asked for; the
/// portable kernel. See docs/dispatch.md.

namespace quern {

/// The step that found the kernel.
enum class DispatchStep {
  exact,            ///< nothing of the weight or the activations has to change
  asked_activation, ///< activations are quantized as the format asks
  relayout,         ///< the weight was relaid, as the caller allowed
  reference,        ///< the portable kernel, which serves everything
};

/// The step in words.
[[nodiscard]] constexpr std::string_view to_string(DispatchStep step) noexcept {
  switch (step) {
  case DispatchStep::exact:
    return "exact";
  case DispatchStep::asked_activation:
    return "asked activation";
  case DispatchStep::relayout:
    return "relayout";
  case DispatchStep::reference:
    return "reference";
  }
  return "unknown step";
}

/// How a kernel is chosen and runs.
struct DispatchOptions {
  /// Where a weight may be relaid when only the other block order has a kernel; null: nowhere, so
  /// it never is.
  ModelScope* prepack_weights = nullptr;
  /// The kernels to choose from; null: all of this build that this CPU runs. The portable ones are
  /// always there.
  const KernelSet* kernels = nullptr;
  /// The best instruction set to use.
  IsaLimit max_isa = {};
  /// Takes a KernelRun event for each product and an AdapterInserted one for each conversion.
  Trace* trace = &no_trace;
  /// Runs the pieces of a product; empty: the calling thread.
  ExecutorRef executor = {};
  /// The name of the weight in the events; valid as long as the plan.
  std::string_view weight = {};
};

/// Policy: where nothing better is found, the portable kernel serves.
struct allow_fallback {};
/// Policy: the portable kernel is an error; at compile time when the types already tell that there
/// is no other, else Error(unsupported).
struct no_fallback {};

/// What to do where only the portable kernel fits: one of the two policies.
template <class P>
concept FallbackPolicy = std::same_as<P, allow_fallback> || std::same_as<P, no_fallback>;

/// True when this build has a kernel of an instruction set (not the portable one) for them.
template <class Activation, BlockFormat F, BlockOrder O>
inline constexpr bool has_fast_kernel = []<class... I>(boost::mp11::mp_list<I...>) {
  return ((!std::same_as<I, isa::Scalar> && has_kernel<Activation, F, O, I>) || ...);
}(Isas{});

namespace detail {

/// The activations that a format asks for, or void: single numbers have no integers.
template <BlockFormat F>
struct AskedActivation {
  using type = void;
};
template <BlockFormat F>
requires(int8_width<F> != 0) struct AskedActivation<F> {
  using type = Int8For<F>;
};

/// True when a step before the last can serve `Activation`, on some CPU and with every option.
template <class Activation, BlockFormat F, BlockOrder O>
[[nodiscard]] consteval bool can_do_without_fallback() {
  const auto in_either_order = []<class A>(std::type_identity<A>) {
    return has_fast_kernel<A, F, O> || has_fast_kernel<A, F, OtherOrder<O>>;
  };
  bool can = in_either_order(std::type_identity<Activation>{});
  using Asked = typename AskedActivation<F>::type;
  if constexpr (std::same_as<Activation, float> && !std::same_as<Asked, void>)
    can = can || in_either_order(std::type_identity<Asked>{});
  return can;
}

/// Calls `f(std::type_identity<K>{})` for the best kernel of an instruction set that the options
/// allow. Returns whether there was one.
template <class Activation, BlockFormat F, BlockOrder O, class Function>
bool with_fast_kernel(const DispatchOptions& options, Function f) {
  bool found = false;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Isas>>([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (!std::same_as<I, isa::Scalar> && has_kernel<Activation, F, O, I>) {
      using K = kernels::Matmul<Activation, F, O, I>;
      if (!found && options.max_isa.allows<I>() && I::available() &&
          (options.kernels == nullptr || options.kernels->contains(K::key))) {
        found = true;
        f(std::type_identity<K>{});
      }
    }
  });
  return found;
}

/// Finds the kernel for float or int8 activations and a weight of format F in order O, and calls
/// `f(step, std::type_identity<K>{})` with it.
template <FallbackPolicy Policy, class Activation, BlockFormat F, BlockOrder O, class Function>
void choose_kernel(const DispatchOptions& options, Function f) {
  using Asked = typename AskedActivation<F>::type;
  constexpr bool may_quantize = std::same_as<Activation, float> && !std::same_as<Asked, void>;
  const auto as = [&](DispatchStep step) { return [&f, step](auto kernel) { f(step, kernel); }; };

  if (with_fast_kernel<Activation, F, O>(options, as(DispatchStep::exact))) return;
  if constexpr (may_quantize)
    if (with_fast_kernel<Asked, F, O>(options, as(DispatchStep::asked_activation))) return;
  if (options.prepack_weights != nullptr) {
    const auto relayout = as(DispatchStep::relayout);
    if (with_fast_kernel<Activation, F, OtherOrder<O>>(options, relayout)) return;
    if constexpr (may_quantize)
      if (with_fast_kernel<Asked, F, OtherOrder<O>>(options, relayout)) return;
  }
  if constexpr (std::same_as<Policy, no_fallback>)
    throw Error(ErrorCode::unsupported,
                "quern::plan: no_fallback, and no kernel of an instruction set that may be used "
                "here takes " +
                    std::string(activation_name<Activation>()) + " activations and " +
                    std::string(F::name) + " in " + std::string(O::name) +
                    (options.prepack_weights == nullptr
                         ? "; allow a relayout (prepack_weights), or the fallback"
                         : " or after a relayout; allow the fallback"));
  else
    f(DispatchStep::reference,
      std::type_identity<kernels::Matmul<Activation, F, O, isa::Scalar>>{});
}

} // namespace detail

} // namespace quern
