#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <benchmark/benchmark.h>

#include <quern/detail/target.hpp>
#include <quern/isa/avx2.hpp>
#include <quern/isa/avx512.hpp>
#include <quern/isa/avx512_vnni.hpp>

#include "thread_clock.hpp"

#if defined(QUERN_X86_KERNELS)
#include <immintrin.h>
#endif

/// Reads every byte once and does next to nothing with it: from four places at a time, which is
/// faster than from one.
inline void read_all(std::span<const std::byte> bytes) {
  constexpr std::size_t places = 4;
  std::array<std::array<std::uint64_t, 8>, places> sums{};
  const std::size_t part = bytes.size() / places;
  for (std::size_t at = 0; at + 64 <= part; at += 64)
    for (std::size_t place = 0; place < places; ++place) {
      std::array<std::uint64_t, 8> line;
      std::memcpy(line.data(), bytes.data() + place * part + at, sizeof(line));
      for (std::size_t i = 0; i < line.size(); ++i)
        sums[place][i] += line[i];
    }
  benchmark::DoNotOptimize(sums);
}

#if defined(QUERN_X86_KERNELS)
namespace limits {
// Enough sums that none waits for itself.
inline constexpr int sums = 16;
inline constexpr int rounds = 1 << 15;

QUERN_AVX512_VNNI inline void dot_bytes_512() {
  __m512i sum[sums], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (auto& s : sum)
    s = _mm512_setzero_si512();
  for (int i = 0; i < rounds; ++i) {
    QUERN_UNROLL
    for (int k = 0; k < sums; ++k)
      sum[k] = _mm512_dpbusd_epi32(sum[k], a, b);
    asm volatile("" : "+v"(b)); // else the loop is one multiplication
  }
  benchmark::DoNotOptimize(sum);
}

QUERN_AVX512 inline void fma_512() {
  __m512 sum[sums], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1e-3f);
  for (auto& s : sum)
    s = _mm512_setzero_ps();
  for (int i = 0; i < rounds; ++i) {
    QUERN_UNROLL
    for (int k = 0; k < sums; ++k)
      sum[k] = _mm512_fmadd_ps(a, b, sum[k]);
    asm volatile("" : "+v"(b)); // else the loop is one multiplication
  }
  benchmark::DoNotOptimize(sum);
}

QUERN_AVX2 inline void fma_256() {
  constexpr int few = 12; // of 16 registers
  __m256 sum[few], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1e-3f);
  for (auto& s : sum)
    s = _mm256_setzero_ps();
  for (int i = 0; i < rounds; ++i) {
    QUERN_UNROLL
    for (int k = 0; k < few; ++k)
      sum[k] = _mm256_fmadd_ps(a, b, sum[k]);
    asm volatile("" : "+v"(b)); // else the loop is one multiplication
  }
  benchmark::DoNotOptimize(sum);
}

/// `operations` of one call of `f`, over the shortest of some runs, in 1e9 per second.
template <class F>
[[nodiscard]] double giga_per_second(double operations, F f) {
  double best = 1e9;
  for (int run = 0; run < 8; ++run) {
    const double start = thread_seconds();
    f();
    best = std::min(best, thread_seconds() - start);
  }
  return operations / best / 1e9;
}
} // namespace limits
#endif

/// The most additions and multiplications of bytes that one thread makes, in 1e9 per second, by
/// the dot products of AVX-512 VNNI; 0 where the processor lacks them.
[[nodiscard]] inline double byte_peak() {
#if defined(QUERN_X86_KERNELS)
  if (quern::isa::Avx512Vnni::available())
    return limits::giga_per_second(128.0 * limits::sums * limits::rounds, limits::dot_bytes_512);
#endif
  return 0;
}

/// The same of floats, by fused multiply-add; 0 where the processor has neither AVX-512 nor AVX2.
[[nodiscard]] inline double float_peak() {
#if defined(QUERN_X86_KERNELS)
  if (quern::isa::Avx512::available())
    return limits::giga_per_second(32.0 * limits::sums * limits::rounds, limits::fma_512);
  if (quern::isa::Avx2::available())
    return limits::giga_per_second(16.0 * 12 * limits::rounds, limits::fma_256);
#endif
  return 0;
}
