// floor: 3.3
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <span>

#include <quern/detail/encode_rows.hpp>

namespace quern::kernels::avx2 {
inline namespace QUERN_BUILD_TAG {

/// Encodes a row with F::encode_fast. The search itself is portable code in 16-bit integers, which
/// compilers turn into vectors of whatever width they may use; `flatten` draws it into this
/// function, so that it may use this instruction set's. Without fused operations, so that floats
/// are the same too.
template <class F>
__attribute__((target("avx2"), flatten)) quern::detail::RowFault
encode_row_fast(const float* values, std::size_t cols, const float* importance,
                std::byte* to) noexcept {
  for (std::size_t column = 0; column < cols; column += F::block_size) {
    std::span<const float> weights;
    if (importance != nullptr) weights = {importance + column, F::block_size};
    const auto encoded = F::encode_fast(
        std::span<const float, F::block_size>{values + column, F::block_size}, weights);
    if (!encoded.ok()) return {encoded.fault(), column + encoded.lane()};
    for (const std::byte byte : encoded.bytes())
      *to++ = byte;
  }
  return {};
}

} // namespace QUERN_BUILD_TAG
} // namespace quern::kernels::avx2

#endif
