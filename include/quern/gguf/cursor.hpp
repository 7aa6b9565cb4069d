// floor: 6.3
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <quern/detail/bytes.hpp>
#include <quern/error.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/options.hpp>
#include <quern/gguf/source.hpp>

namespace quern::gguf::detail {

/// What decides how a file's fields are read: the caller's options and the version of the file.
struct Rules {
  Options options = {};
  std::uint32_t version = 3;
  std::string origin = {}; ///< path of the file, for errors

  [[nodiscard]] bool strict() const noexcept { return options.mode == Mode::strict; }
  [[nodiscard]] bool lenient() const noexcept { return options.mode == Mode::lenient; }
  /// Size of a string length, an array length, a count or an extent: version 1 has 32-bit ones.
  [[nodiscard]] std::uint64_t length_bytes() const noexcept { return version == 1 ? 4 : 8; }
};

/// Reads fields one after the other and never past the end: each read is compared with the bytes
/// that remain first. Knows which key or tensor it reads, for errors.
class Cursor {
public:
  /// From the start of a source, which is loaded as far as the cursor gets.
  Cursor(const Rules& rules, Source& source) noexcept
      : rules_(&rules), source_(&source), data_(source.data()), end_(source.size()),
        loaded_(source.loaded()) {}

  /// Over bytes [begin, end) of a GGUF that starts at `data`; all of them are in memory.
  Cursor(const Rules& rules, const std::byte* data, std::uint64_t begin, std::uint64_t end) noexcept
      : rules_(&rules), data_(data), position_(begin), end_(end), loaded_(end) {}

  [[nodiscard]] const Rules& rules() const noexcept { return *rules_; }
  /// Bytes from the start of the GGUF to the next field.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::uint64_t remaining() const noexcept { return end_ - position_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

  /// What the next fields belong to.
  void about(Subject subject, std::uint64_t index) noexcept {
    subject_ = subject;
    index_ = index;
    name_ = {};
  }
  void about_file() noexcept { about(Subject::file, 0); }
  void named(std::string_view name) noexcept { name_ = name; }

  /// The next field, little-endian. Throws Error(truncated); `what` names the field.
  template <std::unsigned_integral T>
  [[nodiscard]] T number(std::string_view what) {
    need(sizeof(T), what);
    const T value = quern::detail::load_le<T>(data_ + position_);
    position_ += sizeof(T);
    return value;
  }

  /// The next length, count or extent, as wide as the version has it.
  [[nodiscard]] std::uint64_t length(std::string_view what) {
    return rules_->version == 1 ? number<std::uint32_t>(what) : number<std::uint64_t>(what);
  }

  /// The next `count` bytes, which must remain.
  [[nodiscard]] std::string_view take(std::uint64_t count, std::string_view what) {
    need(count, what);
    const std::string_view bytes(reinterpret_cast<const char*>(data_ + position_),
                                 static_cast<std::size_t>(count));
    position_ += count;
    return bytes;
  }

  /// A length and that many bytes. Throws Error(string_past_end).
  [[nodiscard]] std::string_view string(std::string_view what) {
    const std::uint64_t at = position_;
    const std::uint64_t count = length(what);
    if (count > remaining())
      fail(ErrorCode::string_past_end, at,
           std::string(what) + " says " + std::to_string(count) + " bytes, " +
               std::to_string(remaining()) + " are left");
    return take(count, what);
  }

  /// Throws Error(code) about the field at `position`.
  [[noreturn]] void fail(ErrorCode code, std::uint64_t position, const std::string& what) const {
    constexpr std::size_t longest_name = 1024;
    const auto index = subject_ == Subject::file ? std::nullopt : std::optional(index_);
    throw Error(
        code,
        {position, subject_, index, std::string(name_.substr(0, longest_name)), rules_->origin},
        what);
  }

private:
  void need(std::uint64_t count, std::string_view what) {
    if (count > remaining())
      fail(ErrorCode::truncated, position_,
           "the file ends inside " + std::string(what) + ": " + std::to_string(count) +
               " bytes needed, " + std::to_string(remaining()) + " left");
    if (count > loaded_ - position_) {
      source_->load(position_ + count);
      loaded_ = source_->loaded();
    }
  }

  const Rules* rules_;
  Source* source_ = nullptr; // null when everything up to end_ is in memory
  const std::byte* data_;
  std::uint64_t position_ = 0;
  std::uint64_t end_;
  std::uint64_t loaded_;
  Subject subject_ = Subject::file;
  std::uint64_t index_ = 0;
  std::string_view name_;
};

} // namespace quern::gguf::detail
