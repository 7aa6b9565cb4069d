// floor: 0.1
#pragma once

#include <algorithm>
#include <cstddef>

#include <quern/detail/config.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define QUERN_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUERN_HAS_ASAN 1
#endif
#endif
#if defined(QUERN_HAS_ASAN)
// The compiler's runtime has them; not every installation has the header.
extern "C" void __asan_poison_memory_region(const volatile void* data, std::size_t bytes);
extern "C" void __asan_unpoison_memory_region(const volatile void* data, std::size_t bytes);
#endif

/// @file
/// Marks memory that nobody may use for now: for the address sanitizer, and by a pattern that needs
/// no tool.

namespace quern::detail {

/// Using the bytes stops a program that is built with the address sanitizer; nothing otherwise.
inline void poison([[maybe_unused]] const std::byte* data,
                   [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(QUERN_HAS_ASAN)
  __asan_poison_memory_region(data, bytes);
#endif
}

/// The bytes may be used again.
inline void unpoison([[maybe_unused]] const std::byte* data,
                     [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(QUERN_HAS_ASAN)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

/// As float and as binary16, bytes of this value are NaN, so that reading them shows in a result.
inline constexpr std::byte dead_byte{0xFF};

/// The place of the first byte in [from, to) that is not dead_byte, or `to`.
[[nodiscard]] inline std::size_t first_changed(const std::byte* data, std::size_t from,
                                               std::size_t to) noexcept {
  const std::byte* const end = data + to;
  return static_cast<std::size_t>(
      std::find_if(data + from, end, [](std::byte byte) { return byte != dead_byte; }) - data);
}

} // namespace quern::detail
