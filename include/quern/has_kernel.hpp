// floor: 5.5
#pragma once

#include <boost/mp11/list.hpp>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/formats.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/float_matmul.hpp>
#include <quern/kernels/avx2/int8_matmul.hpp>
#include <quern/kernels/avx512/int8_matmul.hpp>
#include <quern/kernels/avx512_vnni/int8_matmul.hpp>
#include <quern/kernels/avx_vnni/int8_matmul.hpp>
#include <quern/kernels/int8_scalar.hpp>
#include <quern/kernels/neon/float_matmul.hpp>
#include <quern/kernels/neon/int8_matmul.hpp>
#include <quern/kernels/scalar.hpp>
#include <quern/order.hpp>

namespace quern {

namespace detail {
template <class Activation, class F, class O, class I>
concept CompleteKernel = requires {
  requires kernels::Matmul<Activation, F, O, I>::compiled_here;
};
} // namespace detail

/// True when this build has the kernel for that activation type, format, order and instruction
/// set, so that user code can say `static_assert(has_kernel<float, Q4_K, RowMajor, isa::Scalar>)`.
/// Whether this CPU can run it is `Isa::available()`.
template <class Activation, BlockFormat F, BlockOrder O, Isa I>
inline constexpr bool has_kernel = detail::CompleteKernel<Activation, F, O, I>;

/// Every kind of activation that kernels read.
using Activations = boost::mp11::mp_list<float, Int8Blocks<32>, Int8Blocks<256>>;

} // namespace quern
