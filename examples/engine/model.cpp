#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace engine {

namespace {

void rms_norm(const float* x, std::span<const float> weight, float epsilon, float* y) {
  double sum = 0;
  for (std::size_t i = 0; i < weight.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const auto scale = static_cast<float>(
      1.0 / std::sqrt(sum / static_cast<double>(weight.size()) + static_cast<double>(epsilon)));
  for (std::size_t i = 0; i < weight.size(); ++i)
    y[i] = x[i] * scale * weight[i];
}

void add(quern::MatrixView<const float> x, quern::MatrixView<float> to) {
  for (std::size_t r = 0; r < x.rows(); ++r)
    std::transform(x.row(r), x.row(r) + x.cols(), to.row(r), to.row(r), std::plus<>{});
}

Shape read_shape(const quern::gguf::File& file) {
  const auto& data = file.metadata();
  const auto architecture = data.get_or<std::string>("general.architecture", "");
  if (architecture != "llama")
    throw std::runtime_error("the file holds a model of architecture '" + architecture +
                             "'; this engine runs 'llama'");
  const auto size = [&](const char* key) {
    return data.get<std::size_t>("llama." + std::string(key));
  };
  const auto size_or = [&](const char* key, std::size_t otherwise) {
    return data.get_or<std::size_t>("llama." + std::string(key), otherwise);
  };
  Shape s;
  s.layers = size("block_count");
  s.width = size("embedding_length");
  s.hidden = size("feed_forward_length");
  s.heads = size("attention.head_count");
  s.key_heads = size_or("attention.head_count_kv", s.heads);
  if (s.heads == 0 || s.key_heads == 0 || s.heads % s.key_heads != 0 || s.width == 0)
    throw std::runtime_error("the model's heads do not divide: " + std::to_string(s.heads) +
                             " of " + "queries, " + std::to_string(s.key_heads) + " of keys");
  s.head = size_or("attention.key_length", s.width / s.heads);
  s.rotated = size_or("rope.dimension_count", s.head);
  if (s.rotated > s.head || s.rotated % 2 != 0 ||
      size_or("attention.value_length", s.head) != s.head)
    throw std::runtime_error("the model's heads have a shape that this engine does not run");
  s.context = size_or("context_length", 2048);
  s.epsilon = data.get_or<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  s.rope_base = data.get_or<float>("llama.rope.freq_base", 10000.0f);
  const auto scaling = data.get_or<std::string>("llama.rope.scaling.type", "none");
  if (scaling == "linear")
    s.rope_scale = data.get_or<float>("llama.rope.scaling.factor", 1.0f);
  else if (scaling != "none")
    throw std::runtime_error("the model scales its positions by '" + scaling +
                             "', which this engine does not run");
  if (size_or("expert_count", 0) != 0)
    throw std::runtime_error("the model has experts, which this engine does not run");
  return s;
}

} // namespace

Linear Model::linear(const std::string& name, std::size_t out, std::size_t in, bool optional) {
  Linear weight(file_, name, {settings_.trace, settings_.executor, {}, {}});
  if (!weight && optional) return weight;
  if (!weight) throw std::runtime_error("the model has no tensor '" + name + "'");
  if (weight.shape().out != out || weight.shape().in != in)
    throw std::runtime_error("tensor '" + name + "' is " + quern::to_string(weight.shape()) +
                             ", the model needs " + quern::to_string(quern::OutIn{out, in}));
  return weight;
}

std::vector<float> Model::norm(const std::string& name) {
  auto values = read_vector(file_, name);
  if (values.size() != shape_.width)
    throw std::runtime_error("tensor '" + name + "' has " + std::to_string(values.size()) +
                             " values, the model needs " + std::to_string(shape_.width));
  return values;
}

Model::Model(const quern::gguf::File& file, const Settings& settings)
    : file_(file), settings_(settings), shape_(read_shape(file)) {
  Shape& s = shape_;
  const auto embedding = file.tensors().find("token_embd.weight");
  s.vocabulary = embedding ? static_cast<std::size_t>(embedding->extents[1]) : 0;
  embedding_ = std::make_unique<Linear>(linear("token_embd.weight", s.vocabulary, s.width));
  output_ = std::make_unique<Linear>(linear("output.weight", s.vocabulary, s.width, true));
  output_norm_ = norm("output_norm.weight");
  const std::size_t queries = s.heads * s.head;
  const std::size_t keys = s.key_heads * s.head;
  for (std::size_t l = 0; l < s.layers; ++l) {
    const std::string at = "blk." + std::to_string(l) + ".";
    layers_.push_back({norm(at + "attn_norm.weight"), norm(at + "ffn_norm.weight"),
                       linear(at + "attn_q.weight", queries, s.width),
                       linear(at + "attn_k.weight", keys, s.width),
                       linear(at + "attn_v.weight", keys, s.width),
                       linear(at + "attn_output.weight", s.width, queries),
                       linear(at + "ffn_gate.weight", s.hidden, s.width),
                       linear(at + "ffn_up.weight", s.hidden, s.width),
                       linear(at + "ffn_down.weight", s.width, s.hidden)});
  }
  // Models with a long context bring a factor for each frequency.
  const auto factors = read_vector(file, "rope_freqs.weight");
  if (!factors.empty() && factors.size() != s.rotated / 2)
    throw std::runtime_error("tensor 'rope_freqs.weight' has not one value for each rotated pair");
  for (std::size_t i = 0; i < s.rotated / 2; ++i) {
    const double power = -2.0 * static_cast<double>(i) / static_cast<double>(s.rotated);
    const double frequency =
        std::pow(static_cast<double>(s.rope_base), power) / static_cast<double>(s.rope_scale);
    frequencies_.push_back(
        static_cast<float>(frequency / (factors.empty() ? 1.0 : static_cast<double>(factors[i]))));
  }
}

namespace {

// What decode() takes from the scope of a step: seven kinds of rows.
std::size_t step_bytes(const Shape& s, std::size_t batch) {
  const std::size_t values = 3 * s.width + 2 * s.heads * s.head + 2 * s.hidden;
  return batch * values * sizeof(float) + 7 * 64;
}

// What a layer takes from its own: four kinds of activations, as integers with their scales for
// both widths of blocks. A little more than a byte each, so two bytes are enough.
std::size_t layer_bytes(const Shape& s, std::size_t batch) {
  return 2 * batch * 2 * (2 * s.width + s.heads * s.head + s.hidden) + 8 * 64 * (batch + 1);
}

} // namespace

Session::Session(const Model& model, std::size_t positions, std::size_t batch)
    : model_(model), positions_(positions), batch_(batch),
      cached_row_(model.shape().key_heads * model.shape().head),
      keys_(model.shape().layers * positions * cached_row_), values_(keys_.size()),
      scores_(model.shape().heads * batch * positions), logits_(model.shape().vocabulary),
      step_(step_bytes(model.shape(), batch), *model.settings().trace),
      layer_(layer_bytes(model.shape(), batch), *model.settings().trace) {}

Session::Rows Session::rows(std::size_t count, std::size_t cols) {
  auto* const data = static_cast<float*>(step_.allocate(count * cols * sizeof(float), 64));
  return {std::span(data, count * cols), count, cols};
}

Activations Session::activations(Rows x) {
  return {x, model_.settings().int8, layer_, *model_.settings().trace};
}

float* Session::cached(std::vector<float>& cache, std::size_t layer, std::size_t at) {
  return cache.data() + (layer * positions_ + at) * cached_row_;
}

// Each neighbouring pair of a head's values is turned by an angle that grows with the position.
void Session::rotate(Rows heads) const {
  const Shape& s = model_.shape();
  for (std::size_t r = 0; r < heads.rows(); ++r)
    for (std::size_t i = 0; i < model_.frequencies_.size(); ++i) {
      const float angle = static_cast<float>(length_ + r) * model_.frequencies_[i];
      const float c = std::cos(angle);
      const float t = std::sin(angle);
      for (float* x = heads.row(r) + 2 * i; x < heads.row(r) + heads.cols(); x += s.head) {
        const float first = x[0];
        x[0] = first * c - x[1] * t;
        x[1] = first * t + x[1] * c;
      }
    }
}

// Each head of each row looks back over all positions up to its own. Heads are independent, so
// they are the pieces that the executor gets.
void Session::attend(std::size_t layer, Rows query, Rows result) {
  const Shape& s = model_.shape();
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head));
  const std::size_t tasks = query.rows() * s.heads;
  const auto one_head = [&](std::size_t task) {
    const std::size_t r = task / s.heads;
    const std::size_t h = task % s.heads;
    const std::size_t offset = h / (s.heads / s.key_heads) * s.head;
    const std::size_t seen = length_ + r + 1;
    const float* const q = query.row(r) + h * s.head;
    float* const scores = scores_.data() + task * positions_;
    for (std::size_t p = 0; p < seen; ++p) {
      const float* const k = cached(keys_, layer, p) + offset;
      scores[p] = scale * std::inner_product(q, q + s.head, k, 0.0f);
    }
    const float largest = *std::max_element(scores, scores + seen);
    float sum = 0;
    for (std::size_t p = 0; p < seen; ++p)
      sum += scores[p] = std::exp(scores[p] - largest);
    float* const y = result.row(r) + h * s.head;
    std::fill(y, y + s.head, 0.0f);
    for (std::size_t p = 0; p < seen; ++p) {
      const float* const v = cached(values_, layer, p) + offset;
      for (std::size_t i = 0; i < s.head; ++i)
        y[i] += scores[p] / sum * v[i];
    }
  };
  model_.settings().executor.parallel_for(tasks, one_head);
}

std::span<const float> Session::decode(std::span<const std::uint32_t> tokens) {
  const Shape& s = model_.shape();
  const std::size_t n = tokens.size();
  if (n == 0 || n > batch_ || n > positions_ - length_)
    throw std::runtime_error(std::to_string(n) + " tokens do not fit: a step takes " +
                             std::to_string(batch_) + ", the context has room for " +
                             std::to_string(positions_ - length_));
  step_.reset();
  const Rows x = rows(n, s.width);
  const Rows normed = rows(n, s.width);
  const Rows sum = rows(n, s.width);
  const Rows query = rows(n, s.heads * s.head);
  const Rows attended = rows(n, s.heads * s.head);
  const Rows gate = rows(n, s.hidden);
  const Rows up = rows(n, s.hidden);

  for (std::size_t r = 0; r < n; ++r) {
    if (tokens[r] >= s.vocabulary)
      throw std::runtime_error("token " + std::to_string(tokens[r]) + " is not in the vocabulary");
    model_.embedding_->row(tokens[r], {x.row(r), s.width});
  }
  const auto norm_rows = [&](const std::vector<float>& weight) {
    for (std::size_t r = 0; r < n; ++r)
      rms_norm(x.row(r), weight, s.epsilon, normed.row(r));
    return activations(normed);
  };
  for (std::size_t l = 0; l < s.layers; ++l) {
    const Model::Layer& layer = model_.layers_[l];
    layer_.reset();
    const std::size_t floats = n * cached_row_;
    const Rows key({cached(keys_, l, length_), floats}, n, cached_row_);
    const Rows value({cached(values_, l, length_), floats}, n, cached_row_);

    Activations attention_in = norm_rows(layer.attention_norm);
    layer.query.run(attention_in, query);
    layer.key.run(attention_in, key);
    layer.value.run(attention_in, value);
    rotate(query);
    rotate(key);
    attend(l, query, attended);
    Activations attention_out = activations(attended);
    layer.attention_out.run(attention_out, sum);
    add(sum, x);

    Activations feed_in = norm_rows(layer.feed_norm);
    layer.gate.run(feed_in, gate);
    layer.up.run(feed_in, up);
    for (std::size_t i = 0; i < n * s.hidden; ++i)
      gate.data()[i] = gate.data()[i] / (1.0f + std::exp(-gate.data()[i])) * up.data()[i];
    Activations feed_out = activations(gate);
    layer.down.run(feed_out, sum);
    add(sum, x);
  }
  layer_.reset();
  const Rows last({normed.row(n - 1), s.width}, 1, s.width);
  rms_norm(x.row(n - 1), model_.output_norm_, s.epsilon, last.data());
  Activations output_in = activations(last);
  const Linear& output =
      *model_.output_ ? *model_.output_ : *model_.embedding_; // may be one weight
  output.run(output_in, {logits_, 1, s.vocabulary});
  length_ += n;
  return logits_;
}

} // namespace engine
