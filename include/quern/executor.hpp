// floor: 1
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <quern/detail/config.hpp>

/// @file
/// Who runs the pieces of a large product. quern starts no thread: it cuts the work into pieces
/// that never overlap and hands them to an executor. Which thread runs a piece changes no bit of
/// the result.

namespace quern {

/// A reference to a callable `void(std::size_t)`, for executors that are not templates. The
/// callable must outlive it.
class IndexFunction {
public:
  /// Refers to `f`; no copy is made.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, IndexFunction> && std::invocable<F&, std::size_t>)
      IndexFunction(F&& f)
  noexcept // NOLINT: implicit
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, std::size_t index) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index);
        }) {}

  /// Calls `f(index)`.
  void operator()(std::size_t index) const { call_(object_, index); }

private:
  void* object_;
  void (*call_)(void*, std::size_t);
};

/// Runs work in pieces. `parallel_for(count, f)` calls `f(i)` once for each i in [0, count), on any
/// threads and in any order, and returns when all calls have. `f` may be copied and converts to
/// std::function; it does not throw.
template <class E>
concept Executor = requires(E& executor, std::size_t count, IndexFunction f) {
  executor.parallel_for(count, f);
};

/// Runs everything on the calling thread.
struct SerialExecutor {
  /// Calls f(0) to f(count - 1), in this order.
  template <class F>
  void parallel_for(std::size_t count, F&& f) const {
    for (std::size_t i = 0; i < count; ++i)
      f(i);
  }
  /// One: nothing runs at the same time.
  [[nodiscard]] static constexpr std::size_t concurrency() noexcept { return 1; }
};

/// A reference to any executor, which must outlive it. Empty, it stands for the calling thread.
class ExecutorRef {
public:
  /// The calling thread.
  constexpr ExecutorRef() noexcept = default;

  /// Refers to `executor`, and asks it for its concurrency() now, when it has one.
  template <Executor E>
  requires(!std::same_as<std::remove_cvref_t<E>, ExecutorRef>) ExecutorRef(E& executor)
  noexcept // NOLINT: implicit
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(executor)))),
        run_([](void* object, std::size_t count, IndexFunction f) {
          static_cast<E*>(object)->parallel_for(count, f);
        }) {
    if constexpr (requires {
                    { executor.concurrency() } -> std::convertible_to<std::size_t>;
                  })
      concurrency_ = static_cast<std::size_t>(executor.concurrency());
    else
      concurrency_ = 16;
  }

  /// How many pieces may run at once: what the executor's `concurrency()` said, or 16 when it has
  /// no such member. It steers only how finely work is cut.
  [[nodiscard]] constexpr std::size_t concurrency() const noexcept { return concurrency_; }

  /// Calls f(i) once for each i in [0, count) and returns when all calls have. A single piece runs
  /// on the calling thread.
  void parallel_for(std::size_t count, IndexFunction f) const {
    if (run_ == nullptr || count <= 1)
      SerialExecutor{}.parallel_for(count, f);
    else
      run_(object_, count, f);
  }

private:
  void* object_ = nullptr;
  void (*run_)(void*, std::size_t, IndexFunction) = nullptr;
  std::size_t concurrency_ = 1;
};

} // namespace quern
