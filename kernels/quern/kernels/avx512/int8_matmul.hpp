// floor: 5
#pragma once

#include <quern/detail/target.hpp>

#if defined(QUERN_X86_KERNELS)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <iterator>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/isa/avx512.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/avx2/codes.hpp>
#include <quern/kernels/avx2/codes_iq.hpp>
#include <quern/kernels/avx2/codes_k.hpp>
#include <quern/kernels/avx2/grid.hpp>
#include <quern/kernels/int8_parts.hpp>
#include <quern/kernels/tiles/ops512.hpp>
#include <quern/kernels/tiles/tile.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern::kernels {

namespace avx512 {
inline namespace QUERN_BUILD_TAG {
using namespace lanes512;
using namespace tiles;
using avx2::Grid;

/// Products of bytes and of words, summed in 32-bit lanes; bytes of `codes` are unsigned.
inline constexpr bool dots_any_byte = false;
template <bool Wide>
QUERN_AVX512_INLINE Integers dot_bytes(Integers sum, Integers codes, Integers x) noexcept {
  if constexpr (!Wide) return add32(sum, add_pairs(_mm512_maddubs_epi16(codes, x)));
  // Pairs of products of bytes above 127 overflow words.
  const Integers even =
      _mm512_madd_epi16(codes & every16(0xFF), _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
  const Integers odd = _mm512_madd_epi16(_mm512_srli_epi16(codes, 8), _mm512_srai_epi16(x, 8));
  return add32(sum, add32(even, odd));
}
QUERN_AVX512_INLINE Integers dot_words(Integers sum, Integers a, Integers b) noexcept {
  return add32(sum, _mm512_madd_epi16(a, b));
}

#define QUERN_STEP QUERN_AVX512_INLINE
#define QUERN_CALL QUERN_AVX512
#include <quern/kernels/tiles/codes.hpp>
#include <quern/kernels/tiles/codes_k.hpp>
#include <quern/kernels/tiles/driver.hpp>
#undef QUERN_CALL
#undef QUERN_STEP

} // namespace QUERN_BUILD_TAG
} // namespace avx512

inline namespace QUERN_BUILD_TAG {

/// The AVX-512 kernel for int8 activations; the same bits as the portable one.
template <std::size_t Width, avx2::HasInts F, BlockOrder O>
requires(int8_width<F> == Width) struct Matmul<Int8Blocks<Width>, F, O, isa::Avx512> {
  using Input = Int8Blocks<Width>; ///< activations, `[m, in]`
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"matmul", Input::name, F::name, O::name, isa::Avx512::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// y = x * W^T. The extents must agree (see Kernel); strides are honoured.
  static void run(const Input& x, const Weight& w, MatrixView<float> y) noexcept {
    avx512::int8_matmul<F>(avx2::grid_of(w), x, y.data(), y.row_stride());
  }

  // clang-format off
  template <std::size_t OtherWidth, BlockFormat OtherFormat, BlockOrder OtherOrder>
  static void run(const Int8Blocks<OtherWidth>&, const PackedView<OtherFormat, OtherOrder>&, MatrixView<float>) QUERN_DELETED("quern::kernels::Matmul: this kernel reads one format, one block order and activations of one width, and something here is of another; quantize_activations<int8_width<Format>>(x, scope) and matmul_weight_transposed(x, w, y) choose what fits");
  // clang-format on
};

} // namespace QUERN_BUILD_TAG

} // namespace quern::kernels

#endif
