// Which instruction sets count as available, for CPUs and systems of many kinds.

#include <cstdint>
#include <iostream>

#include <gtest/gtest.h>

#include <quern/detail/cpu.hpp>
#include <quern/detail/cpu_arm.hpp>
#include <quern/isas.hpp>

namespace {

using quern::detail::CpuFeatures;
using quern::detail::CpuidWords;
using quern::detail::features_of;

constexpr std::uint32_t bit(int n) {
  return std::uint32_t{1} << n;
}

constexpr std::uint32_t fma = bit(12), osxsave = bit(27), avx = bit(28), f16c = bit(29);
constexpr std::uint32_t avx2 = bit(5), avx512f = bit(16), dq = bit(17), bw = bit(30), vl = bit(31);
constexpr std::uint32_t avx512_vnni = bit(11), avx_vnni = bit(4);
constexpr std::uint64_t xmm_ymm = 0x6, zmm = 0xE0;

// A CPU with everything under a system that saves everything.
constexpr CpuidWords full{fma | osxsave | avx | f16c, avx2 | avx512f | dq | bw | vl, avx512_vnni,
                          avx_vnni, xmm_ymm | zmm | 1};

constexpr CpuidWords without(CpuidWords words, std::uint32_t leaf1, std::uint32_t leaf7_ebx = 0,
                             std::uint32_t leaf7_ecx = 0, std::uint32_t leaf7_1 = 0) {
  words.leaf1_ecx &= ~leaf1;
  words.leaf7_ebx &= ~leaf7_ebx;
  words.leaf7_ecx &= ~leaf7_ecx;
  words.leaf7_1_eax &= ~leaf7_1;
  return words;
}
constexpr CpuidWords saving(CpuidWords words, std::uint64_t xcr0) {
  words.xcr0 = xcr0;
  return words;
}

constexpr CpuFeatures none{};
constexpr CpuFeatures all{true, true, true, true};

TEST(Cpu, EverythingAndNothing) {
  EXPECT_EQ(features_of(full), all);
  EXPECT_EQ(features_of(CpuidWords{}), none);
}

TEST(Cpu, Avx2CountsOnlyWithFmaAndF16c) {
  EXPECT_EQ(features_of(without(full, fma)), none);
  EXPECT_EQ(features_of(without(full, f16c)), none);
  EXPECT_EQ(features_of(without(full, avx)), none);
  EXPECT_EQ(features_of(without(full, 0, avx2)), none);
}

TEST(Cpu, RegistersThatTheSystemDoesNotSaveDoNotCount) {
  EXPECT_EQ(features_of(without(full, osxsave)), none);
  EXPECT_EQ(features_of(saving(full, 0)), none);
  EXPECT_EQ(features_of(saving(full, 0x3)), none) << "only xmm is saved";
  const CpuFeatures narrow{true, true, false, false};
  EXPECT_EQ(features_of(saving(full, xmm_ymm)), narrow) << "zmm is not saved";
  for (const std::uint64_t part : {0x20u, 0x40u, 0x80u})
    EXPECT_EQ(features_of(saving(full, (xmm_ymm | zmm) & ~part)), narrow) << part;
}

TEST(Cpu, PartsOfAvx512) {
  for (const std::uint32_t part : {avx512f, dq, bw, vl})
    EXPECT_EQ(features_of(without(full, 0, part)), (CpuFeatures{true, true, false, false})) << part;
  EXPECT_EQ(features_of(without(full, 0, 0, avx512_vnni)), (CpuFeatures{true, true, true, false}));
  EXPECT_EQ(features_of(without(full, 0, 0, 0, avx_vnni)), (CpuFeatures{true, false, true, true}));
  EXPECT_EQ(features_of(without(full, 0, avx512f, 0, 0)), (CpuFeatures{true, true, false, false}))
      << "AVX-VNNI needs no AVX-512";
}

TEST(Cpu, LimitsFollowTheList) {
  using namespace quern;
  EXPECT_TRUE(IsaLimit{}.allows<isa::Avx512Vnni>());
  EXPECT_FALSE(at_most<isa::Avx2>().allows<isa::Avx512Vnni>());
  EXPECT_FALSE(at_most<isa::Avx2>().allows<isa::AvxVnni>());
  EXPECT_TRUE(at_most<isa::Avx2>().allows<isa::Avx2>());
  EXPECT_TRUE(at_most<isa::Avx2>().allows<isa::Scalar>());
  EXPECT_FALSE(at_most<isa::Scalar>().allows<isa::Avx2>());
}

TEST(Cpu, ThisOne) {
  const CpuFeatures here = quern::detail::cpu_features();
  std::cout << "this CPU: AVX2 " << here.avx2 << ", AVX-VNNI " << here.avx_vnni << ", AVX-512 "
            << here.avx512 << ", AVX-512 VNNI " << here.avx512_vnni << '\n';
  EXPECT_EQ(here, features_of(quern::detail::read_cpuid()));
#if defined(__GNUC__) && defined(__x86_64__)
  EXPECT_EQ(here.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(here.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl"));
#endif
}

TEST(CpuArm, BitsOfTheSystem) {
  using quern::detail::arm_features_of;
  using quern::detail::ArmFeatures;
  constexpr std::uint64_t asimd = 1u << 1, dotprod = 1u << 20;
  EXPECT_EQ(arm_features_of(0), ArmFeatures{});
  EXPECT_EQ(arm_features_of(~(asimd | dotprod)), ArmFeatures{});
  EXPECT_EQ(arm_features_of(asimd), (ArmFeatures{true, false}));
  EXPECT_EQ(arm_features_of(asimd | dotprod), (ArmFeatures{true, true}));
  EXPECT_EQ(arm_features_of(dotprod), ArmFeatures{}) << "dot products come with Neon";
}

TEST(CpuArm, ThisOne) {
#if defined(__aarch64__)
  EXPECT_TRUE(quern::isa::Neon::available());
#else
  EXPECT_FALSE(quern::isa::Neon::available());
  EXPECT_FALSE(quern::isa::NeonDotprod::available());
#endif
}

} // namespace
