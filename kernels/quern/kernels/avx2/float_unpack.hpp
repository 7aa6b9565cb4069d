// floor: 4.1
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <span>

#include <quern/block_format.hpp>
#include <quern/kernels/avx2/ops.hpp>

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// How a format becomes floats. `decode(at, sink)` reads one piece of a row, `width` values in
/// `bytes` bytes, and calls `sink.put(i, v)` with eight values from `i` on, for i = 0, 8, ... The
/// values are those of F::decode, bit for bit. This one calls F::decode itself and so serves every
/// format; a specialisation is faster.
template <BlockFormat F>
struct Floats {
  static_assert(F::block_size % 8 == 0);
  static constexpr std::size_t width = F::block_size;
  static constexpr std::size_t bytes = F::bytes_per_block;

  template <class Sink>
  QUERN_AVX2_INLINE static void decode(const std::byte* at, Sink& sink) noexcept {
    const auto values = F::decode(std::span<const std::byte, bytes>{at, bytes});
    for (std::size_t i = 0; i < width; i += 8)
      sink.put(i, _mm256_loadu_ps(values.data() + i));
  }
};

/// True for a format of single values, where eight neighbours are one piece.
template <BlockFormat F>
inline constexpr bool is_dense = F::block_size == 1;

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
