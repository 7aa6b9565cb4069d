#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__APPLE__)
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif

/// @file
/// Replaces the global operator new, to count allocations and their bytes and to make one of them
/// fail. Include it in one file of an executable only.

namespace support {

inline std::atomic<std::size_t> allocations{0};
/// Allocations that still succeed; below zero: all of them.
inline std::atomic<long> allocations_left{-1};

/// Bytes that are allocated now, and the most that there were since peak_bytes was last set.
inline std::atomic<std::size_t> live_bytes{0};
inline std::atomic<std::size_t> peak_bytes{0};

/// From its start on, how many bytes were allocated at most beyond those of the start.
class PeakMemory {
public:
  PeakMemory() : start_(live_bytes) { peak_bytes = start_; }
  [[nodiscard]] std::size_t bytes() const { return peak_bytes - start_; }
  /// True when as much is allocated as at the start.
  [[nodiscard]] bool nothing_left() const { return live_bytes == start_; }

private:
  std::size_t start_;
};

/// Runs `call` and returns how often it allocated.
template <class Call>
[[nodiscard]] std::size_t count_allocations(Call&& call) {
  const std::size_t before = allocations;
  call();
  return allocations - before;
}

/// While this lives, allocation number `nth` from now on, counted from 0, and all later ones fail.
class FailingAllocation {
public:
  explicit FailingAllocation(long nth) { allocations_left = nth; }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  ~FailingAllocation() { allocations_left = -1; }
};

namespace detail {
inline std::size_t usable_bytes(void* data) noexcept {
#if defined(__APPLE__)
  return malloc_size(data);
#else
  return malloc_usable_size(data);
#endif
}
inline void release(void* data) noexcept {
  if (data != nullptr) live_bytes -= usable_bytes(data);
  std::free(data);
}
inline void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if (allocations_left >= 0 && allocations_left-- == 0) {
    allocations_left = 0;
    throw std::bad_alloc();
  }
  if (bytes > static_cast<std::size_t>(-1) / 2) throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (data == nullptr) throw std::bad_alloc();
  const std::size_t live = live_bytes += usable_bytes(data);
  std::size_t peak = peak_bytes;
  while (peak < live && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return data;
}
} // namespace detail

} // namespace support

// Inlined, g++ sees only half of a pair and warns of a mismatch.
#if defined(__GNUC__)
#define SUPPORT_OUT_OF_LINE __attribute__((noinline))
#else
#define SUPPORT_OUT_OF_LINE
#endif

SUPPORT_OUT_OF_LINE void* operator new(std::size_t bytes) {
  return support::detail::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
SUPPORT_OUT_OF_LINE void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return support::detail::allocate(bytes, static_cast<std::size_t>(alignment));
}
SUPPORT_OUT_OF_LINE void* operator new[](std::size_t bytes) {
  return support::detail::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
SUPPORT_OUT_OF_LINE void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return support::detail::allocate(bytes, static_cast<std::size_t>(alignment));
}
SUPPORT_OUT_OF_LINE void operator delete(void* data) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete(void* data, std::size_t) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete(void* data, std::align_val_t) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data, std::size_t) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data, std::align_val_t) noexcept {
  support::detail::release(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data, std::size_t, std::align_val_t) noexcept {
  support::detail::release(data);
}
