// floor: 7.2
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/checked.hpp>
#include <quern/detail/memory.hpp>
#include <quern/detail/named_trace.hpp>
#include <quern/detail/target.hpp>
#include <quern/dispatch.hpp>
#include <quern/error.hpp>
#include <quern/formats/f32.hpp>
#include <quern/gather.hpp>
#include <quern/kernel.hpp>
#include <quern/matmul.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/prepack.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/strided_view.hpp>

/// @file
/// A product whose kernel was picked once, for a weight that is multiplied again and again.

namespace quern {

namespace detail {

/// A view of any format and order, as bytes: all of them are one pointer and three numbers.
using StoredView = std::array<std::byte, sizeof(PackedView<F32, RowMajor>)>;

/// What a plan keeps of the kernel it chose.
struct PlannedKernel {
  void (*run)(const StoredView& weight, const void* x, MatrixView<float> y, std::size_t x_bytes,
              const MatmulOptions& options);
  KernelKey key;
  StoredView weight;
  OutIn shape;
  DispatchStep step;
  std::size_t int8_width; ///< of the activations it reads; 0: float
};

template <class K>
void run_planned(const StoredView& weight, const void* x, MatrixView<float> y, std::size_t x_bytes,
                 const MatmulOptions& options) {
  run_pieces<K>(*static_cast<const typename K::Input*>(x),
                std::bit_cast<typename K::Weight>(weight), y, x_bytes, options);
}

template <class Input>
inline constexpr std::size_t input_width = 0;
template <std::size_t Width>
inline constexpr std::size_t input_width<Int8Blocks<Width>> = Width;

template <class K>
[[nodiscard]] PlannedKernel planned_kernel(const typename K::Weight& weight, DispatchStep step) {
  return {&run_planned<K>, K::key, std::bit_cast<StoredView>(weight),
          weight.shape(),  step,   input_width<typename K::Input>};
}

} // namespace detail

inline namespace QUERN_BUILD_TAG {

/// A product `y = x * W^T` with a kernel chosen once, by plan(), for activations of type
/// `Activation` (float, or Int8Blocks<Width>). It refers to the weight, which must outlive it, and
/// is a value of its own: it can be copied and run by several threads at once.
template <class Activation>
class MatmulPlan {
public:
  /// The kernel that runs.
  [[nodiscard]] const KernelKey& key() const noexcept { return kernel_.key; }
  /// Why it was chosen.
  [[nodiscard]] DispatchStep step() const noexcept { return kernel_.step; }
  /// The shape of the weight.
  [[nodiscard]] OutIn shape() const noexcept { return kernel_.shape; }
  /// True when run() quantizes the activations.
  [[nodiscard]] bool quantizes() const noexcept {
    return std::same_as<Activation, float> && kernel_.int8_width != 0;
  }

  /// Bytes that run() takes from its scope for `rows` rows of activations, `strided` when they have
  /// no whole rows, with what their alignment may cost: the capacity that a ForwardScope needs for
  /// this product. Throws Error(size_overflow).
  [[nodiscard]] std::size_t
  step_bytes(std::size_t rows,
             bool strided = false) const requires std::same_as<Activation, float> {
    const std::size_t in = kernel_.shape.in;
    std::size_t bytes = 0;
    const auto add = [&](std::size_t piece) {
      if (piece == 0) return;
      const auto sum = detail::checked_add(bytes, piece);
      const auto padded = sum ? detail::checked_add(*sum, detail::cache_line - 1) : std::nullopt;
      if (!padded)
        throw Error(ErrorCode::size_overflow,
                    "quern::MatmulPlan::step_bytes: " + std::to_string(rows) + " rows do not fit");
      bytes = *padded;
    };
    if (strided) {
      const auto count = detail::checked_mul(rows, in);
      const auto gathered = count ? detail::checked_mul(*count, sizeof(float)) : std::nullopt;
      if (!gathered)
        throw Error(ErrorCode::size_overflow,
                    "quern::MatmulPlan::step_bytes: " + std::to_string(rows) + " rows do not fit");
      add(*gathered);
    }
    if (kernel_.int8_width == 32) add(Int8Blocks<32>::bytes_for(rows, in));
    if (kernel_.int8_width == 256) add(Int8Blocks<256>::bytes_for(rows, in));
    return bytes;
  }

  /// y = x * W^T: `x` is `[m, in]`, `y` is `[m, out]`. What has to be converted goes to `step`,
  /// each time with its event; apart from that nothing is allocated. Throws Error(size_mismatch)
  /// when the extents do not agree, before anything else happens, and what `step` throws.
  void run(StridedView<const float> x, MatrixView<float> y,
           Scope& step) const requires std::same_as<Activation, float> {
    detail::check_product(x.rows(), x.cols(), kernel_.shape, y);
    detail::NamedTrace trace(*options_.trace, options_.weight);
    const MatrixView<const float> rows = gather(x, step, trace);
    if (kernel_.int8_width == 32)
      run_quantized<32>(rows, y, step, trace);
    else if (kernel_.int8_width == 256)
      run_quantized<256>(rows, y, step, trace);
    else
      run_float(rows, y);
  }

  /// The same where nothing has to be converted. Throws Error(scope_kind) when this plan quantizes
  /// its activations, which needs a scope.
  void run(MatrixView<const float> x,
           MatrixView<float> y) const requires std::same_as<Activation, float> {
    detail::check_product(x.rows(), x.cols(), kernel_.shape, y);
    if (quantizes())
      throw Error(ErrorCode::scope_kind,
                  "quern::MatmulPlan::run: " + to_string(kernel_.key) +
                      " reads int8 activations, which need a place; pass the scope of this step, "
                      "run(x, y, step)");
    run_float(x, y);
  }

  /// The same for activations that were quantized before, for one weight or for several.
  void run(const Activation& x, MatrixView<float> y) const
      requires(!std::same_as<Activation, float>) {
    detail::check_product(x.rows(), x.cols(), kernel_.shape, y);
    kernel_.run(kernel_.weight, &x, y, x.bytes(), options_);
  }

  /// Made by plan().
  MatmulPlan(const detail::PlannedKernel& kernel, const MatmulOptions& options) noexcept
      : kernel_(kernel), options_(options) {}

private:
  void run_float(MatrixView<const float> x, MatrixView<float> y) const {
    kernel_.run(kernel_.weight, &x, y, x.rows() * x.cols() * sizeof(float), options_);
  }
  template <std::size_t Width>
  void run_quantized(MatrixView<const float> x, MatrixView<float> y, Scope& step,
                     Trace& trace) const {
    const Int8Blocks<Width> codes = quantize_activations<Width>(x, step, trace, options_.max_isa);
    kernel_.run(kernel_.weight, &codes, y, codes.bytes(), options_);
  }

  detail::PlannedKernel kernel_;
  MatmulOptions options_;
};

/// "matmul<float, Q4_0, RowMajor, Avx2> (exact)".
template <class Activation>
[[nodiscard]] std::string to_string(const MatmulPlan<Activation>& plan) {
  return to_string(plan.key()) + " (" + std::string(to_string(plan.step())) + ")";
}

/// Picks the kernel for a weight: exactly as things are; for the int8 activations that the format
/// asks for; after a relayout, if `options.prepack_weights` says where; the portable one. A
/// relayout happens here, once, with its event, and only after a kernel for it was found. Nothing
/// else is allocated.
///
/// `plan<no_fallback>(w)` refuses the portable kernel: a compile-time error when no other can
/// serve, else Error(unsupported). `plan<allow_fallback, Int8Blocks<W>>(w)` is for activations that
/// are quantized already. Also throws what a relayout throws.
template <FallbackPolicy Policy = allow_fallback, class Activation = float, BlockFormat F,
          BlockOrder O>
[[nodiscard]] MatmulPlan<Activation> plan(PackedView<F, O> weight,
                                          const DispatchOptions& options = {}) {
  constexpr bool served = std::same_as<Policy, allow_fallback>
                              ? has_kernel<Activation, F, O, isa::Scalar>
                              : detail::can_do_without_fallback<Activation, F, O>();
  static_assert(has_kernel<Activation, F, O, isa::Scalar> || std::same_as<Policy, no_fallback>,
                "quern::plan: no kernel reads activations of this type with this weight format; "
                "use float, or Int8For<Format>");
  static_assert(served || std::same_as<Policy, allow_fallback>,
                "quern::plan: no_fallback, and this build has no kernel of an instruction set for "
                "this weight format and these activations, in neither block order; allow_fallback "
                "runs the portable kernel");
  if constexpr (served) {
    const MatmulOptions run{options.trace, options.executor, options.max_isa, options.weight};
    detail::PlannedKernel kernel{};
    detail::choose_kernel<Policy, Activation, F, O>(
        options, [&]<class K>(DispatchStep step, std::type_identity<K>) {
          if constexpr (std::same_as<typename K::Weight, PackedView<F, O>>)
            kernel = detail::planned_kernel<K>(weight, step);
          else {
            detail::NamedTrace trace(*options.trace, options.weight);
            kernel = detail::planned_kernel<K>(
                prepack<OtherOrder<O>>(weight, *options.prepack_weights, trace), step);
          }
        });
    return {kernel, run};
  }
}

/// y = x * W^T by the kernel that plan() picks, once. Conversions of the activations go to `step`.
/// A relayout, where `options` allow one, is made anew by each call: keep a plan instead.
template <FallbackPolicy Policy = allow_fallback, BlockFormat F, BlockOrder O>
void dispatch(StridedView<const float> x, PackedView<F, O> weight, MatrixView<float> y, Scope& step,
              const DispatchOptions& options = {}) {
  detail::check_product(x.rows(), x.cols(), weight.shape(), y);
  plan<Policy>(weight, options).run(x, y, step);
}

} // namespace QUERN_BUILD_TAG

} // namespace quern
