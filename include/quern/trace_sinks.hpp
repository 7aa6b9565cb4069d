// floor: 2
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include <quern/error.hpp>
#include <quern/trace.hpp>

/// @file
/// Sinks for trace events: the last events, sums, and several sinks as one. Each may be shared
/// between threads.

namespace quern {

static_assert(std::chrono::steady_clock::is_steady);

/// An event with its time of arrival and the thread it came from.
struct TimedEvent {
  std::chrono::steady_clock::time_point time; ///< never earlier than that of the event before
  std::uint32_t thread;                       ///< 0 for the first thread seen, then 1, 2, ...
  Event event;                                ///< its texts belong to the sink that keeps it
};

namespace detail {

/// Calls `f` with a reference to each text of the event.
template <class Function>
void each_text(Event& event, Function f) {
  std::visit(
      [&]<class E>(E& e) {
        if constexpr (std::same_as<E, AdapterInserted>) {
          f(e.kind);
          f(e.from);
          f(e.to);
          f(e.scope);
          f(e.target);
        } else if constexpr (std::same_as<E, KernelRun>) {
          f(e.kernel);
          f(e.weight);
        } else if constexpr (requires { e.scope; }) {
          f(e.scope);
        } else if constexpr (requires { e.name; }) {
          f(e.name);
        }
      },
      event);
}

} // namespace detail

/// Keeps the last events, with copies of their texts, and counts those that it had to drop. Once it
/// is full and has seen texts of the usual length it allocates no more.
class RingTrace final : public Trace {
public:
  static constexpr std::size_t default_capacity = 65'536; ///< events

  /// Throws Error(out_of_range) for a capacity of 0.
  explicit RingTrace(std::size_t capacity = default_capacity) : capacity_(capacity) {
    if (capacity == 0)
      throw Error(ErrorCode::out_of_range,
                  "quern::RingTrace: a ring of 0 events keeps nothing; use no_trace to record "
                  "nothing, CountingTrace for sums alone");
  }

  /// The most events that are kept.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Events that are kept now.
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return slots_.size();
  }
  /// Events that are lost: overwritten by later ones, or no memory was left for them.
  [[nodiscard]] std::size_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  /// The events, oldest first. Their texts belong to the ring: they are valid until it records the
  /// next event or is cleared.
  [[nodiscard]] std::vector<TimedEvent> events() const {
    const std::lock_guard lock(mutex_);
    std::vector<TimedEvent> result;
    result.reserve(slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i)
      result.push_back(slots_[(next_ + i) % slots_.size()].event);
    return result;
  }

  /// Forgets all events and the number of dropped ones.
  void clear() {
    const std::lock_guard lock(mutex_);
    slots_.clear();
    next_ = 0;
    dropped_ = 0;
  }

private:
  struct Slot {
    TimedEvent event{};
    std::string text;

    /// Takes a copy of the event. When that needs memory and there is none, nothing has changed.
    void assign(const TimedEvent& from) {
      TimedEvent copy = from;
      std::size_t length = 0;
      detail::each_text(copy.event, [&](std::string_view& part) { length += part.size(); });
      text.reserve(length);
      text.clear();
      detail::each_text(copy.event, [&](std::string_view& part) {
        const std::size_t start = text.size();
        text.append(part);
        part = std::string_view(text).substr(start);
      });
      event = copy;
    }
  };

  void record(const Event& event) override {
    const std::lock_guard lock(mutex_);
    const TimedEvent timed{std::chrono::steady_clock::now(), thread_number(), event};
    if (slots_.size() < capacity_) {
      try {
        slots_.emplace_back();
      } catch (const std::bad_alloc&) {
        ++dropped_;
        return;
      }
      try {
        slots_.back().assign(timed);
      } catch (const std::bad_alloc&) {
        slots_.pop_back();
        ++dropped_;
      }
      return;
    }
    ++dropped_; // the oldest, or this one when there is no memory for its texts
    slots_[next_].assign(timed);
    next_ = (next_ + 1) % capacity_;
  }

  std::uint32_t thread_number() {
    const auto self = std::this_thread::get_id();
    const auto found = std::ranges::find(threads_, self);
    const auto number = static_cast<std::uint32_t>(found - threads_.begin());
    if (found == threads_.end()) threads_.push_back(self);
    return number;
  }

  mutable std::mutex mutex_;
  std::size_t capacity_;
  std::deque<Slot> slots_; // a deque, so that texts stay where they are while it grows
  std::size_t next_ = 0;   // the oldest event once the ring is full
  std::size_t dropped_ = 0;
  std::vector<std::thread::id> threads_;
};

/// What all calls of one kernel did together.
struct KernelTotals {
  std::size_t runs = 0;                 ///< KernelRun events
  std::size_t bytes_read = 0;           ///< sum, of weights and activations
  std::size_t bytes_written = 0;        ///< sum, of results
  std::chrono::nanoseconds duration{0}; ///< sum; calls at the same time count each

  /// Effective bandwidth: bytes read and written per second; 0 when no time was measured.
  [[nodiscard]] double bytes_per_second() const noexcept {
    const double seconds = std::chrono::duration<double>(duration).count();
    return seconds > 0 ? static_cast<double>(bytes_read + bytes_written) / seconds : 0;
  }
};

/// What all adapters of one kind did together.
struct AdapterTotals {
  std::size_t count = 0;        ///< AdapterInserted events
  std::size_t bytes_before = 0; ///< sum of the bytes read
  std::size_t bytes = 0;        ///< sum of the bytes written
};

/// Counts events and adds up their bytes; keeps no event.
class CountingTrace final : public Trace {
public:
  /// All sums start at zero.
  CountingTrace() = default;

  /// Events of all types.
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const std::size_t one : counts_)
      sum += one;
    return sum;
  }
  /// Events of type E.
  template <class E>
  requires std::constructible_from<Event, const E&>
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return counts_[Event(E{}).index()];
  }
  /// Sums by kernel.
  [[nodiscard]] std::map<std::string, KernelTotals, std::less<>> kernels() const {
    const std::lock_guard lock(mutex_);
    return kernels_;
  }
  /// Sums by kind of adapter.
  [[nodiscard]] std::map<std::string, AdapterTotals, std::less<>> adapters() const {
    const std::lock_guard lock(mutex_);
    return adapters_;
  }
  /// Sums of one kind of adapter; zeros when there was none.
  [[nodiscard]] AdapterTotals adapters(std::string_view kind) const {
    const std::lock_guard lock(mutex_);
    const auto found = adapters_.find(kind);
    return found == adapters_.end() ? AdapterTotals{} : found->second;
  }
  /// Bytes that scopes took, in Allocation events.
  [[nodiscard]] std::size_t allocated_bytes() const {
    const std::lock_guard lock(mutex_);
    return allocated_;
  }
  /// Bytes that scopes gave back, in Free events.
  [[nodiscard]] std::size_t freed_bytes() const {
    const std::lock_guard lock(mutex_);
    return freed_;
  }

private:
  void record(const Event& event) override {
    const std::lock_guard lock(mutex_);
    ++counts_[event.index()];
    if (const auto* run = std::get_if<KernelRun>(&event)) {
      KernelTotals& sum = at(kernels_, run->kernel);
      ++sum.runs;
      sum.bytes_read += run->bytes_read;
      sum.bytes_written += run->bytes_written;
      sum.duration += run->duration;
    } else if (const auto* adapter = std::get_if<AdapterInserted>(&event)) {
      AdapterTotals& sum = at(adapters_, adapter->kind);
      ++sum.count;
      sum.bytes_before += adapter->bytes_before;
      sum.bytes += adapter->bytes;
    } else if (const auto* taken = std::get_if<Allocation>(&event)) {
      allocated_ += taken->bytes;
    } else if (const auto* given = std::get_if<Free>(&event)) {
      freed_ += given->bytes;
    }
  }

  template <class Sum>
  static Sum& at(std::map<std::string, Sum, std::less<>>& sums, std::string_view name) {
    const auto found = sums.find(name);
    return found != sums.end() ? found->second : sums.emplace(name, Sum{}).first->second;
  }

  mutable std::mutex mutex_;
  std::array<std::size_t, std::variant_size_v<Event>> counts_{};
  std::map<std::string, KernelTotals, std::less<>> kernels_;
  std::map<std::string, AdapterTotals, std::less<>> adapters_;
  std::size_t allocated_ = 0;
  std::size_t freed_ = 0;
};

/// Hands each event to several sinks in the given order; disabled ones are left out, and when all
/// are, it is disabled too. The sinks must outlive it.
class CompositeTrace final : public Trace {
public:
  /// The sinks, none of them null: `CompositeTrace both{&ring, &counts}`.
  CompositeTrace(std::initializer_list<Trace*> sinks)
      : CompositeTrace(std::span<Trace* const>{sinks.begin(), sinks.size()}) {}
  /// The same from a list of any length. Which sinks are enabled is asked here, once.
  explicit CompositeTrace(std::span<Trace* const> sinks)
      : Trace(std::ranges::any_of(sinks, &Trace::enabled)) {
    std::ranges::copy_if(sinks, std::back_inserter(sinks_), &Trace::enabled);
  }

private:
  void record(const Event& event) override {
    for (Trace* const sink : sinks_)
      sink->emit(event);
  }

  std::vector<Trace*> sinks_;
};

} // namespace quern
