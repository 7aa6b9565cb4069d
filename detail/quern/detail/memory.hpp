// floor: 0.1
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <quern/detail/config.hpp>

#if defined(__linux__)
#include <sys/mman.h>
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

/// Asks the kernel to back [data, data + bytes) with large pages; only a hint.
inline void advise_huge_pages([[maybe_unused]] void* data,
                              [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes >= 2 * huge_page) (void)madvise(data, bytes & ~(huge_page - 1), MADV_HUGEPAGE);
#endif
}

struct ByteDeleter {
  std::size_t alignment = cache_line;
  void operator()(std::byte* data) const noexcept {
    ::operator delete[](data, std::align_val_t{alignment});
  }
};

/// Throws std::bad_alloc for more bytes than an object can have: rounded up to their alignment they
/// may become few, and operator new may then hand out too small a block.
inline void refuse_impossible(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX)) throw std::bad_alloc();
}

/// An owned byte array without a size.
using Bytes = std::unique_ptr<std::byte[], ByteDeleter>;

/// `bytes` uninitialised bytes, aligned by alignment_for(). Throws std::bad_alloc.
[[nodiscard]] inline Bytes allocate_bytes(std::size_t bytes) {
  refuse_impossible(bytes);
  const std::size_t alignment = alignment_for(bytes);
  auto* data = static_cast<std::byte*>(
      ::operator new[](bytes == 0 ? std::size_t{1} : bytes, std::align_val_t{alignment}));
  advise_huge_pages(data, bytes);
  return Bytes{data, ByteDeleter{alignment}};
}

} // namespace quern::detail
