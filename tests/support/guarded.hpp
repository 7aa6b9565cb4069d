#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#define SUPPORT_HAS_PAGES 1
#endif

namespace support {

#if defined(SUPPORT_HAS_PAGES)

[[nodiscard]] inline std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Where the bytes of a Guarded lie: against the page before them or the page after them.
enum class Against { front, back };

/// `count` values of T between two unreadable pages, so that reading or writing past one end stops
/// the test. At the back the last value touches the guard whatever its alignment.
template <class T>
class Guarded {
public:
  explicit Guarded(std::size_t count, Against against = Against::back)
      : count_(count), pages_((count * sizeof(T) + page_size() - 1) / page_size()) {
    const std::size_t page = page_size();
    void* at = ::mmap(nullptr, (pages_ + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(at);
    protect(0, pages_ * page, PROT_READ | PROT_WRITE);
    std::byte* first = mapping_ + page;
    if (against == Against::back) first += pages_ * page - count * sizeof(T);
    data_ = reinterpret_cast<T*>(first);
  }
  explicit Guarded(std::span<const T> values, Against against = Against::back)
      : Guarded(values.size(), against) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size_bytes());
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { ::munmap(mapping_, (pages_ + 2) * page_size()); }

  [[nodiscard]] std::span<T> span() noexcept { return {data_, count_}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_, count_}; }

  /// Writing stops the test from now on.
  void read_only() { protect(0, pages_ * page_size(), PROT_READ); }

  /// Makes every page unreadable.
  void hide_all_pages() { protect(0, pages_ * page_size(), PROT_NONE); }
  /// Makes readable the pages that hold [from, from + bytes) of the values.
  void show(std::size_t from, std::size_t bytes) {
    if (bytes == 0) return;
    const std::size_t page = page_size();
    const auto offset =
        static_cast<std::size_t>(reinterpret_cast<std::byte*>(data_) - (mapping_ + page)) + from;
    const std::size_t first = offset / page * page;
    protect(first, (offset + bytes + page - 1) / page * page - first, PROT_READ);
  }

private:
  void protect(std::size_t from, std::size_t bytes, int how) {
    if (bytes != 0 && ::mprotect(mapping_ + page_size() + from, bytes, how) != 0)
      throw std::bad_alloc();
  }

  std::size_t count_;
  std::size_t pages_;
  std::byte* mapping_ = nullptr;
  T* data_ = nullptr;
};

#endif

} // namespace support
