// floor: 0
#pragma once

/// @file
/// How code for one instruction set is marked. Each function carries its own target attribute, so a
/// user needs no compiler flag and gets every kernel.

// Kernels for x86 need GCC or Clang: the attribute is theirs.
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define QUERN_X86_KERNELS 1
#define QUERN_TARGET(features) __attribute__((target(features)))
// Small steps of a kernel. Always inlined: a call would spill every register, and a vector in the
// signature of a real call is passed differently under other flags.
#define QUERN_TARGET_INLINE(features) __attribute__((target(features), always_inline)) inline
#define QUERN_AVX2_FEATURES "avx2,fma,f16c"
#define QUERN_AVX512_FEATURES "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#define QUERN_AVX_VNNI_FEATURES QUERN_AVX2_FEATURES ",avxvnni"
#define QUERN_AVX512_VNNI_FEATURES QUERN_AVX512_FEATURES ",avx512vnni"
#define QUERN_AVX2 QUERN_TARGET(QUERN_AVX2_FEATURES)
#define QUERN_AVX2_INLINE QUERN_TARGET_INLINE(QUERN_AVX2_FEATURES)
#define QUERN_AVX512 QUERN_TARGET(QUERN_AVX512_FEATURES)
#define QUERN_AVX512_INLINE QUERN_TARGET_INLINE(QUERN_AVX512_FEATURES)
#define QUERN_AVX_VNNI QUERN_TARGET(QUERN_AVX_VNNI_FEATURES)
#define QUERN_AVX_VNNI_INLINE QUERN_TARGET_INLINE(QUERN_AVX_VNNI_FEATURES)
#define QUERN_AVX512_VNNI QUERN_TARGET(QUERN_AVX512_VNNI_FEATURES)
#define QUERN_AVX512_VNNI_INLINE QUERN_TARGET_INLINE(QUERN_AVX512_VNNI_FEATURES)
// Before a loop over registers, whose bounds are constants: an array stays in registers only when
// every index is known.
#if defined(__clang__)
#define QUERN_UNROLL _Pragma("unroll")
#else
#define QUERN_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

// Kernels for 64-bit ARM: Neon is part of every such processor, dot products are not. Older
// versions of Clang have their intrinsics only when the whole translation unit may use them.
#if (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__) && !defined(__AARCH64EB__)
#define QUERN_ARM_KERNELS 1
#define QUERN_NEVER_INLINE __attribute__((noinline))
#if !defined(__clang__)
#define QUERN_NEON_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#elif __clang_major__ >= 16
#define QUERN_NEON_DOTPROD __attribute__((target("dotprod")))
#elif defined(__ARM_FEATURE_DOTPROD)
#define QUERN_NEON_DOTPROD
#endif
#endif

// Names the instructions that the whole translation unit may use. Code that runs kernels lives in
// an inline namespace of this name: were it shared, the linker could hand the copy built with wide
// instructions to a unit that was built to run without them.
#if defined(__AVX512F__)
#define QUERN_BUILD_TAG built_avx512
#elif defined(__AVX2__)
#define QUERN_BUILD_TAG built_avx2
#elif defined(__AVX__)
#define QUERN_BUILD_TAG built_avx
#elif defined(__SSE4_1__)
#define QUERN_BUILD_TAG built_sse4
#elif defined(__ARM_FEATURE_SVE)
#define QUERN_BUILD_TAG built_sve
#elif defined(__ARM_FEATURE_DOTPROD)
#define QUERN_BUILD_TAG built_dotprod
#else
#define QUERN_BUILD_TAG built_baseline
#endif
