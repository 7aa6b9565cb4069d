// floor: 2
#pragma once

#include <string_view>

#include <quern/detail/cpu.hpp>
#include <quern/isa.hpp>

namespace quern::isa {

/// AVX2 and AVX-VNNI: 256-bit registers, dot products of bytes.
struct AvxVnni {
  static constexpr std::string_view name = "AvxVnni"; ///< as in kernel keys and traces
  /// True when Avx2 is available and this CPU has AVX-VNNI.
  [[nodiscard]] static bool available() noexcept { return detail::cpu_features().avx_vnni; }
};

} // namespace quern::isa
