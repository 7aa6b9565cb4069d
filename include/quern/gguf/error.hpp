// floor: 6.1
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <quern/error.hpp>

namespace quern::gguf {

/// What part of a file an Error is about.
enum class Subject : std::uint8_t {
  file,   ///< the header, or the file as a whole
  key,    ///< one metadata entry
  tensor, ///< one entry of the tensor table, or its data
};

/// Where in a file something went wrong.
struct Place {
  std::uint64_t position = 0;         ///< bytes from the start of the GGUF
  Subject subject = Subject::file;    ///< what `index` and `name` are of
  std::optional<std::uint64_t> index; ///< of the key or tensor, from 0
  std::string name;                   ///< of the key or tensor, when it is known
  std::string origin;                 ///< path of the file, empty for bytes and callbacks
};

namespace detail {

/// `name` in quotes for a message: bytes that don't print are escaped, long names are cut.
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t most = 80;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : name.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\') {
      text += c;
    } else {
      text += "\\x";
      text += digits[byte >> 4];
      text += digits[byte & 15u];
    }
  }
  text += name.size() > most ? "\"... (" + std::to_string(name.size()) + " bytes)" : "\"";
  return text;
}

[[nodiscard]] inline std::string describe(const Place& place) {
  std::string text = "quern::gguf: ";
  if (!place.origin.empty()) text += place.origin + ": ";
  if (place.subject != Subject::file) {
    text += place.subject == Subject::key ? "key " : "tensor ";
    if (place.index) text += std::to_string(*place.index) + " ";
    if (!place.name.empty()) text += in_quotes(place.name) + " ";
  }
  return text + "at byte " + std::to_string(place.position) + ": ";
}

} // namespace detail

/// An error found in the bytes of a GGUF file: a quern::Error that also knows the place.
class Error : public quern::Error {
public:
  /// The message is the place, then `what`.
  Error(ErrorCode code, Place place, const std::string& what)
      : quern::Error(code, detail::describe(place) + what),
        place_(std::make_shared<const Place>(std::move(place))) {}

  /// Byte position of the field at fault, from the start of the GGUF.
  [[nodiscard]] std::uint64_t position() const noexcept { return place_->position; }
  /// The part of the file that is at fault.
  [[nodiscard]] Subject subject() const noexcept { return place_->subject; }
  /// Index of the key or tensor at fault, from 0.
  [[nodiscard]] std::optional<std::uint64_t> index() const noexcept { return place_->index; }
  /// Name of the key or tensor at fault, as far as it was read: its bytes, cut after 1024. Empty
  /// when the error came before the name.
  [[nodiscard]] const std::string& name() const noexcept { return place_->name; }
  /// Path of the file; empty for bytes and callbacks.
  [[nodiscard]] const std::string& origin() const noexcept { return place_->origin; }

private:
  std::shared_ptr<const Place> place_; // shared, so that copying an exception can't throw
};

} // namespace quern::gguf
