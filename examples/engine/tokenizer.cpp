#include "tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <queue>
#include <stdexcept>
#include <tuple>

namespace engine {

namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81"; // U+2581, a space in "llama" pieces

// Bytes of the character that starts with `lead`; 1 for what starts none.
std::size_t character_bytes(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
}

std::string utf8(std::uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
          static_cast<char>(0x80 | (c & 0x3F))};
}

// "gpt2" vocabularies write each byte as a printable character: those that are printable stand for
// themselves, the others for the characters from U+0100 on, in order.
const std::array<std::string, 256>& byte_characters() {
  static const auto table = [] {
    std::array<std::string, 256> characters;
    std::uint32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
      characters[b] = utf8(printable ? b : next++);
    }
    return characters;
  }();
  return table;
}

enum class Class { letter, digit, space, other };

struct Character {
  std::size_t at, bytes;
  Class kind;
  bool newline;
};

// Beyond ASCII the tables of Unicode are approximated: what is neither space nor in a block of
// punctuation counts as a letter.
Class class_of(std::uint32_t c) {
  if (c < 0x80) {
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return Class::letter;
    if (c >= '0' && c <= '9') return Class::digit;
    return c == ' ' || (c >= 9 && c <= 13) ? Class::space : Class::other;
  }
  if (c == 0x85 || c == 0xA0 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
      c == 0x202F || c == 0x205F || c == 0x3000)
    return Class::space;
  if (c < 0xC0) return c == 0xAA || c == 0xB5 || c == 0xBA ? Class::letter : Class::other;
  const bool punctuation = c == 0xD7 || c == 0xF7 || (c >= 0x2010 && c <= 0x2BFF) ||
                           (c >= 0x3001 && c <= 0x303F) || (c >= 0xFF00 && c <= 0xFF20) ||
                           (c >= 0x1F000 && c <= 0x1FAFF);
  return punctuation ? Class::other : Class::letter;
}

std::vector<Character> characters_of(std::string_view text) {
  std::vector<Character> all;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = std::min(character_bytes(text[i]), text.size() - i);
    std::uint32_t c = static_cast<unsigned char>(text[i]);
    if (bytes > 1) {
      c &= 0xFFu >> (bytes + 1);
      for (std::size_t k = 1; k < bytes; ++k)
        c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3Fu);
    }
    all.push_back({i, bytes, class_of(c), c == '\n' || c == '\r'});
    i += bytes;
  }
  return all;
}

// Bytes of a contraction such as 'll at the start of `text`, or 0.
std::size_t contraction(std::string_view text, bool any_case) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.size() < ending.size()) continue;
    const auto same = [&](char a, char b) {
      return a == b || (any_case && a >= 'A' && a <= 'Z' && (a | 0x20) == b);
    };
    if (std::equal(ending.begin(), ending.end(), text.begin(),
                   [&](char b, char a) { return same(a, b); }))
      return ending.size();
  }
  return 0;
}

} // namespace

std::vector<std::string_view> split_words(std::string_view text, bool llama3) {
  const std::vector<Character> c = characters_of(text);
  const auto is = [&](std::size_t i, Class kind) { return i < c.size() && c[i].kind == kind; };
  const auto run = [&](std::size_t i, Class kind, std::size_t most = ~std::size_t{0}) {
    const std::size_t start = i;
    while (is(i, kind) && i - start < most)
      ++i;
    return i;
  };
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < c.size();) {
    const std::size_t start = i;
    const bool after_space = text[c[i].at] == ' ';
    const std::size_t body = i + (after_space ? 1 : 0);
    if (const std::size_t bytes = contraction(text.substr(c[i].at), llama3)) {
      i += bytes; // all of it ASCII
    } else if (llama3 && !is(i, Class::letter) && !is(i, Class::digit) && !c[i].newline &&
               is(i + 1, Class::letter)) {
      i = run(i + 1, Class::letter); // one sign or space belongs to the word after it
    } else if (is(llama3 ? i : body, Class::letter)) {
      i = run(llama3 ? i : body, Class::letter);
    } else if (is(llama3 ? i : body, Class::digit)) {
      i = llama3 ? run(i, Class::digit, 3) : run(body, Class::digit);
    } else if (is(body, Class::other)) {
      i = run(body, Class::other);
      while (llama3 && i < c.size() && c[i].newline)
        ++i;
    } else {
      // Spaces: with the newlines among them, in Llama 3; else all but the last, which belongs to
      // the word that follows.
      const std::size_t end = run(i, Class::space);
      std::size_t newline = end;
      while (llama3 && newline > i && !c[newline - 1].newline)
        --newline;
      if (llama3 && newline > i)
        i = newline;
      else
        i = end < c.size() && end - i > 1 ? end - 1 : end;
    }
    const std::size_t from = c[start].at;
    words.push_back(text.substr(from, (i < c.size() ? c[i].at : text.size()) - from));
  }
  return words;
}

Tokenizer::Tokenizer(const quern::gguf::File& file) {
  const auto& data = file.metadata();
  const auto model = data.get_or<std::string>("tokenizer.ggml.model", "");
  if (model != "llama" && model != "gpt2")
    throw std::runtime_error(model.empty() ? "the file has no vocabulary"
                                           : "the vocabulary is of kind '" + model +
                                                 "'; this engine reads 'llama' and 'gpt2'");
  byte_pairs_ = model == "gpt2";
  for (const auto& value : data.get<quern::gguf::Array>("tokenizer.ggml.tokens"))
    tokens_.push_back(value.get<std::string>());
  for (Token t = 0; t < tokens_.size(); ++t)
    index_.emplace(tokens_[t], t);
  const auto optional_array = [&]<class T>(const char* key, std::vector<T>& to) {
    if (data.contains(key)) to = data.get<quern::gguf::Array>(key).to_vector<T>();
  };
  optional_array("tokenizer.ggml.scores", scores_);
  optional_array("tokenizer.ggml.token_type", kinds_);
  scores_.resize(tokens_.size(), 0.0f);
  kinds_.resize(tokens_.size(), normal);
  if (byte_pairs_)
    for (const auto& value : data.get<quern::gguf::Array>("tokenizer.ggml.merges"))
      merges_.emplace(value.get<std::string>(), merges_.size());
  const auto pre = data.get_or<std::string>("tokenizer.ggml.pre", "gpt-2");
  digits_in_threes_ = pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
  if (byte_pairs_ && !digits_in_threes_ && pre != "gpt-2" && pre != "default")
    std::fprintf(stderr, "the vocabulary cuts words as '%s', cutting as 'gpt-2'\n", pre.c_str());
  const auto id = [&](const char* key) { return data.get_or<Token>(key, none); };
  begin_ = id("tokenizer.ggml.bos_token_id");
  end_ = id("tokenizer.ggml.eos_token_id");
  end_of_turn_ = id("tokenizer.ggml.eot_token_id");
  unknown_ = id("tokenizer.ggml.unknown_token_id");
  add_begin_ = data.get_or<bool>("tokenizer.ggml.add_bos_token", !byte_pairs_ || digits_in_threes_);
  add_space_ = data.get_or<bool>("tokenizer.ggml.add_space_prefix", true);
}

Token Tokenizer::find(const std::string& piece) const {
  const auto found = index_.find(piece);
  return found == index_.end() ? none : found->second;
}

// A queue holds the pairs that may be joined; entries that an earlier join overtook are told by the
// lengths they were made for. Of equal pairs the leftmost comes first.
template <class Rank>
void Tokenizer::merge(std::vector<std::string>& parts, Rank rank) const {
  struct Part {
    std::ptrdiff_t before, after;
  };
  using Entry = std::tuple<double, std::size_t, std::size_t, std::size_t>; // rank, left, lengths
  std::vector<Part> links;
  for (std::size_t i = 0; i < parts.size(); ++i)
    links.push_back({static_cast<std::ptrdiff_t>(i) - 1, static_cast<std::ptrdiff_t>(i) + 1});
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto consider = [&](std::ptrdiff_t left) {
    if (left < 0) return;
    const auto l = static_cast<std::size_t>(left);
    const auto r = static_cast<std::size_t>(links[l].after);
    if (r >= parts.size()) return;
    if (const std::optional<double> value = rank(parts[l], parts[r]))
      queue.emplace(*value, l, parts[l].size(), parts[r].size());
  };
  for (std::size_t i = 0; i < parts.size(); ++i)
    consider(static_cast<std::ptrdiff_t>(i));
  while (!queue.empty()) {
    const auto [value, l, left_bytes, right_bytes] = queue.top();
    queue.pop();
    const auto r = static_cast<std::size_t>(links[l].after);
    if (r >= parts.size() || parts[l].size() != left_bytes || parts[r].size() != right_bytes ||
        left_bytes == 0)
      continue;
    parts[l] += std::exchange(parts[r], {});
    links[l].after = links[r].after;
    if (const auto next = static_cast<std::size_t>(links[l].after); next < parts.size())
      links[next].before = static_cast<std::ptrdiff_t>(l);
    consider(links[l].before);
    consider(static_cast<std::ptrdiff_t>(l));
  }
  std::erase(parts, std::string());
}

void Tokenizer::append_bytes(const std::string& piece, std::vector<Token>& tokens) const {
  for (const char c : piece) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>",
                  static_cast<unsigned>(static_cast<unsigned char>(c)));
    const Token token = find(name.data());
    if (token != none)
      tokens.push_back(token);
    else if (unknown_ != none)
      tokens.push_back(unknown_);
  }
}

// "llama": the pair whose joined piece has the highest score goes first.
void Tokenizer::encode_pieces(std::string_view text, std::vector<Token>& tokens) const {
  std::vector<std::string> parts;
  if (add_space_ && !text.empty()) parts.emplace_back(space_mark);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = std::min(character_bytes(text[i]), text.size() - i);
    parts.emplace_back(text[i] == ' ' ? space_mark : text.substr(i, bytes));
    i += bytes;
  }
  merge(parts, [this](const std::string& left, const std::string& right) -> std::optional<double> {
    const Token token = find(left + right);
    if (token == none) return std::nullopt;
    return -static_cast<double>(scores_[token]);
  });
  for (const std::string& part : parts)
    if (const Token token = find(part); token != none)
      tokens.push_back(token);
    else
      append_bytes(part, tokens);
}

// "gpt2": the pair that comes first in the list of merges goes first.
void Tokenizer::encode_word(std::string_view word, std::vector<Token>& tokens) const {
  std::vector<std::string> parts;
  for (const char c : word)
    parts.push_back(byte_characters()[static_cast<unsigned char>(c)]);
  std::string whole;
  for (const std::string& part : parts)
    whole += part;
  // Llama 3 takes a word of the vocabulary as it is, whatever the merges would give.
  if (const Token token = find(whole); digits_in_threes_ && token != none) {
    tokens.push_back(token);
    return;
  }
  merge(parts, [this](const std::string& left, const std::string& right) -> std::optional<double> {
    const auto found = merges_.find(left + " " + right);
    if (found == merges_.end()) return std::nullopt;
    return static_cast<double>(found->second);
  });
  for (const std::string& part : parts)
    if (const Token token = find(part); token != none)
      tokens.push_back(token);
    else if (unknown_ != none)
      tokens.push_back(unknown_);
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> tokens;
  if (add_begin_ && begin_ != none) tokens.push_back(begin_);
  if (!byte_pairs_)
    encode_pieces(text, tokens);
  else
    for (const std::string_view word : split_words(text, digits_in_threes_))
      encode_word(word, tokens);
  return tokens;
}

std::string Tokenizer::decode(Token token) const {
  if (token >= tokens_.size() || kinds_[token] == control) return {};
  const std::string& piece = tokens_[token];
  if (!byte_pairs_ && kinds_[token] == byte && piece.size() == 6)
    return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};
  std::string text;
  for (std::size_t i = 0; i < piece.size();) {
    const std::size_t bytes = std::min(character_bytes(piece[i]), piece.size() - i);
    const std::string_view c = std::string_view(piece).substr(i, bytes);
    if (!byte_pairs_) {
      text += c == space_mark ? std::string_view(" ") : c;
    } else {
      static const auto bytes_of = [] {
        std::unordered_map<std::string_view, char> map;
        for (std::size_t b = 0; b < 256; ++b)
          map.emplace(byte_characters()[b], static_cast<char>(b));
        return map;
      }();
      const auto found = bytes_of.find(c);
      if (found != bytes_of.end()) text += found->second;
    }
    i += bytes;
  }
  return text;
}

} // namespace engine
