// A weight of any format, as an engine keeps it: the format is looked up once, when the model is
// opened, and never again.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <quern/gguf/file.hpp>
#include <quern/quern.hpp>

namespace engine {

// Rows of activations, which several weights may read. They are quantized once for each width of
// blocks that a weight asks for, and not at all when `int8` is off.
class Activations {
public:
  Activations(quern::MatrixView<const float> x, bool int8, quern::Scope& step, quern::Trace& trace)
      : x_(x), int8_(int8), step_(step), trace_(trace) {}

  [[nodiscard]] bool int8() const { return int8_; }
  [[nodiscard]] quern::MatrixView<const float> floats() const { return x_; }
  template <std::size_t Width>
  [[nodiscard]] const quern::Int8Blocks<Width>& blocks() {
    auto& kept = std::get<std::optional<quern::Int8Blocks<Width>>>(quantized_);
    if (!kept) kept = quern::quantize_activations<Width>(x_, step_, trace_);
    return *kept;
  }

private:
  quern::MatrixView<const float> x_;
  bool int8_;
  quern::Scope& step_;
  quern::Trace& trace_;
  std::tuple<std::optional<quern::Int8Blocks<32>>, std::optional<quern::Int8Blocks<256>>>
      quantized_;
};

// Rows of a weight, or columns of its blocks.
struct Part {
  enum class Of { rows, block_columns } of;
  std::size_t from, count;
};

// y = x * W^T + bias for a weight in a mapped file, or for a part of it, without the bias.
class Linear {
public:
  // `options.weight` is replaced by `name`. Without a tensor of that name: an empty Linear.
  Linear(const quern::gguf::File& file, std::string name, quern::MatmulOptions options,
         std::optional<Part> part = std::nullopt);

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(run_); }
  [[nodiscard]] quern::OutIn shape() const { return shape_; }
  void run(Activations& x, quern::MatrixView<float> y) const;
  // Row `o` of the weight, as an embedding is looked up.
  void row(std::size_t o, std::span<float> values) const { row_(o, values); }

private:
  std::string name_;
  quern::OutIn shape_{};
  std::function<void(Activations&, quern::MatrixView<float>, quern::MatmulOptions)> run_;
  std::function<void(std::size_t, std::span<float>)> row_;
  quern::MatmulOptions options_;
  std::vector<float> bias_;
};

// A vector of the file, such as the weights of a norm; empty without a tensor of that name.
[[nodiscard]] std::vector<float> read_vector(const quern::gguf::File& file,
                                             const std::string& name);

} // namespace engine
