// floor: 2
#pragma once

#include <string_view>

#include <quern/detail/cpu.hpp>
#include <quern/isa.hpp>

namespace quern::isa {

/// AVX-512 F, BW, DQ and VL: 512-bit registers.
struct Avx512 {
  static constexpr std::string_view name = "Avx512"; ///< as in kernel keys and traces
  /// True when this CPU has the four parts and AVX2, FMA and F16C, and the operating system saves
  /// 512-bit registers.
  [[nodiscard]] static bool available() noexcept { return detail::cpu_features().avx512; }
};

} // namespace quern::isa
