// floor: 6.6
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <quern/detail/bytes.hpp>
#include <quern/gguf/value.hpp>
#include <quern/gguf/value_type.hpp>

/// @file
/// C++ values as the bytes of a version 3 file.

namespace quern::gguf::detail {

template <class T>
concept StringLike = std::convertible_to<const T&, std::string_view>;

template <class T>
concept ScalarValue =
    (std::integral<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
     !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>) ||
    (std::floating_point<T> && (sizeof(T) == 4 || sizeof(T) == 8)) || StringLike<T>;

template <class T, std::size_t Depth = 0>
inline constexpr bool is_storable = false;
template <ScalarValue T, std::size_t Depth>
inline constexpr bool is_storable<T, Depth> = true;
template <std::ranges::input_range T, std::size_t Depth>
requires(!ScalarValue<T> && Depth < max_array_depth) inline constexpr bool is_storable<T, Depth> =
    is_storable<std::ranges::range_value_t<T>, Depth + 1>;

template <class T>
[[nodiscard]] consteval ValueType value_type_of() {
  if constexpr (StringLike<T>) {
    return ValueType::string;
  } else if constexpr (std::same_as<T, bool>) {
    return ValueType::boolean;
  } else if constexpr (std::integral<T>) {
    constexpr bool sign = std::is_signed_v<T>;
    if (sizeof(T) == 1) return sign ? ValueType::i8 : ValueType::u8;
    if (sizeof(T) == 2) return sign ? ValueType::i16 : ValueType::u16;
    if (sizeof(T) == 4) return sign ? ValueType::i32 : ValueType::u32;
    return sign ? ValueType::i64 : ValueType::u64;
  } else if constexpr (std::floating_point<T>) {
    return sizeof(T) == 4 ? ValueType::f32 : ValueType::f64;
  } else {
    return ValueType::array;
  }
}

template <std::unsigned_integral T>
void append_number(std::vector<std::byte>& bytes, T number) {
  bytes.resize(bytes.size() + sizeof(T));
  quern::detail::store_le(bytes.data() + (bytes.size() - sizeof(T)), number);
}

inline void append_string(std::vector<std::byte>& bytes, std::string_view text) {
  append_number<std::uint64_t>(bytes, text.size());
  const auto* const from = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), from, from + text.size());
}

template <class T>
void append_value(std::vector<std::byte>& bytes, const T& value) {
  if constexpr (StringLike<T>) {
    append_string(bytes, value);
  } else if constexpr (std::same_as<T, bool>) {
    append_number<std::uint8_t>(bytes, value ? 1 : 0);
  } else if constexpr (std::integral<T>) {
    append_number(bytes, static_cast<std::make_unsigned_t<T>>(value));
  } else if constexpr (std::floating_point<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    append_number(bytes, std::bit_cast<Bits>(value));
  } else {
    using Element = std::ranges::range_value_t<T>;
    append_number(bytes, static_cast<std::uint32_t>(value_type_of<Element>()));
    const std::size_t count_at = bytes.size();
    append_number<std::uint64_t>(bytes, 0);
    std::uint64_t count = 0;
    for (const auto& element : value) {
      append_value<Element>(bytes, element);
      ++count;
    }
    quern::detail::store_le(bytes.data() + count_at, count);
  }
}

/// A value of an open file, of any version. Calls itself for arrays inside arrays, which the reader
/// lets nest max_array_depth deep.
inline void append_copy(std::vector<std::byte>& bytes, const Value& value) {
  switch (value.type()) {
  case ValueType::u8:
    return append_value(bytes, value.get<std::uint8_t>());
  case ValueType::i8:
    return append_value(bytes, value.get<std::int8_t>());
  case ValueType::u16:
    return append_value(bytes, value.get<std::uint16_t>());
  case ValueType::i16:
    return append_value(bytes, value.get<std::int16_t>());
  case ValueType::u32:
    return append_value(bytes, value.get<std::uint32_t>());
  case ValueType::i32:
    return append_value(bytes, value.get<std::int32_t>());
  case ValueType::u64:
    return append_value(bytes, value.get<std::uint64_t>());
  case ValueType::i64:
    return append_value(bytes, value.get<std::int64_t>());
  case ValueType::f32:
    return append_value(bytes, value.get<float>());
  case ValueType::f64:
    return append_value(bytes, value.get<double>());
  case ValueType::boolean:
    return append_value(bytes, value.get<bool>());
  case ValueType::string:
    return append_value(bytes, value.get<std::string_view>());
  case ValueType::array:
    break;
  }
  const Array array = value.get<Array>();
  append_number(bytes, static_cast<std::uint32_t>(array.element_type()));
  append_number<std::uint64_t>(bytes, array.size());
  for (const Value& element : array)
    append_copy(bytes, element);
}

} // namespace quern::gguf::detail
