// floor: 3
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include <quern/detail/checked.hpp>
#include <quern/error.hpp>
#include <quern/scope.hpp>

namespace quern {

/// `count` values in a ForwardScope that remember their step: access after the scope's reset() is
/// an Error instead of a read of other values. The scope must outlive it.
template <class T>
requires(std::is_trivially_copyable_v<T>) class StepSpan {
public:
  /// Takes memory for `count` values, not yet set. Throws Error(size_overflow), and what
  /// allocate() throws.
  StepSpan(ForwardScope& scope, std::size_t count)
      : scope_(&scope), step_(scope.steps()), count_(count) {
    const auto bytes = detail::checked_mul(count, sizeof(T));
    if (!bytes)
      throw Error(ErrorCode::size_overflow, "quern::StepSpan: " + std::to_string(count) +
                                                " values of " + std::to_string(sizeof(T)) +
                                                " bytes do not fit the address space");
    if (count != 0) data_ = static_cast<T*>(scope.allocate(*bytes, alignof(T)));
  }

  /// The number of values, also when they are no longer alive().
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// False once the scope was reset.
  [[nodiscard]] bool alive() const noexcept { return scope_->steps() == step_; }

  /// The values. Throws Error(use_after_reset).
  [[nodiscard]] std::span<T> span() const {
    if (!alive())
      throw Error(ErrorCode::use_after_reset,
                  "quern::StepSpan: " + std::to_string(count_) + " values of step " +
                      std::to_string(step_) + " were asked for in step " +
                      std::to_string(scope_->steps()) +
                      "; retain() what must outlive the step before reset()");
    return {data_, count_};
  }

private:
  ForwardScope* scope_;
  std::size_t step_;
  std::size_t count_;
  T* data_ = nullptr;
};

/// Copies values of the running step to `scope`, where they stay until that scope gives them up.
/// Throws Error(use_after_reset) when their step has ended, and what allocate() throws.
template <class T>
[[nodiscard]] std::span<T> retain(const StepSpan<T>& values, Scope& scope) {
  const std::span<T> from = values.span();
  if (from.empty()) return {};
  auto* const to = static_cast<T*>(scope.allocate(from.size_bytes(), alignof(T)));
  std::ranges::copy(from, to);
  return {to, from.size()};
}

} // namespace quern
