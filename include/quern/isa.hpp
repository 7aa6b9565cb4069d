// floor: 1
#pragma once

#include <concepts>
#include <string_view>

#include <quern/detail/config.hpp>

namespace quern {

/// A tag for an instruction set that kernels are written for. `available()` is true when this CPU
/// has the instructions and the operating system saves the registers they use.
template <class T>
concept Isa = requires {
  { T::name } -> std::convertible_to<std::string_view>;
  { T::available() }
  noexcept->std::same_as<bool>;
};

} // namespace quern
