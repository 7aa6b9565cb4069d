#include "any_format.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

#include <quern/formats.hpp>

namespace support {

std::vector<std::byte> encode_blocks(std::uint32_t gguf_type, std::span<const float> values) {
  std::vector<std::byte> bytes;
  const bool known = quern::with_format(gguf_type, [&](auto tag) {
    using F = typename decltype(tag)::type;
    bytes.reserve(values.size() / F::block_size * F::bytes_per_block);
    for (std::size_t at = 0; at + F::block_size <= values.size(); at += F::block_size) {
      const auto encoded =
          F::encode(std::span<const float, F::block_size>{values.data() + at, F::block_size});
      bytes.insert(bytes.end(), encoded.bytes().begin(), encoded.bytes().end());
    }
  });
  if (!known) throw std::invalid_argument("no format has type " + std::to_string(gguf_type));
  return bytes;
}

std::vector<float> decode_blocks(std::uint32_t gguf_type, std::span<const std::byte> bytes) {
  std::vector<float> values;
  const bool known = quern::with_format(gguf_type, [&](auto tag) {
    using F = typename decltype(tag)::type;
    values.resize(bytes.size() / F::bytes_per_block * F::block_size);
    for (std::size_t b = 0; b < bytes.size() / F::bytes_per_block; ++b) {
      const auto block = F::decode(std::span<const std::byte, F::bytes_per_block>{
          bytes.data() + b * F::bytes_per_block, F::bytes_per_block});
      std::memcpy(values.data() + b * F::block_size, block.data(), sizeof(block));
    }
  });
  if (!known) throw std::invalid_argument("no format has type " + std::to_string(gguf_type));
  return values;
}

} // namespace support
