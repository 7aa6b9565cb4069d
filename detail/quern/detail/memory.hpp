// floor: 0.1
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <quern/detail/config.hpp>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace quern::detail {

/// Large blocks start on a 2 MiB boundary, so that the kernel may back them with large pages.
inline constexpr std::size_t huge_page = std::size_t{2} << 20;
/// Smaller blocks start on a cache line.
inline constexpr std::size_t cache_line = 64;

/// The alignment allocate_bytes() gives a block of `bytes`.
[[nodiscard]] constexpr std::size_t alignment_for(std::size_t bytes) noexcept {
  return bytes >= 2 * huge_page ? huge_page : cache_line;
}

#if defined(__linux__)
[[nodiscard]] inline std::size_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
#endif

/// Asks the kernel to back [data, data + bytes) with large pages; only a hint.
inline void advise_huge_pages([[maybe_unused]] void* data,
                              [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes >= 2 * huge_page) (void)madvise(data, bytes & ~(huge_page - 1), MADV_HUGEPAGE);
#endif
}

/// Asks the kernel to read the pages of a mapped file that hold [data, data + bytes); only a hint.
inline void prefetch_pages([[maybe_unused]] const std::byte* data,
                           [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
  if (bytes == 0) return;
  const std::size_t page = page_bytes();
  const std::size_t before = reinterpret_cast<std::uintptr_t>(data) % page;
  auto* const start = const_cast<std::byte*>(data - before);
#if defined(MADV_POPULATE_READ)
  // One call instead of a fault every few pages. Kernels before 5.14 don't know it.
  if (madvise(start, bytes + before, MADV_POPULATE_READ) == 0) return;
#endif
  (void)madvise(start, bytes + before, MADV_WILLNEED);
#endif
}

/// Gives up the pages of a mapped file that lie within [data, data + bytes): the process no longer
/// counts them as its own; they are read again when they are touched.
inline void release_pages([[maybe_unused]] const std::byte* data,
                          [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
  const std::size_t page = page_bytes();
  const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(data) % page) % page;
  if (bytes < before + page) return;
  (void)madvise(const_cast<std::byte*>(data + before), (bytes - before) / page * page,
                MADV_DONTNEED);
#endif
}

struct ByteDeleter {
  std::size_t alignment = cache_line;
  void operator()(std::byte* data) const noexcept {
    ::operator delete[](data, std::align_val_t{alignment});
  }
};

/// An owned byte array without a size.
using Bytes = std::unique_ptr<std::byte[], ByteDeleter>;

/// `bytes` uninitialised bytes, aligned by alignment_for(). Throws std::bad_alloc.
[[nodiscard]] inline Bytes allocate_bytes(std::size_t bytes) {
  const std::size_t alignment = alignment_for(bytes);
  auto* data = static_cast<std::byte*>(
      ::operator new[](bytes == 0 ? std::size_t{1} : bytes, std::align_val_t{alignment}));
  advise_huge_pages(data, bytes);
  return Bytes{data, ByteDeleter{alignment}};
}

} // namespace quern::detail
