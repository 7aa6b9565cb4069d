// The engine of the examples against the same graph written once more: plain loops in double over
// decoded weights, whole texts at a time, without a cache.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <engine/convert.hpp>
#include <engine/model.hpp>
#include <engine/tokenizer.hpp>
#include <quern/gguf/writer.hpp>

#include "support/temp_folder.hpp"

namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>; // rows

Matrix read(const quern::gguf::File& file, const std::string& name) {
  return file.visit_weight(name, [](auto weight) {
    const std::vector<float> values = weight.to_floats();
    Matrix rows;
    for (std::size_t o = 0; o < weight.out(); ++o)
      rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(o * weight.in()),
                        values.begin() + static_cast<std::ptrdiff_t>((o + 1) * weight.in()));
    return rows;
  });
}

Vector times(const Matrix& weight, const Vector& x) {
  Vector y;
  for (const Vector& row : weight) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      sum += row[i] * x[i];
    y.push_back(sum);
  }
  return y;
}

Vector normalized(const Vector& x, const Matrix& weight) {
  double squares = 0;
  for (const double value : x)
    squares += value * value;
  Vector y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back(x[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5) * weight[0][i]);
  return y;
}

void turn(Vector& x, std::size_t head, std::size_t position) {
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const auto place = static_cast<double>(i % head);
    const double angle =
        static_cast<double>(position) * std::pow(10000.0, -place / static_cast<double>(head));
    const double first = x[i];
    x[i] = first * std::cos(angle) - x[i + 1] * std::sin(angle);
    x[i + 1] = first * std::sin(angle) + x[i + 1] * std::cos(angle);
  }
}

void add_to(Vector& x, const Vector& more) {
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] += more[i];
}

// Logits after the last token.
Vector expected_logits(const quern::gguf::File& file, const std::vector<std::uint32_t>& tokens,
                       const engine::RandomModel& made) {
  const std::size_t head = made.width / made.heads;
  const Matrix embedding = read(file, "token_embd.weight");
  Matrix x;
  for (const std::uint32_t token : tokens)
    x.push_back(embedding[token]);
  for (std::size_t l = 0; l < made.layers; ++l) {
    const std::string at = "blk." + std::to_string(l) + ".";
    const auto weight = [&](const char* name) { return read(file, at + name + ".weight"); };
    Matrix q, k, v;
    for (std::size_t p = 0; p < x.size(); ++p) {
      const Vector n = normalized(x[p], weight("attn_norm"));
      q.push_back(times(weight("attn_q"), n));
      k.push_back(times(weight("attn_k"), n));
      v.push_back(times(weight("attn_v"), n));
      turn(q[p], head, p);
      turn(k[p], head, p);
    }
    for (std::size_t p = 0; p < x.size(); ++p) {
      Vector joined;
      for (std::size_t h = 0; h < made.heads; ++h) {
        const std::size_t shared = h * made.key_heads / made.heads * head;
        Vector share(p + 1);
        double sum = 0;
        for (std::size_t t = 0; t <= p; ++t) {
          double dot = 0;
          for (std::size_t i = 0; i < head; ++i)
            dot += q[p][h * head + i] * k[t][shared + i];
          sum += share[t] = std::exp(dot / std::sqrt(static_cast<double>(head)));
        }
        for (std::size_t i = 0; i < head; ++i) {
          double value = 0;
          for (std::size_t t = 0; t <= p; ++t)
            value += share[t] / sum * v[t][shared + i];
          joined.push_back(value);
        }
      }
      add_to(x[p], times(weight("attn_output"), joined));
      const Vector n = normalized(x[p], weight("ffn_norm"));
      Vector gate = times(weight("ffn_gate"), n);
      const Vector up = times(weight("ffn_up"), n);
      for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
      add_to(x[p], times(weight("ffn_down"), gate));
    }
  }
  return times(read(file, made.tied ? "token_embd.weight" : "output.weight"),
               normalized(x.back(), read(file, "output_norm.weight")));
}

double relative_difference(std::span<const float> logits, const Vector& expected) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(logits[i]) - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

class Engine : public testing::Test {
protected:
  quern::gguf::File converted(const engine::RandomModel& made,
                              const std::vector<std::uint32_t>& formats) {
    const auto bytes = engine::random_model(made);
    const auto path = folder_ / "model.gguf";
    engine::convert(quern::gguf::File::from_bytes(bytes), formats, path.string());
    return quern::gguf::File::read(path);
  }
  const std::vector<std::uint32_t> mix_{
      quern::Q4_K::gguf_type, quern::Q6_K::gguf_type,   quern::Q8_0::gguf_type,
      quern::Q4_0::gguf_type, quern::IQ4_XS::gguf_type, quern::F16::gguf_type,
      quern::BF16::gguf_type, quern::Q2_K::gguf_type,   quern::F32::gguf_type};
  support::TempFolder folder_;
};

const engine::RandomModel small{.layers = 2, .width = 256, .hidden = 512};
const std::vector<std::uint32_t> text{1, 300, 17, 264, 5, 128, 330};

TEST_F(Engine, LogitsAgreeWithDoubles) {
  for (const bool tied : {false, true}) {
    engine::RandomModel made = small;
    made.tied = tied;
    const auto file = converted(made, mix_);
    const Vector expected = expected_logits(file, text, made);
    for (const bool int8 : {false, true}) {
      const engine::Model model(file, {.int8 = int8});
      engine::Session session(model, 16, 8);
      // The sums of float products differ from those of doubles by rounding alone; activations of
      // eight bits by about a half percent a layer.
      EXPECT_LT(relative_difference(session.decode(text), expected), int8 ? 3e-2 : 1e-5)
          << "tied " << tied << ", int8 " << int8;
      EXPECT_EQ(session.overflow_bytes(), 0u);
    }
    // Another text gives another answer, so the bounds above tell something.
    std::vector<std::uint32_t> other = text;
    std::swap(other[1], other[3]);
    const engine::Model model(file, {.int8 = false});
    engine::Session session(model, 16, 8);
    EXPECT_GT(relative_difference(session.decode(other), expected), 0.1);
  }
}

TEST_F(Engine, StepsAndBatchesGiveTheSameBits) {
  const auto file = converted(small, mix_);
  for (const bool int8 : {false, true}) {
    const engine::Model model(file, {.int8 = int8});
    engine::Session whole(model, 16, 8);
    const auto at_once = whole.decode(text);
    engine::Session stepped(model, 16, 8);
    std::span<const float> logits;
    for (const std::uint32_t token : text)
      logits = stepped.decode({&token, 1});
    EXPECT_TRUE(std::ranges::equal(at_once, logits)) << "int8 " << int8;
    EXPECT_EQ(stepped.length(), text.size());
  }
}

TEST_F(Engine, RefusesWhatItCanNotRun) {
  const auto file = converted(small, {});
  const engine::Model model(file, {});
  engine::Session session(model, 4, 8);
  EXPECT_THROW(session.decode(text), std::runtime_error);
  const std::uint32_t beyond = 1000;
  EXPECT_THROW(session.decode({&beyond, 1}), std::runtime_error);
  quern::gguf::Writer writer;
  writer.add("general.architecture", "gpt2");
  const auto bytes = writer.to_bytes();
  const auto other = quern::gguf::File::from_bytes(bytes);
  EXPECT_THROW(engine::Model(other, {}), std::runtime_error);
  EXPECT_THROW((engine::Tokenizer(other)), std::runtime_error);
}

std::vector<std::string> pieces(const engine::Tokenizer& tokenizer, std::string_view words) {
  std::vector<std::string> result;
  for (const engine::Token token : tokenizer.encode(words))
    result.push_back(tokenizer.decode(token));
  return result;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text_of;
  for (const std::string& part : parts)
    text_of += part;
  return text_of;
}

using Pieces = std::vector<std::string>;

// Which of two overlapping pairs is joined depends on the scores alone.
TEST(EngineTokenizer, PiecesJoinByScore) {
  for (const bool left_first : {true, false}) {
    quern::gguf::Writer writer;
    writer.add("tokenizer.ggml.model", "llama");
    writer.add("tokenizer.ggml.tokens",
               std::vector<std::string>{"<s>", "a", "b", "c", "ab", "bc", "<0xC3>", "<0xA9>"});
    writer.add("tokenizer.ggml.scores",
               std::vector<float>{0, -9, -9, -9, left_first ? -1.0f : -2.0f, -1.5f, 0, 0});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1, 1, 1, 1, 1, 6, 6});
    writer.add("tokenizer.ggml.add_bos_token", false);
    writer.add("tokenizer.ggml.add_space_prefix", false);
    const auto bytes = writer.to_bytes();
    const auto file = quern::gguf::File::from_bytes(bytes);
    const engine::Tokenizer tokenizer(file);
    EXPECT_EQ(pieces(tokenizer, "abc"), left_first ? (Pieces{"ab", "c"}) : (Pieces{"a", "bc"}));
    EXPECT_EQ(pieces(tokenizer, "aé"), (Pieces{"a", "\xC3", "\xA9"})); // by bytes
  }
}

TEST(EngineTokenizer, BothKindsGiveTheTextBack) {
  for (const char* kind : {"llama", "gpt2"}) {
    const auto bytes = engine::random_model(
        {.layers = 0, .width = 32, .hidden = 32, .heads = 1, .key_heads = 1, .tokenizer = kind});
    const auto file = quern::gguf::File::from_bytes(bytes);
    const engine::Tokenizer tokenizer(file);
    const std::string words = "the thing, 12345 don't\n\n  naïve\t\xF0\x9F\x8C\xBE end ";
    const bool llama = std::string_view(kind) == "llama";
    EXPECT_EQ(joined(pieces(tokenizer, words)), (llama ? " " : "") + words) << kind;
    EXPECT_EQ(tokenizer.encode("").size(), llama ? 1u : 0u) << kind; // the start of a text
  }
}

TEST(EngineTokenizer, BytePairsJoinByTheirList) {
  const auto bytes = engine::random_model(
      {.layers = 0, .width = 32, .hidden = 32, .heads = 1, .key_heads = 1, .tokenizer = "gpt2"});
  const auto file = quern::gguf::File::from_bytes(bytes);
  const engine::Tokenizer tokenizer(file);
  EXPECT_EQ(pieces(tokenizer, "the the thing"), (Pieces{"the", " the", " ", "t", "h", "ing"}));
}

TEST(EngineTokenizer, WordsAreCut) {
  using Words = std::vector<std::string_view>;
  EXPECT_EQ(engine::split_words("I'll pay  12345 (or so)!\n\nYES", false),
            (Words{"I", "'ll", " pay", " ", " 12345", " (", "or", " so", ")!", "\n", "\n", "YES"}));
  EXPECT_EQ(engine::split_words("I'LL pay  12345 (or so)!\n\nYES", true),
            (Words{"I", "'LL", " pay", " ", " ", "123", "45", " (", "or", " so", ")!\n\n", "YES"}));
}

} // namespace
