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

/// The sizes that every kernel is tried with: outputs around multiples of 8 and 32, odd counts of
/// blocks. Rows of x vary along, so that each count meets many shapes.
struct Size {
  std::size_t out;
  std::size_t blocks;
  std::size_t rows;
};
[[nodiscard]] inline std::vector<Size> sizes() {
  std::vector<std::size_t> outs;
  for (std::size_t out = 1; out <= 17; ++out)
    outs.push_back(out);
  outs.insert(outs.end(), {31, 33, 63, 65});
  static constexpr std::size_t rows[] = {1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1, 11, 13, 16, 17, 33};
  std::vector<Size> all;
  std::size_t turn = 0;
  for (const std::size_t out : outs)
    for (const std::size_t blocks : {1u, 2u, 3u, 5u, 18u})
      all.push_back({out, blocks, rows[turn++ % std::size(rows)]});
  return all;
}

/// Marks places that a kernel must not write.
inline constexpr float canary = -12345.678f;

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
