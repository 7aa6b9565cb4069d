#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// @file
/// Encoders and decoders of every format by GGUF type id, compiled once for all tests.

namespace support {

/// The blocks of `values`, each packed by the format's own encode(). Throws as Encoded::bytes().
[[nodiscard]] std::vector<std::byte> encode_blocks(std::uint32_t gguf_type,
                                                   std::span<const float> values);

/// The values of blocks, each unpacked by the format's own decode().
[[nodiscard]] std::vector<float> decode_blocks(std::uint32_t gguf_type,
                                               std::span<const std::byte> bytes);

} // namespace support
