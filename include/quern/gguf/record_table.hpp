// floor: 6.4
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include <quern/gguf/cursor.hpp>
#include <quern/gguf/name_table.hpp>

namespace quern::gguf::detail {

/// The places of records that begin with their name. Nothing else of them is kept: a record is
/// decoded, and checked anew, each time it is asked for, because a mapped file may have changed.
/// With the name lookup a record costs 16 bytes.
class RecordTable {
public:
  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }

  /// A cursor over record i < size() alone.
  [[nodiscard]] Cursor cursor(std::size_t i) const noexcept {
    return {*rules_, data_, position(i), ends_[i]};
  }
  /// Where record i < size() starts.
  [[nodiscard]] std::uint64_t position(std::size_t i) const noexcept {
    return i == 0 ? start_ : ends_[i - 1];
  }
  /// Where record i < size() ends.
  [[nodiscard]] std::uint64_t end_position(std::size_t i) const noexcept { return ends_[i]; }

  [[nodiscard]] std::string_view name(std::uint64_t i) const {
    return cursor(static_cast<std::size_t>(i)).string("a name");
  }

  [[nodiscard]] std::optional<std::size_t> find(std::string_view wanted) const {
    const auto found = names_.find(wanted, [this](std::uint64_t i) { return name(i); });
    return found ? std::optional(static_cast<std::size_t>(*found)) : std::nullopt;
  }

  /// `read(i)` moves `at` past record i, for each of `count` records. The rules of the cursor must
  /// outlive this object.
  template <class Read>
  void parse(Cursor& at, std::uint64_t count, Read read) {
    rules_ = &at.rules();
    data_ = at.data();
    start_ = at.position();
    for (std::uint64_t i = 0; i < count; ++i) {
      read(i);
      // Grows by doubling, but never beyond the count: a false count costs nothing, a true one no
      // more than the file has bytes.
      if (ends_.size() == ends_.capacity())
        ends_.reserve(static_cast<std::size_t>(std::min(count, 2 * i + 64)));
      ends_.push_back(at.position());
    }
    at.about_file();
  }

  /// Builds the name lookup; returns two records of one name when there are such.
  std::optional<NameTable::Duplicate> index_names() {
    return names_.build(size(), [this](std::uint64_t i) { return name(i); });
  }

private:
  const Rules* rules_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint64_t start_ = 0;
  std::vector<std::uint64_t> ends_;
  NameTable names_;
};

/// Iterator over anything with an operator[] that returns an Item by value.
template <class Table, class Item>
class IndexIterator {
public:
  using value_type = Item;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::forward_iterator_tag;
  using iterator_category = std::input_iterator_tag; // what * returns is no reference

  IndexIterator() noexcept = default;
  IndexIterator(const Table& table, std::size_t index) noexcept : table_(&table), index_(index) {}

  [[nodiscard]] Item operator*() const { return (*table_)[index_]; }
  IndexIterator& operator++() noexcept {
    ++index_;
    return *this;
  }
  IndexIterator operator++(int) noexcept {
    const IndexIterator before = *this;
    ++index_;
    return before;
  }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) noexcept {
    return a.index_ == b.index_;
  }

private:
  const Table* table_ = nullptr;
  std::size_t index_ = 0;
};

} // namespace quern::gguf::detail
