#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <type_traits>
#include <vector>

/// @file
/// What the fuzz targets share.

namespace fuzz {

/// Stops the program when what must hold does not.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Bytes that are taken from the front. When they run out, zeros follow.
class Input {
public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  [[nodiscard]] std::size_t size() const { return rest_.size(); }

  template <class T>
  [[nodiscard]] T number() {
    std::make_unsigned_t<T> value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<std::make_unsigned_t<T>>(value | std::uint64_t{take()} << (8 * i));
    return static_cast<T>(value);
  }
  /// A number of [0, count).
  [[nodiscard]] std::size_t below(std::size_t count) { return take() % count; }

  [[nodiscard]] std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> all(count);
    const std::size_t there = std::min(count, rest_.size());
    std::copy_n(std::as_bytes(rest_).data(), there, all.data());
    rest_ = rest_.subspan(there);
    return all;
  }

private:
  std::uint8_t take() {
    if (rest_.empty()) return 0;
    const std::uint8_t first = rest_.front();
    rest_ = rest_.subspan(1);
    return first;
  }

  std::span<const std::uint8_t> rest_;
};

} // namespace fuzz
