// Text to tokens and back, by the vocabulary in the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <quern/gguf/file.hpp>

namespace engine {

using Token = std::uint32_t;

// Two kinds of vocabularies, told by tokenizer.ggml.model: "llama", pieces with scores as
// SentencePiece makes them, and "gpt2", byte pairs with a list of merges.
class Tokenizer {
public:
  // Throws std::runtime_error with one sentence when the file has no vocabulary that it knows.
  explicit Tokenizer(const quern::gguf::File& file);

  // With the token for the start of a text in front when the vocabulary asks for it.
  [[nodiscard]] std::vector<Token> encode(std::string_view text) const;
  // The bytes of one token as they appear in a text; nothing for control tokens.
  [[nodiscard]] std::string decode(Token token) const;
  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] bool ends_text(Token token) const { return token == end_ || token == end_of_turn_; }

private:
  static constexpr Token none = ~Token{0};
  enum Kind : std::int32_t { normal = 1, unknown = 2, control = 3, byte = 6 };

  [[nodiscard]] Token find(const std::string& piece) const;
  // Joins neighbouring parts, the pair of lowest rank first; a pair without a rank is never joined.
  template <class Rank>
  void merge(std::vector<std::string>& parts, Rank rank) const;
  void encode_pieces(std::string_view text, std::vector<Token>& tokens) const;
  void encode_word(std::string_view word, std::vector<Token>& tokens) const;
  void append_bytes(const std::string& piece, std::vector<Token>& tokens) const;

  bool byte_pairs_ = false;
  bool digits_in_threes_ = false; // words are cut as Llama 3 cuts them, not as GPT-2
  bool add_begin_ = true, add_space_ = true;
  Token begin_ = none, end_ = none, end_of_turn_ = none, unknown_ = none;
  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::vector<std::int32_t> kinds_;
  std::unordered_map<std::string, Token> index_;
  std::unordered_map<std::string, std::size_t> merges_; // "left right" to its place in the list
};

// The words that byte pairs never join across. Exposed for its test.
[[nodiscard]] std::vector<std::string_view> split_words(std::string_view text, bool llama3);

} // namespace engine
