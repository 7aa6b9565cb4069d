// floor: 1.1
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <quern/detail/memory.hpp>
#include <quern/detail/poison.hpp>
#include <quern/error.hpp>

/// @file
/// The memory that a ForwardScope cuts into pieces.

namespace quern::detail {

/// A slab whose pieces are given back all at once. With checks there are two, used in turns: no
/// piece then lies where one of the step before was, and every byte that is in no piece is
/// dead_byte, so that a write to it can be found.
class StepSlab {
public:
  StepSlab(std::size_t capacity, bool checks)
      : now_(allocate_bytes(capacity)), capacity_(capacity), checks_(checks) {
    if (checks_) {
      before_ = allocate_bytes(capacity);
      fill(now_, capacity_);
      fill(before_, capacity_);
      poison(before_.get(), capacity_);
    }
    poison(now_.get(), capacity_);
  }
  StepSlab(const StepSlab&) = delete;
  StepSlab& operator=(const StepSlab&) = delete;
  ~StepSlab() {
    unpoison(now_.get(), capacity_);
    if (checks_) unpoison(before_.get(), capacity_);
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool checks() const noexcept { return checks_; }
  /// Bytes taken from the system.
  [[nodiscard]] std::size_t bytes() const noexcept { return (checks_ ? 2 : 1) * capacity_; }

  /// The next piece, or null when it does not fit. Throws Error(use_after_reset) when somebody
  /// wrote to its place, and std::bad_alloc with checks; then there is no piece.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t alignment) {
    void* at = now_.get() + used_;
    std::size_t room = capacity_ - used_;
    if (std::align(alignment, bytes, at, room) == nullptr) return nullptr;
    const std::size_t start = capacity_ - room;
    if (checks_) {
      expect_dead(now_, start, start + bytes);
      expect_dead(before_, start, start + bytes);
      if (start != used_) gaps_.push_back({used_, start});
    }
    unpoison(now_.get() + start, bytes);
    used_ = start + bytes;
    return at;
  }

  /// Ends the step. Returns the place of a byte that is in no piece and yet was written to, or
  /// capacity().
  [[nodiscard]] std::size_t end_step() noexcept {
    std::size_t changed = capacity_;
    if (checks_) {
      unpoison(now_.get(), capacity_);
      unpoison(before_.get(), capacity_);
      changed = changed_byte();
      const bool intact = changed == capacity_;
      fill(now_, intact ? used_ : capacity_);
      if (!intact) fill(before_, capacity_);
      gaps_.clear();
      now_.swap(before_);
      poison(before_.get(), capacity_);
    }
    poison(now_.get(), capacity_);
    used_ = 0;
    return changed;
  }

  [[noreturn]] static void throw_changed(const char* call, std::size_t byte) {
    throw Error(ErrorCode::use_after_reset,
                "quern::ForwardScope::" + std::string(call) + ": byte " + std::to_string(byte) +
                    " of the slab was written after its step had ended, or past the end of a "
                    "piece; keep no pointer across reset(), or retain() what must last");
  }

private:
  struct Gap { // between two pieces
    std::size_t from;
    std::size_t to;
  };

  static void fill(const Bytes& slab, std::size_t bytes) noexcept {
    std::fill_n(slab.get(), bytes, dead_byte);
  }
  static void expect_dead(const Bytes& slab, std::size_t from, std::size_t to) {
    unpoison(slab.get() + from, to - from);
    const std::size_t changed = first_changed(slab.get(), from, to);
    poison(slab.get() + from, to - from);
    if (changed != to) throw_changed("allocate", changed);
  }
  [[nodiscard]] std::size_t changed_byte() const noexcept {
    for (const Gap& gap : gaps_) {
      const std::size_t changed = first_changed(now_.get(), gap.from, gap.to);
      if (changed != gap.to) return changed;
    }
    const std::size_t changed = first_changed(now_.get(), used_, capacity_);
    return changed != capacity_ ? changed : first_changed(before_.get(), 0, capacity_);
  }

  Bytes now_;
  Bytes before_; // null without checks
  std::size_t capacity_;
  bool checks_;
  std::size_t used_ = 0;
  std::vector<Gap> gaps_;
};

} // namespace quern::detail
