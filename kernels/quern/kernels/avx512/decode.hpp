// floor: 5.3
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <cstddef>
#include <immintrin.h>

#include <quern/block_format.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/isa/avx512.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/decode.hpp>
#include <quern/kernels/avx2/ops.hpp>
#include <quern/kernels/avx512/decode_unpack.hpp>
#include <quern/kernels/decode_scalar.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// Decoding with AVX-512: strips of its own under the loops of the AVX2 kernel.

namespace quern::kernels {

namespace avx512 {
inline namespace QUERN_BUILD_TAG {

template <BlockFormat F>
QUERN_AVX512 void decode_strip(const std::byte* at, std::size_t step, std::size_t count,
                               float* to) noexcept {
  // Single values are neighbours, sixteen are a piece.
  constexpr std::size_t blocks = avx2::is_dense<F> ? 16 : 1;
  constexpr std::size_t values = blocks * F::block_size;
  if constexpr (avx2::is_dense<F>) step = blocks * F::bytes_per_block;
  // Short pieces go by fours: counting them would cost as much as decoding them.
  if constexpr (values <= 64)
    for (; count >= 4 * blocks; count -= 4 * blocks, at += 4 * step, to += 4 * values) {
      WideFloats<F>::decode(at, to);
      WideFloats<F>::decode(at + step, to + values);
      WideFloats<F>::decode(at + 2 * step, to + 2 * values);
      WideFloats<F>::decode(at + 3 * step, to + 3 * values);
    }
  for (; count >= blocks; count -= blocks, at += step, to += values)
    WideFloats<F>::decode(at, to);
  if constexpr (avx2::is_dense<F>) avx2::decode_strip<F>(at, step, count, to);
}

} // namespace QUERN_BUILD_TAG
} // namespace avx512

inline namespace QUERN_BUILD_TAG {

/// The AVX-512 kernel that decodes.
template <BlockFormat F, BlockOrder O>
requires(avx2::is_dense<F> || avx2::HasInts<F>) struct Decode<F, O, isa::Avx512> {
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"decode", "float", F::name, O::name, isa::Avx512::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// Writes the weight into `matrix`, whose extents must agree (see DecodeKernel).
  static void run(Weight weight, MatrixView<float> matrix) noexcept {
    avx2::decode_with(&avx512::decode_strip<F>, weight, matrix);
  }
};

} // namespace QUERN_BUILD_TAG

} // namespace quern::kernels

#endif
