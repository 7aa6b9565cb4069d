// floor: 4.1
#pragma once

#include <cstddef>
#include <cstdint>

#include <quern/activation.hpp>
#include <quern/block_format.hpp>
#include <quern/detail/bytes.hpp>
#include <quern/detail/fp4.hpp>
#include <quern/formats.hpp>

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
  static constexpr std::size_t unit = F::block_size < 256 ? 32 : 256;
  static constexpr bool minimum = false;
  static constexpr std::size_t d_at = At;
  static constexpr float d_factor = 1.0f / static_cast<float>(One);

  [[nodiscard]] static float d(const std::byte* block, std::size_t /*unit*/) noexcept {
    return quern::detail::load_half(block + At) * d_factor;
  }
  static void set(std::byte* block, bool d, bool /*m*/) noexcept {
    quern::detail::store_half(block + At, d ? static_cast<float>(One) : 0.0f);
  }
};

/// A binary16 scale at byte 0 and a binary16 factor of minimums at byte 2.
template <BlockFormat F>
struct ScaleAndMinimum : OneScale<F, 0> {
  static constexpr bool minimum = true;
  static constexpr std::size_t m_at = 2;

  [[nodiscard]] static float m(const std::byte* block) noexcept {
    return quern::detail::load_half(block + m_at);
  }
  static void set(std::byte* block, bool d, bool m) noexcept {
    quern::detail::store_half(block, d ? 1.0f : 0.0f);
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

/// n are the doubled values of E2M1, d is half the power of two.
template <>
struct IntegerParts<MXFP4> {
  static constexpr std::size_t unit = 32;
  static constexpr bool minimum = false;

  [[nodiscard]] static float d(const std::byte* block, std::size_t /*unit*/) noexcept {
    return quern::detail::e8m0_half(quern::detail::load_u8(block));
  }
  static void set(std::byte* block, bool /*d*/, bool /*m*/) noexcept { block[0] = std::byte{128}; }
};

/// n are the doubled values of E2M1, d is half the scale of 16 values.
template <>
struct IntegerParts<NVFP4> {
  static constexpr std::size_t unit = 16;
  static constexpr bool minimum = false;

  [[nodiscard]] static float d(const std::byte* block, std::size_t unit_index) noexcept {
    return quern::detail::ue4m3_half(quern::detail::load_u8(block + unit_index));
  }
  static void set(std::byte* block, bool /*d*/, bool /*m*/) noexcept {
    for (std::size_t u = 0; u < 4; ++u)
      block[u] = std::byte{0x40};
  }
};

} // namespace quern::kernels
