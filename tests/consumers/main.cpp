#include <array>
#include <cstddef>
#include <iostream>

#include <quern/formats/q4_0.hpp>
#include <quern/version.hpp>

float first_value_elsewhere(const std::array<std::byte, quern::Q4_0::bytes_per_block>& block);

int main() {
  // Scale 1.0 (0x3C00, little endian), every code 9: all values are 1.
  std::array<std::byte, quern::Q4_0::bytes_per_block> block{};
  block.fill(std::byte{0x99});
  block[0] = std::byte{0x00};
  block[1] = std::byte{0x3C};
  const auto values = quern::Q4_0::decode(block);
  float sum = 0.0f;
  for (const float value : values)
    sum += value;
  std::cout << "quern " << QUERN_VERSION_MAJOR << '.' << QUERN_VERSION_MINOR << ": " << sum << '\n';
  return sum == 32.0f && first_value_elsewhere(block) == 1.0f ? 0 : 1;
}
