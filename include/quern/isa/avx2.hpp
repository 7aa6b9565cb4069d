// floor: 2
#pragma once

#include <string_view>

#include <quern/detail/cpu.hpp>
#include <quern/isa.hpp>

namespace quern::isa {

/// AVX2 with FMA and F16C: 256-bit registers.
struct Avx2 {
  static constexpr std::string_view name = "Avx2"; ///< as in kernel keys and traces
  /// True when this CPU has AVX2, FMA and F16C and the operating system saves 256-bit registers.
  [[nodiscard]] static bool available() noexcept { return detail::cpu_features().avx2; }
};

} // namespace quern::isa
