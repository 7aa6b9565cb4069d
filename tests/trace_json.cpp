#include <chrono>
#include <cstddef>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <quern/matmul.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/trace_json.hpp>
#include <quern/trace_sinks.hpp>

#include "support/errors.hpp"
#include "support/json_schema.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using nlohmann::json;
using std::chrono::nanoseconds;
using Time = std::chrono::steady_clock::time_point;

// What viewers ask of a file in the JSON Object Format, and nothing beside it.
constexpr const char* schema_text = R"({
  "type": "object",
  "required": ["displayTimeUnit", "traceEvents"],
  "additionalProperties": false,
  "properties": {
    "displayTimeUnit": {"enum": ["ns", "ms"]},
    "otherData": {"type": "object", "additionalProperties": {"type": "string"}},
    "traceEvents": {"type": "array", "minItems": 1, "items": {"oneOf": [
      {
        "required": ["ph", "pid", "tid", "name", "args"],
        "additionalProperties": false,
        "properties": {
          "ph": {"enum": ["M"]}, "pid": {"enum": [1]}, "tid": {"type": "integer", "minimum": 0},
          "name": {"enum": ["process_name", "thread_name"]},
          "args": {"type": "object", "required": ["name"], "additionalProperties": false,
                   "properties": {"name": {"type": "string", "minLength": 1}}}
        }
      },
      {
        "required": ["ph", "pid", "tid", "name", "ts"],
        "additionalProperties": false,
        "properties": {
          "ph": {"enum": ["B", "E"]}, "pid": {"enum": [1]}, "tid": {"type": "integer", "minimum": 0},
          "name": {"type": "string"}, "ts": {"type": "number", "minimum": 0}
        }
      },
      {
        "required": ["ph", "pid", "tid", "name", "ts", "dur", "cat", "args"],
        "additionalProperties": false,
        "properties": {
          "ph": {"enum": ["X"]}, "pid": {"enum": [1]}, "tid": {"type": "integer", "minimum": 0},
          "name": {"type": "string", "minLength": 1}, "cat": {"enum": ["kernel"]},
          "ts": {"type": "number", "minimum": 0}, "dur": {"type": "number", "minimum": 0},
          "args": {"type": "object", "required": ["bytes_read", "bytes_written"],
                   "additionalProperties": false,
                   "properties": {"bytes_read": {"type": "integer", "minimum": 0},
                                  "bytes_written": {"type": "integer", "minimum": 0},
                                  "weight": {"type": "string", "minLength": 1}}}
        }
      },
      {
        "required": ["ph", "pid", "tid", "name", "ts", "s", "cat", "args"],
        "additionalProperties": false,
        "properties": {
          "ph": {"enum": ["i"]}, "pid": {"enum": [1]}, "tid": {"type": "integer", "minimum": 0},
          "name": {"type": "string", "minLength": 1}, "ts": {"type": "number", "minimum": 0},
          "s": {"enum": ["t"]}, "cat": {"enum": ["adapter", "memory", "plan"]},
          "args": {"type": "object", "required": ["bytes"], "additionalProperties": {
            "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}}
        }
      },
      {
        "required": ["ph", "pid", "tid", "name", "ts", "args"],
        "additionalProperties": false,
        "properties": {
          "ph": {"enum": ["C"]}, "pid": {"enum": [1]}, "tid": {"type": "integer", "minimum": 0},
          "name": {"type": "string", "minLength": 1}, "ts": {"type": "number", "minimum": 0},
          "args": {"type": "object", "required": ["bytes"], "additionalProperties": false,
                   "properties": {"bytes": {"type": "integer", "minimum": 0}}}
        }
      }
    ]}}
  }
})";

/// Parses strictly, with UTF-8 checked, and holds the document against the schema.
json open_trace(const std::string& text) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    ADD_FAILURE() << "no JSON:\n" << text;
    return document;
  }
  const auto fault = support::schema_fault(json::parse(schema_text), document);
  if (fault) ADD_FAILURE() << *fault;
  return document;
}

std::string json_of(std::span<const TimedEvent> events, std::size_t dropped = 0) {
  std::ostringstream out;
  write_trace_json(out, events, dropped);
  return out.str();
}

/// The events of one phase letter.
std::vector<json> with_ph(const json& document, const char* ph) {
  std::vector<json> found;
  for (const json& event : document["traceEvents"])
    if (event["ph"] == ph) found.push_back(event);
  return found;
}

std::map<std::string, unsigned> tracks(const json& document) {
  std::map<std::string, unsigned> ids;
  for (const json& event : with_ph(document, "M"))
    if (event["name"] == "thread_name") ids[event["args"]["name"]] = event["tid"];
  return ids;
}

TimedEvent timed(long nanosecond, Event event, std::uint32_t thread = 0) {
  return {Time{nanoseconds{1'000'000'000 + nanosecond}}, thread, event};
}

TEST(TraceJson, ARealRunOpens) {
  RingTrace ring;
  const auto bytes = support::counting_weight(4, 3);
  const PackedView<Q4_0, RowMajor> weight(bytes, OutIn{4, 96});
  {
    ModelScope model(ring);
    ForwardScope forward(4096, ring);
    const Phase phase(ring, "decode");
    const auto packed = prepack<InputBlockMajor>(weight, model, ring);
    for (int step = 0; step < 3; ++step) {
      const std::span<float> y(static_cast<float*>(forward.allocate(16, 4)), 4);
      const std::vector<float> x(96, 1.0f);
      matmul_weight_transposed(x, packed, y, {.trace = &ring});
      forward.reset();
    }
  }
  std::ostringstream out;
  write_trace_json(out, ring);
  const json document = open_trace(out.str());
  ASSERT_FALSE(testing::Test::HasFailure());

  EXPECT_EQ(with_ph(document, "B").size(), 1u);
  EXPECT_EQ(with_ph(document, "E").size(), 1u);
  const auto kernels = with_ph(document, "X");
  ASSERT_EQ(kernels.size(), 3u);
  for (const json& kernel : kernels) {
    EXPECT_GE(kernel["args"]["bytes_read"], 216u + 384u);
    EXPECT_EQ(kernel["args"]["bytes_written"], 16u);
  }
  std::map<std::string, int> instants;
  for (const json& event : with_ph(document, "i"))
    ++instants[event["name"]];
  EXPECT_EQ(instants, (std::map<std::string, int>{
                          {"allocation", 2}, {"free", 2}, {"prepack", 1}, {"reset", 3}}));
  // Every scope is dead, so every counter is back to zero.
  std::map<std::string, std::vector<std::uint64_t>> counters;
  for (const json& event : with_ph(document, "C"))
    counters[event["name"]].push_back(event["args"]["bytes"]);
  EXPECT_EQ(counters["live bytes, model"], (std::vector<std::uint64_t>{216, 0}));
  EXPECT_EQ(counters["live bytes, forward"], (std::vector<std::uint64_t>{4096, 0}));
  EXPECT_EQ(document["otherData"]["dropped"], "0");
}

TEST(TraceJson, ProcessThreadsAndScopesHaveNamedTracks) {
  const std::vector<TimedEvent> events{
      timed(0, PhaseBegin{"a"}, 0),
      timed(1, PhaseBegin{"b"}, 1),
      timed(2, Allocation{"model", 5}, 1),
      timed(3, ScopeReset{"forward", 5, 6}, 0),
      timed(4, AdapterInserted{"prepack", "r", "i", 1, 2, "owned", "w"}, 0),
      timed(5, PhaseEnd{"b"}, 1),
      timed(6, PhaseEnd{"a"}, 0),
  };
  std::ostringstream out;
  write_trace_json(out, events, 12, "my program");
  const json document = open_trace(out.str());
  ASSERT_FALSE(testing::Test::HasFailure());
  EXPECT_EQ(document["otherData"]["dropped"], "12");
  const auto names = with_ph(document, "M");
  EXPECT_EQ(names[0]["name"], "process_name");
  EXPECT_EQ(names[0]["args"]["name"], "my program");
  const auto ids = tracks(document);
  ASSERT_EQ(ids.size(), 5u);
  std::map<unsigned, std::string> by_id;
  for (const auto& [name, id] : ids)
    by_id[id] = name;
  EXPECT_EQ(by_id.size(), 5u) << "two tracks share an id";
  EXPECT_EQ(ids.at("thread 0"), 0u);
  EXPECT_EQ(ids.at("thread 1"), 1u);

  std::map<std::string, std::string> track_of;
  for (const json& event : document["traceEvents"])
    track_of[event["name"]] = by_id[event["tid"]];
  EXPECT_EQ(track_of["a"], "thread 0");
  EXPECT_EQ(track_of["b"], "thread 1");
  EXPECT_EQ(track_of["allocation"], "model scope");
  EXPECT_EQ(track_of["reset"], "forward scope");
  EXPECT_EQ(track_of["prepack"], "owned scope");
}

TEST(TraceJson, TimesAreMicrosecondsWithThreeDecimals) {
  const std::vector<TimedEvent> events{
      timed(0, PhaseBegin{"p"}),
      timed(1'500, KernelRun{"k", 10, 20, nanoseconds{1'500}, "blk.0.w"}),
      timed(2'003'007, PhaseEnd{"p"}),
      timed(12'345'678'901, PhaseBegin{"late"}),
  };
  const std::string text = json_of(events);
  EXPECT_TRUE(support::contains(text, "\"ts\":0.000,\"dur\":1.500"));
  EXPECT_TRUE(support::contains(text, "\"ts\":2003.007"));
  EXPECT_TRUE(support::contains(text, "\"ts\":12345678.901"));
  const json document = open_trace(text);
  const auto kernels = with_ph(document, "X");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0]["args"]["weight"], "blk.0.w");
}

TEST(TraceJson, AKernelStartsBeforeItsEvent) {
  // The first event is a kernel's: time zero is when that kernel started.
  const std::vector<TimedEvent> events{timed(9'000, KernelRun{"k", 1, 2, nanoseconds{7'001}}),
                                       timed(9'010, PhaseBegin{"p"})};
  const std::string text = json_of(events);
  EXPECT_TRUE(support::contains(text, "\"ts\":0.000,\"dur\":7.001"));
  EXPECT_TRUE(support::contains(text, "\"ts\":7.011"));
  open_trace(text);
}

TEST(TraceJson, ALostBeginOrEndLeavesPhasesBalanced) {
  const std::vector<TimedEvent> events{
      timed(0, PhaseEnd{"its begin was dropped"}),
      timed(1, PhaseBegin{"outer"}),
      timed(2, PhaseBegin{"inner"}),
      timed(3, PhaseEnd{"inner"}),
      timed(4, PhaseBegin{"not over yet"}),
      timed(9, KernelRun{"k", 1, 2, nanoseconds{1}}),
  };
  const json document = open_trace(json_of(events));
  int depth = 0;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == "B") ++depth;
    if (event["ph"] == "E") --depth;
    ASSERT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
  EXPECT_EQ(with_ph(document, "B").size(), 3u);
}

TEST(TraceJson, ACounterNeverFallsBelowZero) {
  const std::vector<TimedEvent> events{
      timed(0, Free{"model", 100}), timed(1, Allocation{"model", 30}), timed(2, Free{"model", 31})};
  const json document = open_trace(json_of(events));
  std::vector<std::uint64_t> live;
  for (const json& event : with_ph(document, "C"))
    live.push_back(event["args"]["bytes"]);
  EXPECT_EQ(live, (std::vector<std::uint64_t>{0, 30, 0}));
}

TEST(TraceJson, APlanIsAnInstant) {
  const json document =
      open_trace(json_of(std::vector{timed(0, ModelPlanned{7, 3, 100, 200, 300})}));
  const auto instants = with_ph(document, "i");
  ASSERT_EQ(instants.size(), 1u);
  const auto& args = instants[0]["args"];
  EXPECT_EQ(args["tensors"], 7u);
  EXPECT_EQ(args["conversions"], 3u);
  EXPECT_EQ(args["bytes_before"], 100u);
  EXPECT_EQ(args["bytes"], 200u);
  EXPECT_EQ(args["budget"], 300u);
}

TEST(TraceJson, TextsSurviveWhateverTheyHold) {
  const std::vector<std::pair<std::string, std::string>> texts{
      {"quote \" backslash \\ slash /", "quote \" backslash \\ slash /"},
      {"tab\t line\n return\r zero" + std::string(1, '\0') + "bell\a del\x7F",
       "tab\t line\n return\r zero" + std::string(1, '\0') + "bell\a del\x7F"},
      {"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80",
       "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80"},
      {"stray \xFF and \x80", "stray \xEF\xBF\xBD and \xEF\xBF\xBD"},
      {"cut \xE2\x82", "cut \xEF\xBF\xBD\xEF\xBF\xBD"},
      {"overlong \xC0\xAF", "overlong \xEF\xBF\xBD\xEF\xBF\xBD"},
      {"surrogate \xED\xA0\x80", "surrogate \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"too large \xF4\x90\x80\x80", "too large \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"", ""},
  };
  for (const auto& [text, expected] : texts) {
    const json document = open_trace(json_of(std::vector{timed(0, PhaseBegin{text})}));
    const auto begins = with_ph(document, "B");
    ASSERT_EQ(begins.size(), 1u);
    EXPECT_EQ(begins[0]["name"].get<std::string>(), expected);
  }
}

TEST(TraceJson, TheStreamsLocaleDoesNotMatter) {
  struct Grouping : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::vector<TimedEvent> events{timed(0, Allocation{"model", 123'456'789}),
                                       timed(7'654'321'000, Free{"model", 123'456'789})};
  std::ostringstream out;
  out.imbue(std::locale(out.getloc(), new Grouping));
  write_trace_json(out, events);
  open_trace(out.str());
  EXPECT_EQ(out.str(), json_of(events));
}

TEST(TraceJson, NoEventsAreATraceToo) {
  const json document = open_trace(json_of({}));
  EXPECT_EQ(document["traceEvents"].size(), 1u);
}

TEST(TraceJson, AFailedStreamIsAnError) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_TRUE(support::contains(
      support::error_of(ErrorCode::file_write,
                        [&] { write_trace_json(out, std::vector{timed(0, PhaseBegin{"p"})}); }),
      "write_trace_json"));
}

TEST(TraceJson, TheSchemaRefusesWhatViewersWould) {
  // Guards the checks above: a schema that takes anything would prove nothing.
  const auto accepts = [&](const std::string& event) {
    const json document =
        json::parse("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + event + "]}");
    return !support::schema_fault(json::parse(schema_text), document).has_value();
  };
  EXPECT_TRUE(accepts(R"({"ph":"B","pid":1,"tid":0,"name":"p","ts":0.5})"));
  EXPECT_FALSE(accepts(R"({"ph":"B","pid":1,"tid":0,"name":"p","ts":"0.5"})"));
  EXPECT_FALSE(accepts(R"({"ph":"B","pid":1,"tid":0,"name":"p","ts":-1})"));
  EXPECT_FALSE(accepts(R"({"ph":"B","pid":1,"tid":0,"name":"p"})"));
  EXPECT_FALSE(accepts(R"({"ph":"Q","pid":1,"tid":0,"name":"p","ts":0})"));
  EXPECT_FALSE(accepts(R"({"ph":"X","pid":1,"tid":0,"name":"p","ts":0})"));
  EXPECT_FALSE(accepts(""));
  EXPECT_FALSE(accepts(R"({"ph":"C","pid":1,"tid":0,"name":"p","ts":0,"args":{"bytes":-1}})"));
}

} // namespace
