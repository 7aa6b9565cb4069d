// floor: 6
#pragma once

#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/block_format.hpp>
#include <quern/formats.hpp>
#include <quern/has_kernel.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/order.hpp>

/// @file
/// The list of all kernels, and what must be true of it. It takes a compiler a while, so nothing
/// else of quern includes it.

namespace quern {

namespace detail {
template <class A, class F, class O, class I>
using MatmulKey = KernelKeyOf<MatmulOperation, A, F, O, I>;

template <class Key>
struct KernelOf;
template <class A, class F, class O, class I>
struct KernelOf<MatmulKey<A, F, O, I>> {
  using type = kernels::Matmul<A, F, O, I>;
};
template <class Key>
using KernelOfT = typename KernelOf<Key>::type;

template <class Key>
struct IsCompiled;
template <class A, class F, class O, class I>
struct IsCompiled<MatmulKey<A, F, O, I>> : std::bool_constant<has_kernel<A, F, O, I>> {};

using AllKeys = boost::mp11::mp_product<MatmulKey, Activations, Formats, Orders, Isas>;

template <class K>
using IsKernel = std::bool_constant<Kernel<K>>;

template <class Key>
using SaysItsKey = std::bool_constant<KernelOfT<Key>::key == Key::value>;
} // namespace detail

/// The keys of all kernels of this build, as types.
using KernelKeys = boost::mp11::mp_filter<detail::IsCompiled, detail::AllKeys>;

/// Every kernel of this build.
using Kernels = boost::mp11::mp_transform<detail::KernelOfT, KernelKeys>;

namespace detail {
template <class F>
using ServesEveryOrder = std::bool_constant<has_kernel<float, F, RowMajor, isa::Scalar> &&
                                            has_kernel<float, F, InputBlockMajor, isa::Scalar>>;

/// mp_all_of for long lists: clang 14 refuses a fold expression of more than 256 operands.
template <template <class> class Holds, class... T>
consteval bool all_hold(boost::mp11::mp_list<T...>) {
  bool all = true;
  for (const bool one : {Holds<T>::value...})
    all = all && one;
  return all;
}
} // namespace detail

static_assert(detail::all_hold<detail::IsKernel>(Kernels{}),
              "quern::Kernels: an entry that does not satisfy the Kernel concept");
static_assert(detail::all_hold<detail::SaysItsKey>(KernelKeys{}),
              "quern::Kernels: a kernel whose key is not that of its type");
static_assert(boost::mp11::mp_all_of<Formats, detail::ServesEveryOrder>::value,
              "quern::Kernels: every format needs a portable float kernel in both orders");

} // namespace quern
