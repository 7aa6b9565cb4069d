// floor: 1
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <variant>

#include <quern/detail/config.hpp>

/// @file
/// What the library did and what it cost, as events. Nothing is formatted or allocated unless a
/// sink asks for it; the default sink `no_trace` is off.

namespace quern {

/// A weight or an activation was converted because a caller asked for it: a relayout, a
/// quantization of activations, a widening at load.
struct AdapterInserted {
  std::string_view kind;     ///< "prepack", "quantize_activations", "dequantize", ...
  std::string_view from;     ///< order or format before
  std::string_view to;       ///< order or format after
  std::size_t bytes_before;  ///< bytes read
  std::size_t bytes;         ///< bytes written
  std::string_view scope;    ///< kind of the scope that holds the result
  std::string_view target{}; ///< name of the tensor that needed it, where it is known
};

/// One kernel call.
struct KernelRun {
  std::string_view kernel;   ///< its key, as to_string(KernelKey) writes it
  std::size_t bytes_read;    ///< of the weight, packed as it is, and of the activations, each once
  std::size_t bytes_written; ///< of the result
  std::chrono::nanoseconds duration; ///< wall-clock time of the whole call, with all its threads
  std::string_view weight{};         ///< name of the tensor, where it is known
};

/// Memory taken by a scope.
struct Allocation {
  std::string_view scope; ///< kind of the scope
  std::size_t bytes;      ///< that were taken, without padding
};

/// Memory given back by a scope.
struct Free {
  std::string_view scope; ///< kind of the scope
  std::size_t bytes;      ///< as many as the Allocation of this memory had
};

/// A step scope was reset: `bytes` were in use, `peak` is the largest use of any step so far.
struct ScopeReset {
  std::string_view scope; ///< kind of the scope
  std::size_t bytes;      ///< in use when the step ended, overflow included
  std::size_t peak;       ///< the largest use of any step so far
};

/// The start of a named phase.
struct PhaseBegin {
  std::string_view name; ///< given by the caller of Phase
};

/// The end of a named phase.
struct PhaseEnd {
  std::string_view name; ///< the name it began with
};

/// The price of loading a model was worked out, before any payload was read.
struct ModelPlanned {
  std::size_t tensors;      ///< in the files
  std::size_t conversions;  ///< tensors that will be converted or relaid out
  std::size_t bytes_before; ///< all tensors as they are in the files
  std::size_t bytes;        ///< all tensors as they will be
  std::size_t budget;       ///< bytes that may be used
};

/// Any event.
using Event = std::variant<AdapterInserted, KernelRun, Allocation, Free, ScopeReset, PhaseBegin,
                           PhaseEnd, ModelPlanned>;

/// A sink of events. Derive, override record(). Events arrive on the calling thread; a sink shared
/// between threads must lock. A sink outlives the scopes that report to it. The texts in an event
/// are valid during record(): names of tensors and phases may be the caller's, so a sink that keeps
/// events copies them.
class Trace {
public:
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  /// Sinks are destroyed through their own type or this one.
  virtual ~Trace() = default;

  /// False for a sink that wants nothing; callers then build no event.
  [[nodiscard]] bool enabled() const noexcept { return enabled_; }

  /// Takes one event; for a disabled sink nothing is built. An exception from record() loses the
  /// event and ends here: watching a program must not change what it does.
  template <class E>
  requires std::constructible_from<Event, const E&>
  void emit(const E& event) noexcept {
    if (!enabled_) return;
    try {
      record(Event(event));
    } catch (...) { // NOLINT: see above
    }
  }

protected:
  /// `enabled` stays as it is: false for a sink that wants no event.
  explicit Trace(bool enabled = true) noexcept : enabled_(enabled) {}
  /// Takes one event; called by emit(), and only when the sink is enabled. May throw: the event is
  /// then lost.
  virtual void record(const Event& event) = 0;

private:
  bool enabled_;
};

namespace detail {
class NoTrace final : public Trace {
public:
  NoTrace() noexcept : Trace(false) {}

private:
  void record(const Event& /*event*/) override {}
};
inline NoTrace no_trace_instance;
} // namespace detail

/// The sink that records nothing.
inline Trace& no_trace = detail::no_trace_instance;

/// Emits PhaseBegin now and PhaseEnd when it goes out of scope, also by an exception.
class Phase {
public:
  /// Both are kept by reference: the sink and the text of the name must outlive the phase.
  Phase(Trace& trace, std::string_view name) : trace_(trace), name_(name) {
    trace_.emit(PhaseBegin{name_});
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;
  /// Emits PhaseEnd.
  ~Phase() { trace_.emit(PhaseEnd{name_}); }

private:
  Trace& trace_;
  std::string_view name_;
};

} // namespace quern
