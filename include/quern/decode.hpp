// floor: 6.1
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>

#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/decode.hpp>
#include <quern/kernels/avx512/decode.hpp>
#include <quern/kernels/decode_scalar.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/trace.hpp>

namespace quern {

/// How decode() runs.
struct DecodeOptions {
  /// Takes a KernelRun event.
  Trace* trace = &no_trace;
  /// Runs pieces of some rows each; empty: all of it on the calling thread.
  ExecutorRef executor = {};
  /// The best instruction set to use.
  IsaLimit max_isa = {};
};

/// True when this build has the kernel that decodes that format and order with that instruction
/// set. Whether this CPU can run it is `Isa::available()`.
template <BlockFormat F, BlockOrder O, Isa I>
inline constexpr bool has_decode_kernel = requires {
  requires kernels::Decode<F, O, I>::compiled_here;
};

/// Calls `f(std::type_identity<K>{})` with the best DecodeKernel K that this build has and this CPU
/// can run, within `limit`.
template <BlockFormat F, BlockOrder O, class Function>
void with_best_decode_kernel(IsaLimit limit, Function&& f) {
  bool done = false;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Isas>>([&](auto tag) {
    using I = typename decltype(tag)::type;
    if constexpr (has_decode_kernel<F, O, I>)
      if (!done && limit.allows<I>() && I::available()) {
        done = true;
        f(std::type_identity<kernels::Decode<F, O, I>>{});
      }
  });
}

/// The key of the kernel that decode() uses.
template <BlockFormat F, BlockOrder O>
[[nodiscard]] KernelKey best_decode_key(IsaLimit limit = {}) {
  KernelKey key{};
  with_best_decode_kernel<F, O>(limit, [&](auto tag) { key = decltype(tag)::type::key; });
  return key;
}

namespace detail {

template <DecodeKernel K>
void decode_pieces(const typename K::Weight& weight, MatrixView<float> matrix,
                   const DecodeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::size_t threads = options.executor.concurrency();
  // Kernels like to have 32 rows together.
  const std::size_t even = weight.out() / (4 * std::max<std::size_t>(threads, 1)) + 1;
  const std::size_t piece = (even + 31) / 32 * 32;
  if (threads <= 1 || piece >= weight.out()) {
    K::run(weight, matrix);
  } else {
    const auto run = [&](std::size_t index) {
      const std::size_t from = index * piece;
      const std::size_t rows = std::min(piece, weight.out() - from);
      K::run(weight.narrow_out(from, rows), matrix.narrow_rows(from, rows));
    };
    options.executor.parallel_for((weight.out() + piece - 1) / piece, run);
  }
  if (!options.trace->enabled()) return;
  static const std::string name = to_string(K::key);
  options.trace->emit(KernelRun{name, weight.bytes(), weight.out() * weight.in() * sizeof(float),
                                std::chrono::steady_clock::now() - start});
}

} // namespace detail

inline namespace QUERN_BUILD_TAG {

/// Decodes a weight into memory of the caller's, `[out, in]` row after row whatever the block
/// order, with the best instructions that this CPU has. The values are those of Format::decode, bit
/// for bit on every instruction set and with any number of threads; only which of its NaNs a scaled
/// format gives is not specified. Throws Error(size_mismatch) when the extents of `matrix` are not
/// those of the weight; it is then unchanged.
template <BlockFormat F, BlockOrder O>
constexpr void decode(PackedView<F, O> weight, MatrixView<float> matrix,
                      const DecodeOptions& options = {}) {
  if (matrix.rows() != weight.out() || matrix.cols() != weight.in())
    throw Error(ErrorCode::size_mismatch,
                "quern::decode: the weight is " + to_string(weight.shape()) + ", the matrix " +
                    std::to_string(matrix.rows()) + " x " + std::to_string(matrix.cols()));
  if (std::is_constant_evaluated())
    kernels::Decode<F, O, isa::Scalar>::run(weight, matrix);
  else
    with_best_decode_kernel<F, O>(options.max_isa, [&](auto tag) {
      detail::decode_pieces<typename decltype(tag)::type>(weight, matrix, options);
    });
}

} // namespace QUERN_BUILD_TAG

} // namespace quern
