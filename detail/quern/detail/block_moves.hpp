// floor: 0.1
#pragma once

#include <cstddef>
#include <cstring>

#include <quern/detail/config.hpp>

// For the steps of a loop that lose their point when they are called.
#if defined(_MSC_VER) && !defined(__clang__)
#define QUERN_ALWAYS_INLINE __forceinline
#else
#define QUERN_ALWAYS_INLINE __attribute__((always_inline)) inline
#endif

namespace quern::detail {

/// How relayout() moves blocks where no faster way is known; kernels/ has those. A way of moving
/// has these members:
struct PortableMoves {
  /// Whether there are stores that go around the caches.
  static constexpr bool streams = false;

  /// Rows and columns of blocks that move() takes at a time. Only blocks that are smaller than 16
  /// bytes go by more than one column.
  template <std::size_t BytesPerBlock>
  static constexpr std::size_t rows = 1;
  template <std::size_t BytesPerBlock>
  static constexpr std::size_t columns = 1;

  /// Copies rows<> x columns<> blocks, whose rows start `from_pitch` bytes apart, transposed to
  /// columns that start `to_pitch` bytes apart. With `Stream`, `to` starts at a multiple of 16, and
  /// there is one column.
  template <std::size_t BytesPerBlock, bool Stream>
  static void move(const std::byte* from, std::size_t /*from_pitch*/, std::byte* to,
                   std::size_t /*to_pitch*/) noexcept {
    std::memcpy(to, from, BytesPerBlock);
  }

  /// Copies 64 bytes. With `Stream`, `to` starts at a multiple of 64.
  template <bool Stream>
  static void move_line(const std::byte* from, std::byte* to) noexcept {
    std::memcpy(to, from, 64);
  }

  /// Asks for the cache line at `address`; harmless for any address.
  static void prefetch([[maybe_unused]] const std::byte* address) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 2);
#endif
  }

  /// Orders streaming stores before whatever follows.
  static void finish() noexcept {}
};

} // namespace quern::detail
