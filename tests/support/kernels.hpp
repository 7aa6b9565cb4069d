#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>

#include <quern/isas.hpp>
#include <quern/kernels.hpp>

#include "kernel_sizes.hpp"

/// @file
/// What the tests of kernels share.

namespace support {

/// Calls `f(std::type_identity<K>{})` for each kernel of that activation, format and order that
/// this CPU can run, best first.
template <class Activation, quern::BlockFormat F, quern::BlockOrder O, class Function>
void for_each_kernel(Function&& f) {
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
      [&](auto tag) {
        using I = typename decltype(tag)::type;
        if constexpr (quern::has_kernel<Activation, F, O, I>)
          if (I::available()) f(std::type_identity<quern::kernels::Matmul<Activation, F, O, I>>{});
      });
}

/// Runs the pieces in some odd order, to stand for threads that finish as they like.
struct ShuffledExecutor {
  std::size_t threads;
  template <class F>
  void parallel_for(std::size_t count, F&& f) const {
    for (std::size_t step = 0; step < threads; ++step)
      for (std::size_t i = threads - 1 - step; i < count; i += threads)
        f(i);
  }
  [[nodiscard]] std::size_t concurrency() const { return threads; }
};

} // namespace support
