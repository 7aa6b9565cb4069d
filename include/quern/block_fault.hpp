// floor: 1
#pragma once

#include <cstdint>
#include <string_view>

#include <quern/detail/config.hpp>

namespace quern {

/// What makes a block of a weight invalid. Any block decodes; an invalid one gives values that no
/// quantizer meant.
enum class BlockFault : std::uint8_t {
  none,          ///< the block is valid
  not_a_number,  ///< a scale, a minimum or a single value is NaN
  infinite,      ///< one of them is infinite
  reserved_code, ///< a code that the format's definition keeps for something else than a number
};

/// The fault in words, to end a sentence with.
[[nodiscard]] constexpr std::string_view to_string(BlockFault fault) noexcept {
  switch (fault) {
  case BlockFault::not_a_number:
    return "a scale or value that is NaN";
  case BlockFault::infinite:
    return "an infinite scale or value";
  case BlockFault::reserved_code:
    return "a reserved code";
  case BlockFault::none:
    break;
  }
  return "no fault";
}

} // namespace quern
