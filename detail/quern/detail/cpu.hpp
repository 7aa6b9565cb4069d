// floor: 0
#pragma once

#include <cstdint>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#include <cpuid.h>
#define QUERN_HAS_CPUID 1
#endif

/// @file
/// What this CPU and its operating system allow. An instruction set counts only when the CPU has it
/// and the system saves its registers at a task switch: a CPU may offer wide registers that the
/// system has not switched on.

namespace quern::detail {

/// The registers that the answer depends on, as CPUID and XGETBV return them.
struct CpuidWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_1_eax = 0;
  /// XCR0: bit n set = the system saves state component n. 0 when the CPU has no XGETBV.
  std::uint64_t xcr0 = 0;
};

/// Instructions that may be executed here.
struct CpuFeatures {
  bool avx2 = false;        ///< with FMA and F16C
  bool avx_vnni = false;    ///< with avx2
  bool avx512 = false;      ///< F, BW, DQ and VL, with avx2
  bool avx512_vnni = false; ///< with avx512

  friend constexpr bool operator==(const CpuFeatures&, const CpuFeatures&) noexcept = default;
};

/// The features that `words` stand for. Bit numbers are those of the Intel and AMD manuals.
[[nodiscard]] constexpr CpuFeatures features_of(const CpuidWords& words) noexcept {
  constexpr auto bit = [](std::uint32_t word, int n) { return ((word >> n) & 1u) != 0; };
  const bool ymm_saved = bit(words.leaf1_ecx, 27) && (words.xcr0 & 0x06u) == 0x06u;
  const bool zmm_saved = ymm_saved && (words.xcr0 & 0xE0u) == 0xE0u;
  CpuFeatures found;
  found.avx2 = ymm_saved && bit(words.leaf1_ecx, 28) && bit(words.leaf1_ecx, 12) &&
               bit(words.leaf1_ecx, 29) && bit(words.leaf7_ebx, 5);
  found.avx_vnni = found.avx2 && bit(words.leaf7_1_eax, 4);
  found.avx512 = found.avx2 && zmm_saved && bit(words.leaf7_ebx, 16) && bit(words.leaf7_ebx, 17) &&
                 bit(words.leaf7_ebx, 30) && bit(words.leaf7_ebx, 31);
  found.avx512_vnni = found.avx512 && bit(words.leaf7_ecx, 11);
  return found;
}

/// The words of this CPU; all zero where there is no CPUID.
[[nodiscard]] inline CpuidWords read_cpuid() noexcept {
  CpuidWords words;
#if defined(QUERN_HAS_CPUID)
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) words.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    words.leaf7_ebx = b;
    words.leaf7_ecx = c;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) words.leaf7_1_eax = a;
  }
  // XGETBV faults unless the system has switched XSAVE on, which is what bit 27 says.
  if (((words.leaf1_ecx >> 27) & 1u) != 0) {
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = (static_cast<std::uint64_t>(high) << 32) | low;
  }
#endif
  return words;
}

/// The features of this CPU, asked once.
[[nodiscard]] inline const CpuFeatures& cpu_features() noexcept {
  static const CpuFeatures features = features_of(read_cpuid());
  return features;
}

} // namespace quern::detail
