// floor: 0.1
#pragma once

#include <cstddef>
#include <string_view>

#include <quern/detail/config.hpp>

namespace quern::detail {

/// Bytes of the UTF-8 character at the start of `text`, or 0 when there is none: a stray or missing
/// continuation byte, a form longer than needed, a surrogate, or a number above U+10FFFF.
[[nodiscard]] constexpr std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2   ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  // The first continuation byte is where long forms, surrogates and too large numbers show.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return length;
}

} // namespace quern::detail
