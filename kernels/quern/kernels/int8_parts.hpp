// floor: 4.1
#pragma once

#include <cstddef>
#include <cstdint>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/fp4.hpp>
#include <quern/detail/half.hpp>
#include <quern/formats.hpp>
#include <quern/formats/iq1_m.hpp>
#include <quern/formats/iq1_s.hpp>
#include <quern/formats/iq2_s.hpp>
#include <quern/formats/iq2_xs.hpp>
#include <quern/formats/iq2_xxs.hpp>
#include <quern/formats/iq3_s.hpp>
#include <quern/formats/iq3_xxs.hpp>
#include <quern/formats/iq4_nl.hpp>
#include <quern/formats/iq4_xs.hpp>
#include <quern/formats/q2_k.hpp>
#include <quern/formats/q3_k.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/formats/q5_k.hpp>
#include <quern/formats/q6_k.hpp>

/// @file
/// A block as integers and few floats, the base of every kernel for int8 activations:
///
///     value i = d * n[i] + m * k[i]
///
/// where n and k are integers. The integers need no code of their own: F::decode gives n when d is
/// set to one and m to zero, and k the other way round.

namespace quern::kernels {

/// The floats of a block of F. `unit` values share a `d`; `d(block, u)` is that of unit u and
/// `m(block)` the factor of k, where `minimum` says there is one. `set(block, d, m)` writes one
/// (true) or zero into their fields. Specialised for every format with int8_width.
template <BlockFormat F>
struct IntegerParts;

/// One binary16 scale, at byte `At`. `One` is its value when all n are integers.
template <BlockFormat F, std::size_t At, int One = 1>
struct OneScale {
  static constexpr std::size_t unit = F::block_size < 256 ? 32 : 256; ///< values that share a d
  static constexpr bool minimum = false;                              ///< whether there are m and k
  static constexpr std::size_t d_at = At;                             ///< byte of the scale
  static constexpr float d_factor = 1.0f / static_cast<float>(One);   ///< d over the scale

  /// d of the block, the same for all its units.
  [[nodiscard]] static float d(const std::byte* block, std::size_t /*unit*/) noexcept {
    return quern::detail::load_half(block + At) * d_factor;
  }
  /// Makes d one (true) or zero.
  static void set(std::byte* block, bool d, bool /*m*/) noexcept {
    quern::detail::store_half(block + At, d ? static_cast<float>(One) : 0.0f);
  }
};

/// A binary16 scale at byte `At` and a binary16 factor of minimums behind it.
template <BlockFormat F, std::size_t At = 0>
struct ScaleAndMinimum : OneScale<F, At> {
  static constexpr bool minimum = true;       ///< whether there are m and k
  static constexpr std::size_t m_at = At + 2; ///< byte of m

  /// m of the block.
  [[nodiscard]] static float m(const std::byte* block) noexcept {
    return quern::detail::load_half(block + m_at);
  }
  /// Makes d and m one (true) or zero.
  static void set(std::byte* block, bool d, bool m) noexcept {
    quern::detail::store_half(block + At, d ? 1.0f : 0.0f);
    quern::detail::store_half(block + m_at, m ? 1.0f : 0.0f);
  }
};

template <>
struct IntegerParts<Q4_0> : OneScale<Q4_0, 0> {};
template <>
struct IntegerParts<Q4_1> : ScaleAndMinimum<Q4_1> {};
template <>
struct IntegerParts<Q5_0> : OneScale<Q5_0, 0> {};
template <>
struct IntegerParts<Q5_1> : ScaleAndMinimum<Q5_1> {};
template <>
struct IntegerParts<Q8_0> : OneScale<Q8_0, 0> {};
template <>
struct IntegerParts<Q1_0> : OneScale<Q1_0, 0> {};
template <>
struct IntegerParts<Q2_0> : OneScale<Q2_0, 0> {};
template <>
struct IntegerParts<TQ1_0> : OneScale<TQ1_0, 52> {};
template <>
struct IntegerParts<TQ2_0> : OneScale<TQ2_0, 64> {};

template <>
struct IntegerParts<Q2_K> : ScaleAndMinimum<Q2_K, 80> {};
template <>
struct IntegerParts<Q3_K> : OneScale<Q3_K, 108> {};
template <>
struct IntegerParts<Q4_K> : ScaleAndMinimum<Q4_K> {};
template <>
struct IntegerParts<Q5_K> : ScaleAndMinimum<Q5_K> {};
template <>
struct IntegerParts<Q6_K> : OneScale<Q6_K, 208> {};
template <>
struct IntegerParts<IQ4_NL> : OneScale<IQ4_NL, 0> {};
template <>
struct IntegerParts<IQ4_XS> : OneScale<IQ4_XS, 0> {};
template <>
struct IntegerParts<IQ3_XXS> : OneScale<IQ3_XXS, 0, 4> {};
template <>
struct IntegerParts<IQ3_S> : OneScale<IQ3_S, 0> {};
template <>
struct IntegerParts<IQ2_XXS> : OneScale<IQ2_XXS, 0, 8> {};
template <>
struct IntegerParts<IQ2_XS> : OneScale<IQ2_XS, 0, 8> {};
template <>
struct IntegerParts<IQ2_S> : OneScale<IQ2_S, 0, 8> {};
template <>
struct IntegerParts<IQ1_S> : OneScale<IQ1_S, 0, 8> {};

/// The scale is spread over the upper bits of four numbers.
template <>
struct IntegerParts<IQ1_M> {
  static constexpr std::size_t unit = 256; ///< values that share a d
  static constexpr bool minimum = false;   ///< whether there are m and k

  /// d of the block, the same for all its units.
  [[nodiscard]] static float d(const std::byte* block, std::size_t /*unit*/) noexcept {
    unsigned bits = 0;
    for (std::size_t k = 0; k < 4; ++k)
      bits |= (static_cast<unsigned>(quern::detail::load_u8(block + 49 + 2 * k)) >> 4) << (4 * k);
    return quern::detail::half_to_float(static_cast<std::uint16_t>(bits)) * 0.125f;
  }
  /// Makes d one (true) or zero.
  static void set(std::byte* block, bool d, bool /*m*/) noexcept {
    const unsigned bits = d ? 0x4800u : 0u; // 8 as binary16
    for (std::size_t k = 0; k < 4; ++k)
      block[49 + 2 * k] = static_cast<std::byte>(
          (quern::detail::load_u8(block + 49 + 2 * k) & 15u) | (((bits >> (4 * k)) & 15u) << 4));
  }
};

/// n are the doubled values of E2M1, d is half the power of two.
template <>
struct IntegerParts<MXFP4> {
  static constexpr std::size_t unit = 32; ///< values that share a d
  static constexpr bool minimum = false;  ///< whether there are m and k

  /// d of the block, the same for all its units.
  [[nodiscard]] static float d(const std::byte* block, std::size_t /*unit*/) noexcept {
    return quern::detail::e8m0_half(quern::detail::load_u8(block));
  }
  /// Makes d one; no zero is asked of a format without m.
  static void set(std::byte* block, bool /*d*/, bool /*m*/) noexcept { block[0] = std::byte{128}; }
};

/// n are the doubled values of E2M1, d is half the scale of 16 values.
template <>
struct IntegerParts<NVFP4> {
  static constexpr std::size_t unit = 16; ///< values that share a d
  static constexpr bool minimum = false;  ///< whether there are m and k

  /// d of that unit.
  [[nodiscard]] static float d(const std::byte* block, std::size_t unit_index) noexcept {
    return quern::detail::ue4m3_half(quern::detail::load_u8(block + unit_index));
  }
  /// Makes every d one; no zero is asked of a format without m.
  static void set(std::byte* block, bool /*d*/, bool /*m*/) noexcept {
    for (std::size_t u = 0; u < 4; ++u)
      block[u] = std::byte{0x40};
  }
};

} // namespace quern::kernels
