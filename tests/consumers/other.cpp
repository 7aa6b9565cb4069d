// The same headers in a second translation unit: what they define must not collide at the link.
#include <array>
#include <cstddef>

#include <quern/formats/q4_0.hpp>
#include <quern/version.hpp>

float first_value_elsewhere(const std::array<std::byte, quern::Q4_0::bytes_per_block>& block) {
  return quern::Q4_0::decode(block)[0];
}
