#include <array>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <quern/trace.hpp>
#include <quern/trace_sinks.hpp>

#include "support/counting_new.hpp"
#include "support/errors.hpp"

namespace {

using namespace quern;
using std::chrono::nanoseconds;

std::vector<std::string> phase_names(const RingTrace& ring) {
  std::vector<std::string> names;
  for (const TimedEvent& event : ring.events())
    names.emplace_back(std::get<PhaseBegin>(event.event).name);
  return names;
}

TEST(TraceSinks, NoTraceBuildsNothing) {
  EXPECT_FALSE(no_trace.enabled());
  int runs = 0;
  const std::size_t allocations = support::count_allocations([&] {
    const Phase phase(no_trace, "work");
    ++runs;
  });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(allocations, 0u);
}

TEST(TraceSinks, RingKeepsTheLastEventsAndCountsTheOthers) {
  RingTrace ring(3);
  EXPECT_TRUE(ring.enabled());
  for (const char* name : {"one", "two", "three", "four", "five"})
    ring.emit(PhaseBegin{name});
  EXPECT_EQ(phase_names(ring), (std::vector<std::string>{"three", "four", "five"}));
  EXPECT_EQ(ring.size(), 3u);
  EXPECT_EQ(ring.dropped(), 2u);
  ring.emit(PhaseBegin{"six"});
  EXPECT_EQ(phase_names(ring), (std::vector<std::string>{"four", "five", "six"}));
  EXPECT_EQ(ring.dropped(), 3u);

  ring.clear();
  EXPECT_EQ(ring.size(), 0u);
  EXPECT_EQ(ring.dropped(), 0u);
  EXPECT_TRUE(ring.events().empty());
  ring.emit(PhaseBegin{"seven"});
  EXPECT_EQ(phase_names(ring), (std::vector<std::string>{"seven"}));
}

TEST(TraceSinks, RingHas65536PlacesByDefaultAndNeverNone) {
  EXPECT_EQ(RingTrace().capacity(), 65'536u);
  const std::string message = support::error_of(ErrorCode::out_of_range, [] { RingTrace ring(0); });
  EXPECT_TRUE(support::contains(message, "0 events"));
  EXPECT_TRUE(support::contains(message, "no_trace"));
}

TEST(TraceSinks, RingCopiesTexts) {
  RingTrace ring(4);
  for (int i = 0; i < 9; ++i) {
    std::string name = "a phase with a name longer than any small buffer, number ";
    name += std::to_string(i);
    ring.emit(PhaseBegin{name});
    name.assign(name.size(), '#');
  }
  const auto names = phase_names(ring);
  ASSERT_EQ(names.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(support::contains(names[i], "number " + std::to_string(i + 5)));
}

TEST(TraceSinks, RingKeepsEveryFieldOfEveryEvent) {
  RingTrace ring;
  ring.emit(
      AdapterInserted{"prepack", "RowMajor", "InputBlockMajor", 216, 217, "model", "blk.0.w"});
  ring.emit(KernelRun{"matmul<float>", 300, 12, nanoseconds{1500}, "blk.0.w"});
  ring.emit(Allocation{"model", 216});
  ring.emit(Free{"model", 215});
  ring.emit(ScopeReset{"forward", 64, 128});
  ring.emit(PhaseBegin{"load"});
  ring.emit(PhaseEnd{"load"});
  ring.emit(ModelPlanned{7, 3, 100, 200, 300});
  const auto events = ring.events();
  ASSERT_EQ(events.size(), std::variant_size_v<Event>);

  const auto& adapter = std::get<AdapterInserted>(events[0].event);
  EXPECT_EQ(adapter.kind, "prepack");
  EXPECT_EQ(adapter.from, "RowMajor");
  EXPECT_EQ(adapter.to, "InputBlockMajor");
  EXPECT_EQ(adapter.bytes_before, 216u);
  EXPECT_EQ(adapter.bytes, 217u);
  EXPECT_EQ(adapter.scope, "model");
  EXPECT_EQ(adapter.target, "blk.0.w");
  const auto& run = std::get<KernelRun>(events[1].event);
  EXPECT_EQ(run.kernel, "matmul<float>");
  EXPECT_EQ(run.bytes_read, 300u);
  EXPECT_EQ(run.bytes_written, 12u);
  EXPECT_EQ(run.duration, nanoseconds{1500});
  EXPECT_EQ(run.weight, "blk.0.w");
  EXPECT_EQ(std::get<Allocation>(events[2].event).bytes, 216u);
  EXPECT_EQ(std::get<Allocation>(events[2].event).scope, "model");
  EXPECT_EQ(std::get<Free>(events[3].event).bytes, 215u);
  EXPECT_EQ(std::get<Free>(events[3].event).scope, "model");
  EXPECT_EQ(std::get<ScopeReset>(events[4].event).scope, "forward");
  EXPECT_EQ(std::get<ScopeReset>(events[4].event).bytes, 64u);
  EXPECT_EQ(std::get<ScopeReset>(events[4].event).peak, 128u);
  EXPECT_EQ(std::get<PhaseBegin>(events[5].event).name, "load");
  EXPECT_EQ(std::get<PhaseEnd>(events[6].event).name, "load");
  const auto& plan = std::get<ModelPlanned>(events[7].event);
  EXPECT_EQ(plan.tensors, 7u);
  EXPECT_EQ(plan.conversions, 3u);
  EXPECT_EQ(plan.bytes_before, 100u);
  EXPECT_EQ(plan.bytes, 200u);
  EXPECT_EQ(plan.budget, 300u);
}

TEST(TraceSinks, TimesNeverGoBack) {
  RingTrace ring;
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i)
    ring.emit(PhaseBegin{"p"});
  const auto after = std::chrono::steady_clock::now();
  const auto events = ring.events();
  ASSERT_EQ(events.size(), 1000u);
  EXPECT_GE(events.front().time, before);
  EXPECT_LE(events.back().time, after);
  for (std::size_t i = 1; i < events.size(); ++i)
    ASSERT_GE(events[i].time, events[i - 1].time);
}

TEST(TraceSinks, AFullRingAllocatesNothing) {
  RingTrace ring(16);
  const auto round = [&] {
    for (int i = 0; i < 64; ++i)
      ring.emit(KernelRun{"matmul<float, Q4_0, RowMajor, Scalar>", 1, 2, nanoseconds{3}, "weight"});
  };
  round();
  EXPECT_EQ(support::count_allocations(round), 0u);
}

TEST(TraceSinks, ARingWithoutMemoryLosesEventsAndNothingElse) {
  RingTrace ring(8);
  const std::string name(100, 'n');
  ring.emit(PhaseBegin{name});
  for (long nth = 0; nth < 6; ++nth) {
    const support::FailingAllocation failing(nth);
    ring.emit(PhaseBegin{name});
  }
  EXPECT_GE(ring.dropped(), 1u);
  EXPECT_EQ(ring.size() + ring.dropped(), 7u);
  for (const std::string& kept : phase_names(ring))
    EXPECT_EQ(kept, name);
}

TEST(TraceSinks, ThreadsAreNumberedInTheOrderTheyAppear) {
  RingTrace ring;
  ring.emit(PhaseBegin{"first"});
  std::thread([&] { ring.emit(PhaseBegin{"second"}); }).join();
  ring.emit(PhaseBegin{"first"});
  const auto events = ring.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].thread, 0u);
  EXPECT_EQ(events[1].thread, 1u);
  EXPECT_EQ(events[2].thread, 0u);
}

TEST(TraceSinks, AllSinksMayBeSharedBetweenThreads) {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 500;
  RingTrace ring(threads * each / 2);
  CountingTrace counts;
  CompositeTrace both{&ring, &counts};
  std::vector<std::thread> pool;
  for (std::size_t t = 0; t < threads; ++t)
    pool.emplace_back([&both, t] {
      const std::string kernel = "kernel " + std::to_string(t);
      for (std::size_t i = 0; i < each; ++i)
        both.emit(KernelRun{kernel, t, 1, nanoseconds{1}});
    });
  for (std::thread& thread : pool)
    thread.join();
  EXPECT_EQ(ring.size() + ring.dropped(), threads * each);
  EXPECT_EQ(counts.count<KernelRun>(), threads * each);
  const auto kernels = counts.kernels();
  ASSERT_EQ(kernels.size(), threads);
  for (std::size_t t = 0; t < threads; ++t)
    EXPECT_EQ(kernels.at("kernel " + std::to_string(t)).bytes_read, t * each);
}

TEST(TraceSinks, APhaseEndsAlsoByAnException) {
  RingTrace ring;
  try {
    const Phase outer(ring, "outer");
    const Phase inner(ring, "inner");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
    ring.emit(PhaseBegin{"after"});
  }
  const auto events = ring.events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(std::get<PhaseBegin>(events[0].event).name, "outer");
  EXPECT_EQ(std::get<PhaseBegin>(events[1].event).name, "inner");
  EXPECT_EQ(std::get<PhaseEnd>(events[2].event).name, "inner");
  EXPECT_EQ(std::get<PhaseEnd>(events[3].event).name, "outer");
  EXPECT_EQ(std::get<PhaseBegin>(events[4].event).name, "after");
}

TEST(TraceSinks, CountingAddsUp) {
  CountingTrace counts;
  EXPECT_EQ(counts.count(), 0u);
  counts.emit(AdapterInserted{"prepack", "RowMajor", "InputBlockMajor", 216, 216, "model"});
  counts.emit(AdapterInserted{"prepack", "RowMajor", "InputBlockMajor", 100, 100, "model"});
  counts.emit(AdapterInserted{"dequantize", "Q4_K", "F32", 144, 1024, "model"});
  counts.emit(KernelRun{"k", 900, 100, nanoseconds{500}});
  counts.emit(KernelRun{"k", 1900, 100, nanoseconds{1500}});
  counts.emit(KernelRun{"l", 1, 1, nanoseconds{0}});
  counts.emit(Allocation{"model", 316});
  counts.emit(Free{"model", 100});
  EXPECT_EQ(counts.count(), 8u);
  EXPECT_EQ(counts.count<AdapterInserted>(), 3u);
  EXPECT_EQ(counts.count<KernelRun>(), 3u);
  EXPECT_EQ(counts.count<PhaseBegin>(), 0u);
  EXPECT_EQ(counts.adapters("prepack").count, 2u);
  EXPECT_EQ(counts.adapters("prepack").bytes, 316u);
  EXPECT_EQ(counts.adapters("dequantize").bytes_before, 144u);
  EXPECT_EQ(counts.adapters("dequantize").bytes, 1024u);
  EXPECT_EQ(counts.adapters("requantize").count, 0u);
  EXPECT_EQ(counts.adapters().size(), 2u);
  EXPECT_EQ(counts.allocated_bytes(), 316u);
  EXPECT_EQ(counts.freed_bytes(), 100u);

  const auto kernels = counts.kernels();
  EXPECT_EQ(kernels.at("k").runs, 2u);
  EXPECT_EQ(kernels.at("k").bytes_read, 2800u);
  EXPECT_EQ(kernels.at("k").bytes_written, 200u);
  EXPECT_DOUBLE_EQ(kernels.at("k").bytes_per_second(), 3000 / 2e-6);
  EXPECT_EQ(kernels.at("l").bytes_per_second(), 0.0);
}

TEST(TraceSinks, CompositeKeepsTheOrderAndLeavesOutDisabledSinks) {
  // A sink that notes in which order sinks are reached.
  class Noting final : public Trace {
  public:
    Noting(std::vector<int>& log, int id, bool enabled) : Trace(enabled), log_(log), id_(id) {}

  private:
    void record(const Event&) override { log_.push_back(id_); }
    std::vector<int>& log_;
    int id_;
  };
  std::vector<int> log;
  Noting one(log, 1, true);
  Noting off(log, 2, false);
  Noting three(log, 3, true);
  CompositeTrace all{&three, &off, &one, &no_trace};
  EXPECT_TRUE(all.enabled());
  all.emit(PhaseBegin{"p"});
  all.emit(PhaseEnd{"p"});
  EXPECT_EQ(log, (std::vector<int>{3, 1, 3, 1}));

  CompositeTrace none{&off, &no_trace};
  EXPECT_FALSE(none.enabled());
  none.emit(PhaseBegin{"p"});
  EXPECT_EQ(log.size(), 4u);
  const std::array<Trace*, 1> one_sink{&one};
  CompositeTrace nested{std::span<Trace* const>(one_sink)};
  CompositeTrace outer{&nested, &none};
  outer.emit(PhaseBegin{"p"});
  EXPECT_EQ(log.size(), 5u);
}

} // namespace
