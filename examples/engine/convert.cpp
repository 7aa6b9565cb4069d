#include "convert.hpp"

#include <cmath>
#include <deque>
#include <random>

#include <quern/gguf/writer.hpp>
#include <quern/load.hpp>

namespace engine {

namespace {

// A vocabulary that can write any text: bytes, and a few pieces of English.
void add_vocabulary(quern::gguf::Writer& writer, const std::string& kind) {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  const auto add = [&](std::string token, std::int32_t its_kind, float score) {
    tokens.push_back(std::move(token));
    kinds.push_back(its_kind);
    scores.push_back(score);
  };
  add("<unk>", 2, 0);
  add("<s>", 3, 0);
  add("</s>", 3, 0);
  std::vector<std::string> merges;
  if (kind == "llama") {
    for (int b = 0; b < 256; ++b) {
      constexpr std::string_view digits = "0123456789ABCDEF";
      add({'<', '0', 'x', digits[static_cast<std::size_t>(b / 16)],
           digits[static_cast<std::size_t>(b % 16)], '>'},
          6, 0);
    }
    float score = -1;
    for (const char* piece : {"he", "the", "\u2581the", "in", "\u2581a", "er", "on", "re", "at",
                              "nd", "\u2581and", "ing", "\u2581w", "ll", "o\u2581", "\u2581"})
      add(piece, 1, score--);
    for (char c = '!'; c <= '~'; ++c)
      add(std::string(1, c), 1, score--);
  } else {
    for (std::uint32_t b = 0, next = 0x100; b < 256; ++b) {
      const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
      const std::uint32_t c = printable ? b : next++;
      if (c < 0x80)
        add({static_cast<char>(c)}, 1, 0);
      else
        add({static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))}, 1, 0);
    }
    for (const std::string_view pair : {"h e", "t he", "\u0120 the", "i n", "in g", "l l"}) {
      merges.emplace_back(pair);
      const std::size_t gap = pair.find(' ');
      add(std::string(pair.substr(0, gap)) + std::string(pair.substr(gap + 1)), 1, 0);
    }
    writer.add("tokenizer.ggml.merges", merges);
  }
  writer.add("tokenizer.ggml.model", kind);
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.scores", scores);
  writer.add("tokenizer.ggml.token_type", kinds);
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
}

} // namespace

std::vector<std::byte> random_model(const RandomModel& model) {
  quern::gguf::Writer writer;
  const auto number = [&](const char* key, std::size_t value) {
    writer.add("llama." + std::string(key), static_cast<std::uint32_t>(value));
  };
  writer.add("general.architecture", "llama");
  writer.add("general.name", "random weights");
  number("block_count", model.layers);
  number("embedding_length", model.width);
  number("feed_forward_length", model.hidden);
  number("attention.head_count", model.heads);
  number("attention.head_count_kv", model.key_heads);
  number("context_length", 2048);
  writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  add_vocabulary(writer, model.tokenizer);
  const std::size_t vocabulary = model.tokenizer == "llama" ? 369 : 265;

  std::mt19937 generator(model.seed);
  std::deque<std::vector<float>> kept; // the writer borrows
  const auto add = [&](const std::string& name, std::size_t out, std::size_t in, float mean) {
    std::normal_distribution<float> normal(mean, 1.0f / std::sqrt(static_cast<float>(in)));
    std::vector<float>& values = kept.emplace_back(out * in);
    for (float& value : values)
      value = normal(generator);
    const auto bytes = std::as_bytes(std::span(values));
    if (out == 1)
      writer.add_tensor(name, quern::F32::gguf_type, {in}, bytes);
    else
      writer.add_tensor(name, quern::F32::gguf_type, {in, out}, bytes);
  };
  const std::size_t keys = model.width / model.heads * model.key_heads;
  add("token_embd.weight", vocabulary, model.width, 0);
  for (std::size_t l = 0; l < model.layers; ++l) {
    const std::string at = "blk." + std::to_string(l) + ".";
    add(at + "attn_norm.weight", 1, model.width, 1);
    add(at + "attn_q.weight", model.width, model.width, 0);
    add(at + "attn_k.weight", keys, model.width, 0);
    add(at + "attn_v.weight", keys, model.width, 0);
    add(at + "attn_output.weight", model.width, model.width, 0);
    add(at + "ffn_norm.weight", 1, model.width, 1);
    add(at + "ffn_gate.weight", model.hidden, model.width, 0);
    add(at + "ffn_up.weight", model.hidden, model.width, 0);
    add(at + "ffn_down.weight", model.width, model.hidden, 0);
  }
  add("output_norm.weight", 1, model.width, 1);
  if (!model.tied) add("output.weight", vocabulary, model.width, 0);
  return writer.to_bytes();
}

void convert(const quern::gguf::File& from, const std::vector<std::uint32_t>& formats,
             const std::string& path) {
  std::size_t matrices = 0;
  quern::FormPolicy policy;
  policy.form_of = [&](const quern::gguf::Tensor& tensor) {
    quern::WeightForm form; // as stored
    if (tensor.extents[1] == 1 || formats.empty() || !quern::find_format(tensor.type_id))
      return std::optional(form);
    const std::uint32_t type = formats[matrices++ % formats.size()];
    form.encoding = {quern::gguf::find_type(type)->block_size == 1
                         ? quern::Encoding::Kind::dequantize
                         : quern::Encoding::Kind::requantize,
                     type};
    return std::optional(form);
  };
  const auto plan = quern::plan_model(from, std::numeric_limits<std::size_t>::max(), policy);
  quern::ModelScope scope;
  const auto model = quern::load_model(plan, scope);
  quern::gguf::Writer writer;
  writer.add_all(from.metadata());
  for (const auto& tensor : from.tensors()) {
    const auto& loaded = model.at(tensor.name);
    writer.add_tensor(tensor.name, loaded.plan().type, tensor.extents, loaded.bytes());
  }
  writer.write(path);
}

} // namespace engine
