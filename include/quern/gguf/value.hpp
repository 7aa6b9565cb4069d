// floor: 6.5
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <quern/gguf/cursor.hpp>
#include <quern/gguf/value_type.hpp>

namespace quern::gguf {

/// True when `text` is valid UTF-8. The reader takes strings as they are: this is only a query.
[[nodiscard]] constexpr bool is_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned char lead = byte(i++);
    if (lead < 0x80) continue;
    const std::size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < more) return false;
    // The second byte also rules out overlong forms, surrogates and what lies above U+10FFFF.
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return false;
    for (std::size_t k = 1; k < more; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    i += more;
  }
  return true;
}

class Array;

/// One metadata value. Borrows the bytes of its file, decodes when asked.
class Value {
public:
  /// The value of that type whose bytes begin at the cursor; nothing is read yet.
  Value(ValueType type, const detail::Cursor& at) noexcept : type_(type), at_(at) {}

  /// The type that the file gives it.
  [[nodiscard]] ValueType type() const noexcept { return type_; }

  /// The value as T: an integer type, float, double, bool, string, string_view or Array. An integer
  /// of any width and sign converts to any integer that can hold it, else Error(out_of_range); f32
  /// widens to double; nothing else converts: Error(wrong_value_type).
  template <class T>
  [[nodiscard]] T get() const;

  /// Position of the value in the GGUF, in bytes.
  [[nodiscard]] std::uint64_t position() const noexcept { return at_.position(); }

  /// Throws Error(code) that names the key and the position of this value.
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    at_.fail(code, position(), what);
  }

private:
  friend class Array;

  [[noreturn]] void wrong_type(std::string_view wanted) const {
    fail(ErrorCode::wrong_value_type, "the value is of type " + std::string(to_string(type_)) +
                                          ", asked for " + std::string(wanted));
  }

  template <std::integral Wanted, std::integral Stored>
  [[nodiscard]] Wanted integer() const {
    detail::Cursor at = at_;
    const auto stored = static_cast<Stored>(at.number<std::make_unsigned_t<Stored>>("a value"));
    if (!std::in_range<Wanted>(stored))
      fail(ErrorCode::out_of_range, "the value " + std::to_string(stored) + " does not fit " +
                                        (std::is_signed_v<Wanted> ? "a signed" : "an unsigned") +
                                        " integer of " + std::to_string(8 * sizeof(Wanted)) +
                                        " bits");
    return static_cast<Wanted>(stored);
  }

  template <std::integral Wanted>
  [[nodiscard]] Wanted any_integer() const {
    switch (type_) {
    case ValueType::u8:
      return integer<Wanted, std::uint8_t>();
    case ValueType::i8:
      return integer<Wanted, std::int8_t>();
    case ValueType::u16:
      return integer<Wanted, std::uint16_t>();
    case ValueType::i16:
      return integer<Wanted, std::int16_t>();
    case ValueType::u32:
      return integer<Wanted, std::uint32_t>();
    case ValueType::i32:
      return integer<Wanted, std::int32_t>();
    case ValueType::u64:
      return integer<Wanted, std::uint64_t>();
    case ValueType::i64:
      return integer<Wanted, std::int64_t>();
    default:
      wrong_type("an integer");
    }
  }

  ValueType type_;
  detail::Cursor at_;
};

/// An array of metadata values: a forward range of Value. Nothing is copied; strings and inner
/// arrays are found by walking, so use the iterators rather than indexes for those.
class Array {
public:
  /// Goes from value to value; valid as long as the file.
  class Iterator {
  public:
    using value_type = Value;                           ///< what * returns, by value
    using difference_type = std::ptrdiff_t;             ///< of any forward iterator
    using iterator_concept = std::forward_iterator_tag; ///< for C++20 ranges
    using iterator_category = std::input_iterator_tag;  ///< as * returns no reference

    /// Equal to the end of any array; not to be dereferenced.
    Iterator() noexcept : at_(no_rules, nullptr, 0, 0) {}
    /// At the first of `left` values of type `element`, whose bytes begin at the cursor.
    Iterator(ValueType element, std::uint64_t left, const detail::Cursor& at) noexcept
        : element_(element), left_(left), at_(at) {}

    /// The value, which decodes when asked.
    [[nodiscard]] Value operator*() const noexcept { return {element_, at_}; }
    /// Walks over one value. Throws gguf::Error when the bytes, of a mapped file, changed since the
    /// file was opened and no longer are a value.
    Iterator& operator++() {
      detail::skip_value(at_, element_);
      --left_;
      return *this;
    }
    /// The same; returns the iterator as it was.
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    /// Equal when as many values are left; of one array, that is the same place.
    friend bool operator==(const Iterator& a, const Iterator& b) noexcept {
      return a.left_ == b.left_;
    }
    /// True when no value is left.
    friend bool operator==(const Iterator& a, std::default_sentinel_t) noexcept {
      return a.left_ == 0;
    }

  private:
    inline static const detail::Rules no_rules{};
    ValueType element_ = ValueType::u8;
    std::uint64_t left_ = 0;
    detail::Cursor at_;
  };

  /// The array whose header is next at `at`.
  explicit Array(detail::Cursor at) : first_(at) {
    const detail::ArrayHeader header = detail::array_header(at);
    element_ = header.element;
    count_ = header.count;
    first_ = at;
  }

  /// The type of every element.
  [[nodiscard]] ValueType element_type() const noexcept { return element_; }
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(count_); }
  /// True for an array of no elements.
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// At the first element.
  [[nodiscard]] Iterator begin() const noexcept { return {element_, count_, first_}; }
  /// Reached when no value is left.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  /// Element i: at once for types of fixed size, by walking for strings and arrays. Throws
  /// Error(out_of_range).
  [[nodiscard]] Value operator[](std::size_t i) const {
    if (i >= count_)
      first_.fail(ErrorCode::out_of_range, first_.position(),
                  "element " + std::to_string(i) + " of an array of " + std::to_string(count_));
    detail::Cursor at = first_;
    if (const std::uint64_t bytes = detail::info(element_).bytes; bytes != 0)
      static_cast<void>(at.take(i * bytes, "an array"));
    else
      for (std::size_t k = 0; k < i; ++k)
        detail::skip_value(at, element_);
    return {element_, at};
  }

  /// All elements as T, by the rules of Value::get. T may be std::string_view.
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const {
    std::vector<T> all;
    all.reserve(size());
    for (const Value& value : *this)
      all.push_back(value.get<T>());
    return all;
  }

private:
  ValueType element_ = ValueType::u8;
  std::uint64_t count_ = 0;
  detail::Cursor first_;
};

template <class T>
T Value::get() const {
  detail::Cursor at = at_;
  if constexpr (std::same_as<T, bool>) {
    if (type_ != ValueType::boolean) wrong_type("bool");
    detail::skip_fixed(at, type_, 1);
    return *(at_.data() + at_.position()) != std::byte{0};
  } else if constexpr (std::integral<T>) {
    return any_integer<T>();
  } else if constexpr (std::floating_point<T>) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "quern::gguf::Value: ask for float or double");
    if (type_ == ValueType::f32) return std::bit_cast<float>(at.number<std::uint32_t>("a value"));
    if (sizeof(T) == 4 || type_ != ValueType::f64) wrong_type(sizeof(T) == 4 ? "float" : "double");
    return static_cast<T>(std::bit_cast<double>(at.number<std::uint64_t>("a value")));
  } else if constexpr (std::same_as<T, std::string_view> || std::same_as<T, std::string>) {
    if (type_ != ValueType::string) wrong_type("string");
    return T(detail::string_value(at));
  } else {
    static_assert(std::same_as<T, Array>, "quern::gguf::Value: a value is an integer, float, "
                                          "double, bool, std::string_view or Array");
    if (type_ != ValueType::array) wrong_type("array");
    return Array(at);
  }
}

} // namespace quern::gguf

template <>
inline constexpr bool std::ranges::enable_borrowed_range<quern::gguf::Array> = true;
