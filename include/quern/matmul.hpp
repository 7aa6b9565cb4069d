// floor: 7
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/has_kernel.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/shape.hpp>
#include <quern/trace.hpp>

namespace quern {

/// How matmul_weight_transposed() runs.
struct MatmulOptions {
  /// Takes a KernelRun event.
  Trace* trace = &no_trace;
  /// Runs the pieces of the product; empty: all of it on the calling thread.
  ExecutorRef executor = {};
  /// The best instruction set to use.
  IsaLimit max_isa = {};
  /// The name of the weight, for the event.
  std::string_view weight = {};
};

namespace detail {

inline void check_product(std::size_t rows, std::size_t cols, OutIn w, const MatrixView<float>& y) {
  if (cols != w.in)
    throw Error(ErrorCode::size_mismatch, "quern::matmul_weight_transposed: x has rows of " +
                                              std::to_string(cols) + " values, the weight " +
                                              to_string(w) + " needs " +
                                              std::to_string(w.in.value()) + "; x is [m, in]");
  if (y.cols() != w.out.value() || y.rows() != rows)
    throw Error(ErrorCode::size_mismatch,
                "quern::matmul_weight_transposed: y is " + std::to_string(y.rows()) + " x " +
                    std::to_string(y.cols()) + ", the product of " + std::to_string(rows) +
                    " rows with the weight " + to_string(w) + " is " + std::to_string(rows) +
                    " x " + std::to_string(w.out.value()));
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

/// How a product of `rows` x `out` results is cut: pieces of whole outputs first, since a piece
/// reads its part of the weight alone; rows of x are shared out only when there are too few
/// outputs.
struct Cut {
  std::size_t out_piece;
  std::size_t row_piece;
  std::size_t out_pieces;
  std::size_t row_pieces;

  Cut(std::size_t rows, std::size_t out, std::size_t concurrency) noexcept {
    constexpr std::size_t grain = 32; // outputs that kernels handle together
    const std::size_t wanted = concurrency <= 1 ? 1 : 4 * concurrency;
    const auto share = [](std::size_t extent, std::size_t pieces, std::size_t unit) {
      const std::size_t even = (extent + pieces - 1) / pieces;
      return std::max(unit, (even + unit - 1) / unit * unit);
    };
    out_piece = share(out, wanted, grain);
    out_pieces = (out + out_piece - 1) / out_piece;
    const std::size_t left = out_pieces == 0 ? 1 : wanted / out_pieces;
    row_piece = left <= 1 ? std::max<std::size_t>(rows, 1) : share(rows, left, 8);
    row_pieces = (rows + row_piece - 1) / row_piece;
  }
};

/// Runs kernel K over all pieces of the product and reports it.
template <class K>
void run_pieces(const typename K::Input& x, const typename K::Weight& w, MatrixView<float> y,
                std::size_t x_bytes, const MatmulOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Cut cut(y.rows(), y.cols(), options.executor.concurrency());
  if (cut.out_pieces * cut.row_pieces <= 1) {
    K::run(x, w, y);
  } else {
    const auto piece = [&](std::size_t index) {
      const std::size_t o = index % cut.out_pieces * cut.out_piece;
      const std::size_t r = index / cut.out_pieces * cut.row_piece;
      const std::size_t outputs = std::min(cut.out_piece, w.out() - o);
      const std::size_t rows = std::min(cut.row_piece, y.rows() - r);
      K::run(x.narrow_rows(r, rows), w.narrow_out(o, outputs),
             y.narrow_rows(r, rows).narrow_cols(o, outputs));
    };
    options.executor.parallel_for(cut.out_pieces * cut.row_pieces, piece);
  }
  if (!options.trace->enabled()) return;
  static const std::string name = to_string(K::key);
  options.trace->emit(KernelRun{name, w.bytes() + x_bytes, y.rows() * y.cols() * sizeof(float),
                                std::chrono::steady_clock::now() - start, options.weight});
}

} // namespace detail

/// Calls `f(std::type_identity<K>{})` with the best kernel K that this build has and this CPU can
/// run, within `limit`, for that kind of activations and a weight of format F in order O.
template <class Activation, BlockFormat F, BlockOrder O, class Function>
void with_best_kernel(IsaLimit limit, Function&& f) {
  bool done = false;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Isas>>([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (has_kernel<Activation, F, O, I>)
      if (!done && limit.allows<I>() && I::available()) {
        done = true;
        f(std::type_identity<kernels::Matmul<Activation, F, O, I>>{});
      }
  });
}

/// The key of the kernel that matmul_weight_transposed() uses for float activations.
template <BlockFormat F, BlockOrder O>
[[nodiscard]] KernelKey best_kernel_key(IsaLimit limit = {}) {
  KernelKey key{};
  with_best_kernel<float, F, O>(limit, [&](auto tag) { key = decltype(tag)::type::key; });
  return key;
}

/// The key of the kernel that it uses for that kind of activations.
template <class Activation, BlockFormat F, BlockOrder O>
[[nodiscard]] KernelKey best_kernel_key(IsaLimit limit = {}) {
  KernelKey key{};
  with_best_kernel<Activation, F, O>(limit, [&](auto tag) { key = decltype(tag)::type::key; });
  return key;
}

inline namespace QUERN_BUILD_TAG {

/// y = x * W^T: `x` is `[m, in]`, the weight `[out, in]` in either block order, `y` is `[m, out]`.
/// The weight is read as it lies; nothing is converted and nothing allocated. The result is the
/// same bits for either order, however many rows x has and however many threads work on it. Throws
/// Error(size_mismatch) when the extents do not agree; `y` is then unchanged.
template <BlockFormat F, BlockOrder O>
void matmul_weight_transposed(MatrixView<const float> x, PackedView<F, O> w, MatrixView<float> y,
                              const MatmulOptions& options = {}) {
  detail::check_product(x.rows(), x.cols(), w.shape(), y);
  with_best_kernel<float, F, O>(options.max_isa, [&](auto tag) {
    detail::run_pieces<typename decltype(tag)::type>(x, w, y, x.rows() * x.cols() * sizeof(float),
                                                     options);
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

/// The same for activations that quantize_activations<int8_width<F>>() made. Integer products are
/// exact; the result is the same bits on every instruction set, too.
template <std::size_t Width, BlockFormat F, BlockOrder O>
requires(Width == int8_width<F>) void matmul_weight_transposed(const Int8Blocks<Width>& x,
                                                               PackedView<F, O> w,
                                                               MatrixView<float> y,
                                                               const MatmulOptions& options = {}) {
  detail::check_product(x.rows(), x.cols(), w.shape(), y);
  with_best_kernel<Int8Blocks<Width>, F, O>(options.max_isa, [&](auto tag) {
    detail::run_pieces<typename decltype(tag)::type>(x, w, y, x.bytes(), options);
  });
}

// clang-format off
template <std::size_t Width, BlockFormat F, BlockOrder O>
  requires(Width != int8_width<F>)
void matmul_weight_transposed(const Int8Blocks<Width>&, PackedView<F, O>, MatrixView<float>, const MatmulOptions& = {}) QUERN_DELETED("quern::matmul_weight_transposed: these activations were quantized in blocks of another width than this weight format meets; use quantize_activations<int8_width<Format>>(x, scope), or float activations for formats of single values");
// clang-format on

} // namespace QUERN_BUILD_TAG

} // namespace quern
