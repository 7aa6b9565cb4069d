// floor: 5
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include <quern/block_format.hpp>
#include <quern/detail/target.hpp>
#include <quern/isa.hpp>
#include <quern/isa/scalar.hpp>
#include <quern/kernel.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

/// @file
/// What a kernel that decodes is, and the portable one.

namespace quern {

namespace kernels {
inline namespace QUERN_BUILD_TAG {

/// Decodes a weight in format `F` and block order `O` with the instructions of `Isa_`. Specialised
/// by the headers under quern/kernels/; a combination without a specialisation is incomplete, which
/// has_decode_kernel reports as false.
template <BlockFormat F, BlockOrder O, Isa Isa_>
struct Decode;

/// The kernel of portable C++: every format calls its own F::decode.
template <BlockFormat F, BlockOrder O>
struct Decode<F, O, isa::Scalar> {
  using Weight = PackedView<F, O>; ///< `[out, in]`

  /// Its identity as a value, for messages and traces.
  static constexpr KernelKey key{"decode", "float", F::name, O::name, isa::Scalar::name};
  static constexpr bool compiled_here = true; ///< in this build, whatever the CPU has

  /// Writes the weight into `matrix`, whose extents must agree (see DecodeKernel).
  static constexpr void run(Weight weight, MatrixView<float> matrix) noexcept {
    for (std::size_t o = 0; o < weight.out(); ++o)
      weight.decode_row(o, std::span<float>{matrix.row(o), weight.in()});
  }
};

} // namespace QUERN_BUILD_TAG
} // namespace kernels

/// A kernel that decodes: `run(w, matrix)` writes w, `[out, in]`, row after row. The extents of
/// `matrix` must be those of w; decode() checks them, run() does not. Every kernel writes the bits
/// of Format::decode, except that a NaN of a scaled format may have another payload.
template <class K>
concept DecodeKernel = requires(typename K::Weight w, MatrixView<float> matrix) {
  { K::key } -> std::convertible_to<KernelKey>;
  { K::compiled_here } -> std::convertible_to<bool>;
  { K::run(w, matrix) }
  noexcept->std::same_as<void>;
};

} // namespace quern
