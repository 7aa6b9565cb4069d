// floor: 6.1
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <quern/detail/config.hpp>

namespace quern::gguf::detail {

/// Finds items by name without holding the names: 8 bytes an item. Building takes n log n name
/// comparisons at most, also when a hostile file makes all hashes equal.
class NameTable {
public:
  /// Two items of one name, the earlier first.
  using Duplicate = std::pair<std::uint64_t, std::uint64_t>;

  /// Indexes `count` items, fewer than 2^32; `name_of(i)` is the name of item i. Returns a
  /// duplicate when there is one.
  template <class NameOf>
  std::optional<Duplicate> build(std::uint64_t count, NameOf name_of) {
    entries_.clear();
    entries_.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i)
      entries_.push_back(tag(name_of(i)) | i);
    std::ranges::sort(entries_);
    std::optional<Duplicate> first;
    for (auto run = entries_.begin(); run != entries_.end();) {
      const auto end = std::upper_bound(run, entries_.end(), *run | index_bits);
      if (end - run > 1) {
        std::sort(run, end, [&](std::uint64_t a, std::uint64_t b) {
          const auto order = name_of(a & index_bits) <=> name_of(b & index_bits);
          return order < 0 || (order == 0 && a < b);
        });
        for (auto next = run + 1; next != end; ++next) {
          const Duplicate pair{*(next - 1) & index_bits, *next & index_bits};
          if ((!first || pair.second < first->second) &&
              name_of(pair.first) == name_of(pair.second))
            first = pair;
        }
      }
      run = end;
    }
    return first;
  }

  /// The item of this name. `name_of` is what build() was given.
  template <class NameOf>
  [[nodiscard]] std::optional<std::uint64_t> find(std::string_view name, NameOf name_of) const {
    const std::uint64_t key = tag(name);
    const auto run = std::lower_bound(entries_.begin(), entries_.end(), key);
    const auto end = std::upper_bound(run, entries_.end(), key | index_bits);
    const auto found =
        std::lower_bound(run, end, name, [&](std::uint64_t entry, std::string_view wanted) {
          return name_of(entry & index_bits) < wanted;
        });
    if (found == end || name_of(*found & index_bits) != name) return std::nullopt;
    return *found & index_bits;
  }

private:
  static constexpr std::uint64_t index_bits = 0xFFFFFFFFu;

  // 32 bits of the 64-bit FNV-1a hash above 32 bits for the index.
  static std::uint64_t tag(std::string_view name) noexcept {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : name)
      hash = (hash ^ static_cast<unsigned char>(c)) * std::uint64_t{0x100000001B3u};
    return (hash ^ (hash << 32)) & ~index_bits;
  }

  std::vector<std::uint64_t> entries_; // ascending by tag, then by name
};

} // namespace quern::gguf::detail
