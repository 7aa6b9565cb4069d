// floor: 2.1
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <quern/detail/utf8.hpp>
#include <quern/error.hpp>
#include <quern/trace.hpp>
#include <quern/trace_sinks.hpp>

/// @file
/// Trace events as the JSON that chrome://tracing and ui.perfetto.dev open (the "JSON Object
/// Format" of the Trace Event Format): times in microseconds with three decimals.

namespace quern {

namespace detail {

/// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] inline std::string json_string(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0)
      json += "\\ufffd";
    else if (first == '"' || first == '\\')
      json.append({'\\', text.front()});
    else if (first < 0x20 || first == 0x7F)
      json.append("\\u00").append({hex[first >> 4], hex[first & 15]});
    else
      json.append(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return json += '"';
}

/// Nanoseconds, not negative, as microseconds with three decimals.
[[nodiscard]] inline std::string json_microseconds(std::chrono::nanoseconds time) {
  const auto count = std::max<std::chrono::nanoseconds::rep>(time.count(), 0);
  const std::string rest = std::to_string(count % 1000);
  return std::to_string(count / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

/// Writes the trace; one object per export. Numbers go out as text, since a stream's locale may
/// group digits.
class TraceJson {
public:
  TraceJson(std::ostream& out, std::span<const TimedEvent> events) : out_(out), events_(events) {}

  void write(std::string_view process, std::size_t dropped) {
    find_extent();
    out_ << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped\":\"" << std::to_string(dropped)
         << "\"},\"traceEvents\":[\n";
    name_track("process_name", 0, process);
    for (std::uint32_t thread = 0; thread < open_phases_.size(); ++thread)
      name_track("thread_name", thread, "thread " + std::to_string(thread));
    for (const auto& [scope, track] : scopes_)
      name_track("thread_name", track.id, std::string(scope) + " scope");
    for (const TimedEvent& event : events_)
      std::visit([&](const auto& e) { put(event, e); }, event.event);
    close_phases();
    out_ << "\n]}\n";
  }

private:
  using Time = std::chrono::steady_clock::time_point;
  struct Track {
    std::uint32_t id;
    std::size_t live;
  };

  /// The first and the last moment, the threads and the scopes.
  void find_extent() {
    if (events_.empty()) return;
    start_ = end_ = events_.front().time;
    std::uint32_t threads = 0;
    for (const TimedEvent& event : events_) {
      const auto* run = std::get_if<KernelRun>(&event.event);
      start_ = std::min(start_, event.time - (run ? run->duration : std::chrono::nanoseconds{0}));
      end_ = std::max(end_, event.time);
      threads = std::max(threads, event.thread + 1);
      std::visit(
          [&]<class E>(const E& e) {
            if constexpr (requires { e.scope; }) scopes_.try_emplace(e.scope);
          },
          event.event);
    }
    open_phases_.resize(threads);
    for (auto& [scope, track] : scopes_)
      track.id = threads++;
  }

  [[nodiscard]] std::string at(Time time) const { return json_microseconds(time - start_); }

  /// The fields that every event has; the caller adds others and closes the object.
  void open(std::string_view phase, std::uint32_t track, std::string_view name) {
    if (!first_) out_ << ",\n";
    first_ = false;
    out_ << "{\"ph\":\"" << phase << "\",\"pid\":1,\"tid\":" << std::to_string(track)
         << ",\"name\":" << json_string(name);
  }
  void open(std::string_view phase, std::uint32_t track, std::string_view name, Time time) {
    open(phase, track, name);
    out_ << ",\"ts\":" << at(time);
  }

  void name_track(std::string_view kind, std::uint32_t track, std::string_view name) {
    open("M", track, kind);
    out_ << ",\"args\":{\"name\":" << json_string(name) << "}}";
  }

  void put(const TimedEvent& event, const PhaseBegin& phase) {
    open("B", event.thread, phase.name, event.time);
    out_ << "}";
    open_phases_[event.thread].push_back(phase.name);
  }
  void put(const TimedEvent& event, const PhaseEnd& phase) {
    // The beginning may have been dropped.
    if (open_phases_[event.thread].empty()) return;
    open_phases_[event.thread].pop_back();
    open("E", event.thread, phase.name, event.time);
    out_ << "}";
  }
  void close_phases() {
    for (std::uint32_t thread = 0; thread < open_phases_.size(); ++thread)
      for (auto name = open_phases_[thread].rbegin(); name != open_phases_[thread].rend(); ++name) {
        open("E", thread, *name, end_);
        out_ << "}";
      }
  }

  void put(const TimedEvent& event, const KernelRun& run) {
    open("X", event.thread, run.kernel, event.time - run.duration);
    out_ << ",\"dur\":" << json_microseconds(run.duration) << ",\"cat\":\"kernel\",\"args\":{";
    if (!run.weight.empty()) out_ << "\"weight\":" << json_string(run.weight) << ",";
    out_ << "\"bytes_read\":" << std::to_string(run.bytes_read)
         << ",\"bytes_written\":" << std::to_string(run.bytes_written) << "}}";
  }

  void open_instant(std::string_view category, std::uint32_t track, std::string_view name,
                    Time time) {
    open("i", track, name, time);
    out_ << ",\"s\":\"t\",\"cat\":\"" << category << "\",\"args\":{";
  }

  void put(const TimedEvent& event, const AdapterInserted& adapter) {
    open_instant("adapter", scopes_.at(adapter.scope).id, adapter.kind, event.time);
    if (!adapter.target.empty()) out_ << "\"target\":" << json_string(adapter.target) << ",";
    out_ << "\"from\":" << json_string(adapter.from) << ",\"to\":" << json_string(adapter.to)
         << ",\"bytes_before\":" << std::to_string(adapter.bytes_before)
         << ",\"bytes\":" << std::to_string(adapter.bytes) << "}}";
  }

  void put(const TimedEvent& event, const Allocation& taken) {
    Track& track = scopes_.at(taken.scope);
    track.live += taken.bytes;
    memory(event.time, "allocation", taken.scope, track, taken.bytes);
  }
  void put(const TimedEvent& event, const Free& given) {
    Track& track = scopes_.at(given.scope);
    track.live -= std::min(track.live, given.bytes); // its Allocation may have been dropped
    memory(event.time, "free", given.scope, track, given.bytes);
  }
  void memory(Time time, std::string_view what, std::string_view scope, const Track& track,
              std::size_t bytes) {
    open_instant("memory", track.id, what, time);
    out_ << "\"bytes\":" << std::to_string(bytes) << "}}";
    open("C", track.id, "live bytes, " + std::string(scope), time);
    out_ << ",\"args\":{\"bytes\":" << std::to_string(track.live) << "}}";
  }

  void put(const TimedEvent& event, const ScopeReset& reset) {
    open_instant("memory", scopes_.at(reset.scope).id, "reset", event.time);
    out_ << "\"bytes\":" << std::to_string(reset.bytes)
         << ",\"peak\":" << std::to_string(reset.peak) << "}}";
  }

  void put(const TimedEvent& event, const ModelPlanned& plan) {
    open_instant("plan", event.thread, "model planned", event.time);
    out_ << "\"tensors\":" << std::to_string(plan.tensors)
         << ",\"conversions\":" << std::to_string(plan.conversions)
         << ",\"bytes_before\":" << std::to_string(plan.bytes_before)
         << ",\"bytes\":" << std::to_string(plan.bytes)
         << ",\"budget\":" << std::to_string(plan.budget) << "}}";
  }

  std::ostream& out_;
  std::span<const TimedEvent> events_;
  Time start_{};
  Time end_{};
  bool first_ = true;
  std::map<std::string_view, Track> scopes_;
  std::vector<std::vector<std::string_view>> open_phases_; // by thread, innermost last
};

} // namespace detail

/// Writes events as a JSON trace: a slice per phase and per kernel on the track of its thread, an
/// instant per adapter, allocation, free and reset on the track of its scope, and the live bytes of
/// each scope as a counter. `dropped` events are mentioned. A phase whose end is missing ends with
/// the last event. Throws Error(file_write) when the stream fails.
inline void write_trace_json(std::ostream& out, std::span<const TimedEvent> events,
                             std::size_t dropped = 0, std::string_view process = "quern") {
  detail::TraceJson(out, events).write(process, dropped);
  out.flush();
  if (!out)
    throw Error(ErrorCode::file_write, "quern::write_trace_json: writing the trace of " +
                                           std::to_string(events.size()) + " events failed");
}

/// Writes what the ring holds. No thread may record meanwhile.
inline void write_trace_json(std::ostream& out, const RingTrace& ring,
                             std::string_view process = "quern") {
  const std::vector<TimedEvent> events = ring.events();
  write_trace_json(out, events, ring.dropped(), process);
}

} // namespace quern
