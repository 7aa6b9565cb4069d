#include <array>
#include <cstddef>

#include <Eigen/Core>

#include <quern/formats/q4_0.hpp>

int main() {
  // Scale 1.0, every code 10: all values are 2.
  std::array<std::byte, quern::Q4_0::bytes_per_block> block{};
  block.fill(std::byte{0xAA});
  block[0] = std::byte{0x00};
  block[1] = std::byte{0x3C};
  const auto values = quern::Q4_0::decode(block);
  const Eigen::Map<const Eigen::VectorXf> row(values.data(), 32);
  return row.sum() == 64.0f ? 0 : 1;
}
