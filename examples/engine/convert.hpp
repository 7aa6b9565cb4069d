// Writes models for the engine: random weights, or those of a given file, in any mix of formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <quern/gguf/file.hpp>

namespace engine {

struct RandomModel {
  std::size_t layers = 2, width = 256, hidden = 512, heads = 8, key_heads = 4;
  std::string tokenizer = "llama"; // or "gpt2"
  bool tied = false;               // one weight for the embedding and the output
  unsigned seed = 1;
};

// A llama model with weights in F32, as the bytes of a GGUF file.
[[nodiscard]] std::vector<std::byte> random_model(const RandomModel& model);

// The same model with its matrices in `formats` (GGUF type ids), one after the other and over
// again. A matrix whose rows are not whole blocks of its format stays as it is.
void convert(const quern::gguf::File& from, const std::vector<std::uint32_t>& formats,
             const std::string& path);

} // namespace engine
