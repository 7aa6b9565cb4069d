// floor: 2
#pragma once

#include <string_view>

#include <quern/detail/cpu.hpp>
#include <quern/isa.hpp>

namespace quern::isa {

/// AVX-512 with VNNI: 512-bit registers, dot products of bytes.
struct Avx512Vnni {
  static constexpr std::string_view name = "Avx512Vnni"; ///< as in kernel keys and traces
  /// True when Avx512 is available and this CPU has AVX512_VNNI.
  [[nodiscard]] static bool available() noexcept { return detail::cpu_features().avx512_vnni; }
};

} // namespace quern::isa
