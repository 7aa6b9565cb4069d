// The llama architecture on packed weights: RMS norm, rotary positions, grouped-query attention
// with a cache of keys and values, SwiGLU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <quern/gguf/file.hpp>
#include <quern/quern.hpp>

#include "linear.hpp"

namespace engine {

struct Shape {
  std::size_t layers = 0;
  std::size_t width = 0;     // of the residual stream
  std::size_t hidden = 0;    // of the feed-forward part
  std::size_t heads = 0;     // of queries
  std::size_t key_heads = 0; // of keys and values; each serves heads / key_heads queries
  std::size_t head = 0;      // values in a head
  std::size_t rotated = 0;   // of them, how many are rotated by the position
  std::size_t vocabulary = 0;
  std::size_t context = 0; // positions that the model was made for
  float epsilon = 1e-5f;   // of the norms
  float rope_base = 10000.0f;
  float rope_scale = 1.0f; // positions are divided by it
};

struct Settings {
  bool int8 = true; // quantize activations, for the integer kernels
  quern::ExecutorRef executor = {};
  quern::Trace* trace = &quern::no_trace;
};

// The weights stay in the file, which must outlive the model.
class Model {
public:
  // Throws std::runtime_error with one sentence when the file holds no llama model.
  Model(const quern::gguf::File& file, const Settings& settings);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }

private:
  friend class Session;
  struct Layer {
    std::vector<float> attention_norm, feed_norm;
    Linear query, key, value, attention_out, gate, up, down;
  };
  Linear linear(const std::string& name, std::size_t out, std::size_t in, bool optional = false);
  std::vector<float> norm(const std::string& name);

  const quern::gguf::File& file_;
  Settings settings_;
  Shape shape_;
  std::vector<Layer> layers_;
  std::vector<float> output_norm_;
  std::vector<float> frequencies_; // of each pair of rotated values, in radians per position
  std::unique_ptr<Linear> embedding_, output_;
};

// One text: the keys and values of its tokens, and the memory of a step.
class Session {
public:
  // `batch`: the most tokens that one call of `decode` takes.
  Session(const Model& model, std::size_t positions, std::size_t batch);

  // Appends tokens; returns the logits after the last of them, valid until the next call.
  std::span<const float> decode(std::span<const std::uint32_t> tokens);

  [[nodiscard]] std::size_t length() const { return length_; }
  [[nodiscard]] std::size_t positions() const { return positions_; }
  [[nodiscard]] std::size_t batch() const { return batch_; }
  // The most memory that a step ever needed, beside the cache.
  [[nodiscard]] std::size_t step_peak_bytes() const {
    return step_.peak_bytes() + layer_.peak_bytes();
  }
  [[nodiscard]] std::size_t overflow_bytes() const {
    return step_.overflow_bytes() + layer_.overflow_bytes();
  }

private:
  using Rows = quern::MatrixView<float>;
  Rows rows(std::size_t count, std::size_t cols);
  Activations activations(Rows x);
  void rotate(Rows heads) const;
  void attend(std::size_t layer, Rows query, Rows result);
  [[nodiscard]] float* cached(std::vector<float>& cache, std::size_t layer, std::size_t at);

  const Model& model_;
  std::size_t positions_, batch_, length_ = 0, cached_row_;
  std::vector<float> keys_, values_; // [layer][position][key_heads * head]
  std::vector<float> scores_, logits_;
  quern::ForwardScope step_, layer_; // given back at each step, and at each layer
};

} // namespace engine
