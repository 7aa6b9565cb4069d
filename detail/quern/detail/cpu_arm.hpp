// floor: 0
#pragma once

#include <cstdint>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/// @file
/// What this 64-bit ARM processor and its operating system allow.

namespace quern::detail {

/// Instructions that may be executed here.
struct ArmFeatures {
  bool neon = false;    ///< Advanced SIMD, part of every AArch64 processor
  bool dotprod = false; ///< dot products of bytes, ARMv8.2 optional, ARMv8.4 everywhere

  friend constexpr bool operator==(const ArmFeatures&, const ArmFeatures&) noexcept = default;
};

/// The features that AT_HWCAP of Linux stands for. Bit numbers are those of its arm64 ELF hwcaps:
/// ASIMD 1, ASIMDDP 20.
[[nodiscard]] constexpr ArmFeatures arm_features_of(std::uint64_t hwcap) noexcept {
  ArmFeatures found;
  found.neon = ((hwcap >> 1) & 1u) != 0;
  found.dotprod = found.neon && ((hwcap >> 20) & 1u) != 0;
  return found;
}

/// The features of this CPU, asked once; none on other processors.
[[nodiscard]] inline const ArmFeatures& arm_features() noexcept {
  static const ArmFeatures features = [] {
#if defined(__aarch64__) && defined(__linux__)
    return arm_features_of(getauxval(AT_HWCAP));
#elif defined(__aarch64__) && defined(__APPLE__)
    return ArmFeatures{true, true}; // every one that runs macOS
#elif defined(__aarch64__)
    return ArmFeatures{true, false};
#else
    return ArmFeatures{};
#endif
  }();
  return features;
}

} // namespace quern::detail
