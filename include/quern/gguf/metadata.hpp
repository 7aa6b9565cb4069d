// floor: 6.6
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <quern/gguf/cursor.hpp>
#include <quern/gguf/record_table.hpp>
#include <quern/gguf/value.hpp>
#include <quern/gguf/value_type.hpp>

namespace quern::gguf {

/// One metadata entry.
struct Entry {
  std::string_view key; ///< borrows from the file
  Value value;          ///< decodes when asked
};

/// The metadata of a file: a range of Entry in file order, and a lookup by key. Holds the place of
/// each entry and decodes it when asked, with every check made anew: a mapped file may have
/// changed.
class Metadata {
public:
  /// No entries; parse() fills it.
  Metadata() = default;
  Metadata(const Metadata&) = delete;
  Metadata& operator=(const Metadata&) = delete;

  /// The number of entries.
  [[nodiscard]] std::size_t size() const noexcept { return records_.size(); }
  /// True when there is no entry.
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// Entry i in file order. Throws Error(out_of_range).
  [[nodiscard]] Entry operator[](std::size_t i) const {
    if (i >= size())
      throw quern::Error(ErrorCode::out_of_range, "quern::gguf::Metadata: entry " +
                                                      std::to_string(i) + " of " +
                                                      std::to_string(size()));
    detail::Cursor at = records_.cursor(i);
    return read_entry(at, i);
  }

  /// Goes through the entries in file order, and decodes each when it is dereferenced.
  [[nodiscard]] auto begin() const noexcept {
    return detail::IndexIterator<Metadata, Entry>(*this, 0);
  }
  /// Behind the last entry.
  [[nodiscard]] auto end() const noexcept {
    return detail::IndexIterator<Metadata, Entry>(*this, size());
  }

  /// The value of a key, or nothing. Keys are compared byte by byte.
  [[nodiscard]] std::optional<Value> find(std::string_view key) const {
    const auto i = records_.find(key);
    if (!i) return std::nullopt;
    return (*this)[*i].value;
  }
  /// True when find() finds the key.
  [[nodiscard]] bool contains(std::string_view key) const { return find(key).has_value(); }

  /// The value of a key. Throws Error(no_such_key).
  [[nodiscard]] Value at(std::string_view key) const {
    if (const auto value = find(key)) return *value;
    throw quern::Error(ErrorCode::no_such_key,
                       "quern::gguf::Metadata: no key " + detail::in_quotes(key));
  }
  /// The value of a key as T, by the rules of Value::get.
  template <class T>
  [[nodiscard]] T get(std::string_view key) const {
    return at(key).get<T>();
  }
  /// The same, or `otherwise` when there is no such key. A value of another type still throws.
  template <class T>
  [[nodiscard]] T get_or(std::string_view key, T otherwise) const {
    const auto value = find(key);
    return value ? value->get<T>() : otherwise;
  }

  /// Reads `count` entries and leaves the cursor after them. The rules of the cursor must outlive
  /// this object.
  void parse(detail::Cursor& at, std::uint64_t count) {
    const std::uint64_t start = at.position();
    const std::uint64_t limit = at.rules().options.limits.metadata_bytes;
    records_.parse(at, count, [&](std::uint64_t i) {
      const Entry entry = read_entry(at, i);
      detail::skip_value(at, entry.value.type());
      if (at.position() - start > limit)
        at.fail(ErrorCode::limit_exceeded, at.position(),
                "the metadata is longer than the limit set, " + std::to_string(limit) + " bytes");
    });
    if (const auto duplicate = records_.index_names()) {
      const auto [first, second] = *duplicate;
      at.about(Subject::key, second);
      at.named(records_.name(second));
      at.fail(ErrorCode::duplicate_key, records_.position(static_cast<std::size_t>(second)),
              "the same key as key " + std::to_string(first));
    }
  }

private:
  // Leaves the cursor at the value.
  static Entry read_entry(detail::Cursor& at, std::uint64_t i) {
    at.about(Subject::key, i);
    const std::string_view key = read_key(at);
    at.named(key);
    const ValueType type = detail::value_type(at, "the value type");
    return {key, Value(type, at)};
  }

  static std::string_view read_key(detail::Cursor& at) {
    const std::uint64_t start = at.position();
    const std::string_view key = at.string("a key");
    const Options& options = at.rules().options;
    if (key.empty()) at.fail(ErrorCode::bad_key, start, "an empty key");
    if (key.size() > options.limits.key_bytes)
      at.fail(ErrorCode::limit_exceeded, start,
              "a key of " + std::to_string(key.size()) + " bytes; the limit set is " +
                  std::to_string(options.limits.key_bytes));
    if (key.find('\0') != std::string_view::npos)
      at.fail(ErrorCode::bad_key, start, "a key with a NUL byte: " + detail::in_quotes(key));
    if (options.spec_keys && !follows_spec(key))
      at.fail(ErrorCode::bad_key, start,
              "the key " + detail::in_quotes(key) +
                  " is not lower-case segments of [a-z0-9_] joined by dots, 65535 bytes at most");
    return key;
  }

  static bool follows_spec(std::string_view key) {
    constexpr std::size_t most = 65535;
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    };
    return key.size() <= most && std::ranges::all_of(key, allowed) && key.front() != '.' &&
           key.back() != '.' && key.find("..") == std::string_view::npos;
  }

  detail::RecordTable records_;
};

} // namespace quern::gguf
