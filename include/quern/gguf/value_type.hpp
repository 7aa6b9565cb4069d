// floor: 6.4
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <quern/gguf/cursor.hpp>

namespace quern::gguf {

/// The type of a metadata value, by id.
enum class ValueType : std::uint32_t {
  u8,      ///< unsigned integer of 1 byte
  i8,      ///< signed integer of 1 byte
  u16,     ///< unsigned integer of 2 bytes
  i16,     ///< signed integer of 2 bytes
  u32,     ///< unsigned integer of 4 bytes
  i32,     ///< signed integer of 4 bytes
  f32,     ///< binary32 number
  boolean, ///< 1 byte, 0 or 1
  string,  ///< length in bytes, then the bytes
  array,   ///< type and number of its elements, then these
  u64,     ///< unsigned integer of 8 bytes; it and the next ones are not in version 1
  i64,     ///< signed integer of 8 bytes
  f64,     ///< binary64 number
};

namespace detail {

struct ValueTypeInfo {
  std::string_view name;
  std::uint32_t bytes; // 0: the size varies
};

inline constexpr std::array value_types{
    ValueTypeInfo{"u8", 1},    ValueTypeInfo{"i8", 1},   ValueTypeInfo{"u16", 2},
    ValueTypeInfo{"i16", 2},   ValueTypeInfo{"u32", 4},  ValueTypeInfo{"i32", 4},
    ValueTypeInfo{"f32", 4},   ValueTypeInfo{"bool", 1}, ValueTypeInfo{"string", 0},
    ValueTypeInfo{"array", 0}, ValueTypeInfo{"u64", 8},  ValueTypeInfo{"i64", 8},
    ValueTypeInfo{"f64", 8},
};

// A ValueType is only ever made by value_type(), which checks the id.
[[nodiscard]] constexpr const ValueTypeInfo& info(ValueType type) noexcept {
  return value_types[static_cast<std::size_t>(type)];
}

/// Levels of arrays inside each other that are accepted, the outermost included.
inline constexpr std::size_t max_array_depth = 4;

[[nodiscard]] inline ValueType value_type(Cursor& cursor, std::string_view what) {
  const std::uint64_t at = cursor.position();
  const auto id = cursor.number<std::uint32_t>(what);
  const std::uint32_t known = cursor.rules().version == 1 ? 10 : 13;
  if (id >= known)
    cursor.fail(ErrorCode::bad_value_type, at,
                std::string(what) + " is " + std::to_string(id) + "; version " +
                    std::to_string(cursor.rules().version) + " has 0 to " +
                    std::to_string(known - 1));
  return static_cast<ValueType>(id);
}

inline void check_length_limit(const Cursor& cursor, std::uint64_t at, std::uint64_t count) {
  constexpr std::uint64_t strict_most = std::uint64_t{1} << 30;
  if (cursor.rules().strict() && count > strict_most)
    cursor.fail(ErrorCode::limit_exceeded, at,
                "a length of " + std::to_string(count) + "; strict mode allows " +
                    std::to_string(strict_most));
}

[[nodiscard]] inline std::string_view string_value(Cursor& cursor) {
  const std::uint64_t at = cursor.position();
  const std::string_view text = cursor.string("a string");
  check_length_limit(cursor, at, text.size());
  return text;
}

struct ArrayHeader {
  ValueType element;
  std::uint64_t count;
};

/// The header of an array; afterwards at least `count` elements of the least size remain.
[[nodiscard]] inline ArrayHeader array_header(Cursor& cursor) {
  const std::uint64_t at = cursor.position();
  const ValueType element = value_type(cursor, "the element type of an array");
  if (element == ValueType::array && cursor.rules().strict())
    cursor.fail(ErrorCode::bad_value_type, at, "an array of arrays, which strict mode refuses");
  const std::uint64_t count_at = cursor.position();
  const std::uint64_t count = cursor.length("the length of an array");
  const std::uint64_t length_bytes = cursor.rules().length_bytes();
  const std::uint64_t least = element == ValueType::string  ? length_bytes
                              : element == ValueType::array ? 4 + length_bytes
                                                            : info(element).bytes;
  if (count > cursor.remaining() / least)
    cursor.fail(ErrorCode::array_past_end, count_at,
                "an array of " + std::to_string(count) + " " + std::string(info(element).name) +
                    " needs " + std::to_string(least) + " bytes each, " +
                    std::to_string(cursor.remaining()) + " are left in all");
  check_length_limit(cursor, count_at, count);
  return {element, count};
}

/// Moves past `count` values of a type of fixed size.
inline void skip_fixed(Cursor& cursor, ValueType type, std::uint64_t count) {
  const std::uint64_t at = cursor.position();
  const std::string_view bytes = cursor.take(count * info(type).bytes, "a value");
  if (type != ValueType::boolean || cursor.rules().lenient()) return;
  const auto bad = std::ranges::find_if(bytes, [](char c) { return c != 0 && c != 1; });
  if (bad != bytes.end())
    cursor.fail(ErrorCode::bad_bool, at + static_cast<std::uint64_t>(bad - bytes.begin()),
                "a bool is byte " + std::to_string(static_cast<unsigned char>(*bad)) +
                    ", must be 0 or 1");
}

/// Checks one value of `type` and moves past it. Arrays inside arrays cost no recursion.
inline void skip_value(Cursor& cursor, ValueType type) {
  std::array<ArrayHeader, max_array_depth> open{};
  std::size_t depth = 0;
  for (;;) {
    if (type == ValueType::string) {
      static_cast<void>(string_value(cursor));
    } else if (type != ValueType::array) {
      skip_fixed(cursor, type, 1);
    } else {
      if (depth == max_array_depth)
        cursor.fail(ErrorCode::nested_too_deep, cursor.position(),
                    "arrays inside each other deeper than " + std::to_string(max_array_depth));
      const ArrayHeader header = array_header(cursor);
      if (info(header.element).bytes != 0)
        skip_fixed(cursor, header.element, header.count);
      else
        open[depth++] = header;
    }
    while (depth > 0 && open[depth - 1].count == 0)
      --depth;
    if (depth == 0) return;
    --open[depth - 1].count;
    type = open[depth - 1].element;
  }
}

} // namespace detail

/// The name of a value type for messages: "u32", "string".
[[nodiscard]] constexpr std::string_view to_string(ValueType type) noexcept {
  return detail::info(type).name;
}

} // namespace quern::gguf
