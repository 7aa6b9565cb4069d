// floor: 7
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/block_format.hpp>
#include <quern/error.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/trace.hpp>

namespace quern {

/// How matmul_weight_transposed() runs.
struct MatmulOptions {
  /// Takes a KernelRun event.
  Trace* trace = &no_trace;
};

namespace detail {

template <BlockFormat F, BlockOrder O>
void check_product(MatrixView<const float> x, PackedView<F, O> w, MatrixView<float> y) {
  if (x.cols() != w.in())
    throw Error(ErrorCode::size_mismatch, "quern::matmul_weight_transposed: x has rows of " +
                                              std::to_string(x.cols()) + " values, the weight " +
                                              to_string(w.shape()) + " needs " +
                                              std::to_string(w.in()) + "; x is [m, in]");
  if (y.cols() != w.out() || y.rows() != x.rows())
    throw Error(ErrorCode::size_mismatch,
                "quern::matmul_weight_transposed: y is " + std::to_string(y.rows()) + " x " +
                    std::to_string(y.cols()) + ", the product of " + std::to_string(x.rows()) +
                    " rows with the weight " + to_string(w.shape()) + " is " +
                    std::to_string(x.rows()) + " x " + std::to_string(w.out()));
}

/// The rows of a gap-free x or y over `size` values: `size / extent`, which must be exact.
[[nodiscard]] inline std::size_t rows_in(std::size_t size, std::size_t extent, const char* name) {
  if (extent == 0 ? size != 0 : size % extent != 0)
    throw Error(ErrorCode::size_mismatch, "quern::matmul_weight_transposed: " + std::string(name) +
                                              " has " + std::to_string(size) +
                                              " values, which are not whole rows of " +
                                              std::to_string(extent));
  return extent == 0 ? 0 : size / extent;
}

} // namespace detail

/// Calls `f(std::type_identity<K>{})` with the best kernel K that this build has and this CPU can
/// run for float activations and a weight of format F in order O.
template <BlockFormat F, BlockOrder O, class Function>
void with_best_kernel(Function&& f) {
  bool done = false;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Isas>>([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (has_kernel<float, F, O, I>)
      if (!done && I::available()) {
        done = true;
        f(std::type_identity<kernels::Matmul<float, F, O, I>>{});
      }
  });
}

/// The key of the kernel that matmul_weight_transposed() uses for float activations.
template <BlockFormat F, BlockOrder O>
[[nodiscard]] KernelKey best_kernel_key() {
  KernelKey key{};
  with_best_kernel<F, O>([&](auto tag) { key = decltype(tag)::type::key; });
  return key;
}

/// y = x * W^T: `x` is `[m, in]`, the weight `[out, in]` in either block order, `y` is `[m, out]`.
/// The weight is read as it lies; nothing is converted and nothing allocated. The result is the
/// same bits for either order and however many rows x has. Throws Error(size_mismatch) when the
/// extents do not agree; `y` is then unchanged.
template <BlockFormat F, BlockOrder O>
void matmul_weight_transposed(MatrixView<const float> x, PackedView<F, O> w, MatrixView<float> y,
                              const MatmulOptions& options = {}) {
  detail::check_product(x, w, y);
  with_best_kernel<F, O>([&](auto tag) {
    using K = typename decltype(tag)::type;
    if (!options.trace->enabled()) {
      K::run(x, w, y);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    K::run(x, w, y);
    static const std::string name = to_string(K::key);
    options.trace->emit(KernelRun{name, w.bytes() + x.rows() * x.cols() * sizeof(float),
                                  y.rows() * y.cols() * sizeof(float),
                                  std::chrono::steady_clock::now() - start});
  });
}

/// The same for gap-free spans: x holds whole rows of `in` values, y as many rows of `out`. When
/// `in` is 0, y tells the number of rows.
template <BlockFormat F, BlockOrder O>
void matmul_weight_transposed(std::span<const float> x, PackedView<F, O> w, std::span<float> y,
                              const MatmulOptions& options = {}) {
  const std::size_t rows = w.in() != 0 ? detail::rows_in(x.size(), w.in(), "x")
                                       : detail::rows_in(y.size(), w.out(), "y");
  if (w.in() != 0 && w.out() * rows != y.size())
    throw Error(ErrorCode::size_mismatch,
                "quern::matmul_weight_transposed: y has " + std::to_string(y.size()) + " values, " +
                    std::to_string(rows) + " rows of x with the weight " + to_string(w.shape()) +
                    " give " + std::to_string(rows * w.out()));
  matmul_weight_transposed(MatrixView<const float>{x, rows, w.in()}, w,
                           MatrixView<float>{y, rows, w.out()}, options);
}

} // namespace quern
