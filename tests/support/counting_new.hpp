#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

/// @file
/// Replaces the global operator new, to count allocations and to make one of them fail. Include it
/// in one file of an executable only.

namespace support {

inline std::atomic<std::size_t> allocations{0};
/// Allocations that still succeed; below zero: all of them.
inline std::atomic<long> allocations_left{-1};

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
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete(void* data, std::align_val_t) noexcept {
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data) noexcept {
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data, std::size_t) noexcept {
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data, std::align_val_t) noexcept {
  std::free(data);
}
SUPPORT_OUT_OF_LINE void operator delete[](void* data, std::size_t, std::align_val_t) noexcept {
  std::free(data);
}
