// floor: 2
#pragma once

#include <string_view>

#include <quern/isa.hpp>

namespace quern::isa {

/// Portable C++: no instructions beyond what the compiler was asked for. Always available.
struct Scalar {
  static constexpr std::string_view name = "Scalar"; ///< as in kernel keys and traces
  /// Always true.
  [[nodiscard]] static constexpr bool available() noexcept { return true; }
};

} // namespace quern::isa
