// floor: 2
#pragma once

#include <string_view>

#include <quern/detail/cpu_arm.hpp>
#include <quern/isa.hpp>

namespace quern::isa {

/// Neon with dot products of bytes (SDOT).
struct NeonDotprod {
  static constexpr std::string_view name = "NeonDotprod"; ///< as in kernel keys and traces
  /// True when this CPU has SDOT: on Linux as the kernel reports it (HWCAP_ASIMDDP), on macOS
  /// always. False where there is no way to ask.
  [[nodiscard]] static bool available() noexcept { return detail::arm_features().dotprod; }
};

} // namespace quern::isa
