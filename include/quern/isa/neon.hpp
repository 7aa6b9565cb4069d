// floor: 2
#pragma once

#include <string_view>

#include <quern/detail/cpu_arm.hpp>
#include <quern/isa.hpp>

namespace quern::isa {

/// Advanced SIMD of 64-bit ARM: 128-bit registers.
struct Neon {
  static constexpr std::string_view name = "Neon"; ///< as in kernel keys and traces
  /// True on 64-bit ARM; on Linux as the kernel reports it (HWCAP_ASIMD).
  [[nodiscard]] static bool available() noexcept { return detail::arm_features().neon; }
};

} // namespace quern::isa
