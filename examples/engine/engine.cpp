// engine [option...] [model.gguf] [prompt]
// Continues a text with a llama model, see usage below. Without a model it writes a small random
// one: its text means nothing, but every step runs as on a real one.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>

#include <quern/trace_json.hpp>
#include <quern/trace_sinks.hpp>

#include "../command.hpp"
#include "convert.hpp"
#include "model.hpp"
#include "tokenizer.hpp"
#ifdef _OPENMP
#include <quern/executor_openmp.hpp>
#endif

namespace {

constexpr const char* usage =
    "usage: engine [--tokens N] [--temperature T] [--seed S] [--float] [--trace out.json]\n"
    "              [model.gguf] [prompt]\n"
    "       engine --write model.gguf [--from other.gguf] [--formats Q4_K,Q6_K] [--tokenizer "
    "gpt2]\n";

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

std::vector<std::uint32_t> format_ids(const std::string& names) {
  std::vector<std::uint32_t> ids;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto type = std::ranges::find(quern::gguf::types, name, &quern::gguf::Type::name);
    if (type == quern::gguf::types.end() || !quern::find_format(type->id))
      throw std::runtime_error("there is no format '" + name + "'");
    ids.push_back(type->id);
  }
  return ids;
}

// The likeliest token at temperature 0; else one drawn by its likelihood.
engine::Token choose(std::span<const float> logits, double temperature, std::mt19937& random) {
  const auto best = std::ranges::max_element(logits);
  if (temperature <= 0) return static_cast<engine::Token>(best - logits.begin());
  std::vector<double> weights;
  for (const float logit : logits)
    weights.push_back(std::exp(static_cast<double>(logit - *best) / temperature));
  std::discrete_distribution<engine::Token> draw(weights.begin(), weights.end());
  return draw(random);
}

void progress(std::size_t done, std::size_t total, double seconds) {
  const std::size_t filled = 30 * done / total;
  std::fprintf(stderr, "\rprompt [%s%s] %zu/%zu tokens, %.1f tokens/s%s",
               std::string(filled, '#').c_str(), std::string(30 - filled, ' ').c_str(), done, total,
               static_cast<double>(done) / seconds, done == total ? "\n" : "");
}

void generate(const quern::gguf::File& file, const std::string& prompt, std::size_t count,
              double temperature, unsigned seed, const engine::Settings& settings) {
  const engine::Tokenizer tokenizer(file);
  const engine::Model model(file, settings);
  const auto tokens = tokenizer.encode(prompt);
  if (tokens.empty()) throw std::runtime_error("the prompt is empty");
  constexpr std::size_t batch = 64;
  engine::Session session(model, tokens.size() + count, batch);
  std::printf("%s", prompt.c_str());
  std::fflush(stdout);

  std::span<const float> logits;
  auto start = Clock::now();
  {
    const quern::Phase phase(*settings.trace, "prompt");
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t now = std::min(batch, tokens.size() - done);
      logits = session.decode(std::span(tokens).subspan(done, now));
      progress(done += now, tokens.size(), seconds_since(start));
    }
  }
  std::mt19937 random(seed);
  std::size_t made = 0;
  start = Clock::now();
  {
    const quern::Phase phase(*settings.trace, "decode");
    for (; made < count; ++made) {
      const engine::Token token = choose(logits, temperature, random);
      if (tokenizer.ends_text(token)) break;
      std::printf("%s", tokenizer.decode(token).c_str());
      std::fflush(stdout);
      logits = session.decode({&token, 1});
    }
  }
  std::fprintf(stderr, "\n%zu tokens, %.1f tokens/s; %zu bytes of memory a step\n", made,
               static_cast<double>(made) / seconds_since(start), session.step_peak_bytes());
}

int run(std::vector<std::string> arguments) {
  std::map<std::string, std::string> options{
      {"--tokens", "64"}, {"--temperature", "0"}, {"--seed", "1"},   {"--trace", ""},
      {"--write", ""},    {"--from", ""},         {"--formats", ""}, {"--tokenizer", "llama"}};
  std::vector<std::string> rest;
  engine::Settings settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto option = options.find(arguments[i]);
    if (arguments[i] == "--float")
      settings.int8 = false;
    else if (option != options.end() && i + 1 < arguments.size())
      option->second = arguments[++i];
    else if (!arguments[i].starts_with("--") && rest.size() < 2)
      rest.push_back(arguments[i]);
    else
      throw std::runtime_error(usage);
  }
  engine::RandomModel random;
  random.tokenizer = options["--tokenizer"];
  const auto formats = format_ids(options["--formats"]);
  const auto write = [&](const std::string& path, const std::vector<std::uint32_t>& mix) {
    if (!options["--from"].empty())
      return engine::convert(quern::gguf::File::map(options["--from"]), mix, path);
    const auto bytes = engine::random_model(random);
    engine::convert(quern::gguf::File::from_bytes(bytes), mix, path);
  };
  if (!options["--write"].empty()) return write(options["--write"], formats), EXIT_SUCCESS;
  if (rest.empty()) {
    rest = {(std::filesystem::temp_directory_path() / "quern-engine.gguf").string()};
    write(rest[0], format_ids("Q4_K,Q6_K,Q8_0,IQ4_XS,F16"));
  }

  // Opened first, since that may fail.
  std::ofstream trace_file;
  const std::string& trace_path = options["--trace"];
  if (!trace_path.empty()) {
    trace_file.open(trace_path, std::ios::binary);
    if (!trace_file)
      throw std::runtime_error("can't open " + trace_path + " to write the trace to");
  }
  quern::RingTrace ring(trace_path.empty() ? 1 : quern::RingTrace::default_capacity);
  if (!trace_path.empty()) settings.trace = &ring;
#ifdef _OPENMP
  quern::OpenMpExecutor threads;
  settings.executor = threads;
#endif
  const auto file = quern::gguf::File::map(rest[0]);
  generate(file, rest.size() > 1 ? rest[1] : "Grain is ground between two stones, and the ",
           std::stoul(options["--tokens"]), std::stod(options["--temperature"]),
           static_cast<unsigned>(std::stoul(options["--seed"])), settings);
  if (trace_path.empty()) return EXIT_SUCCESS;
  quern::write_trace_json(trace_file, ring, "engine");
  std::fprintf(stderr, "%zu events in %s, %zu dropped\n", ring.size(), trace_path.c_str(),
               ring.dropped());
  return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char** argv) {
  return run_command([&] { return run({argv + 1, argv + argc}); });
}
