// Reads a GGUF file, and for each packed matrix of it: relayouts the blocks, multiplies in both
// block orders, and compares both products with Eigen. Without a file it first writes a small model
// of its own. With --trace it also prints the effective bandwidth of each kernel, and writes what
// happened as a file for ui.perfetto.dev or chrome://tracing.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <quern/eigen/reference.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/quern.hpp>
#include <quern/trace_json.hpp>
#include <quern/trace_sinks.hpp>

#include "command.hpp"

namespace {

// Float sums of a few thousand products differ from double ones by less than this.
constexpr double tolerance = 1e-5;
constexpr std::size_t activation_rows = 2;

struct Result {
  std::string kernel;
  std::size_t blocks_per_row = 0;
  std::size_t bytes = 0;
  std::size_t relayout_bytes = 0;
  double relayout_seconds = 0;
  double row_major_error = 0;
  double block_major_error = 0;
};

// Counts the bytes that relayouts report.
class RelayoutBytes final : public quern::Trace {
public:
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
  void record(const quern::Event& event) override {
    if (const auto* adapter = std::get_if<quern::AdapterInserted>(&event)) bytes_ += adapter->bytes;
  }
  std::size_t bytes_ = 0;
};

std::vector<float> random_values(std::size_t count, float spread, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values)
    value = normal(generator);
  return values;
}

// The larger of two errors. A NaN is the largest: every plain comparison with it would be false.
double worse(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

// Largest difference, relative to the largest expected value.
double relative_error(const std::vector<float>& y, const quern::RowMajorMatrix<double>& expected) {
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double value = expected.data()[i];
    difference = worse(difference, std::abs(static_cast<double>(y[i]) - value));
    largest = std::max(largest, std::abs(value));
  }
  return largest > 0 ? difference / largest : difference;
}

template <quern::BlockFormat F>
Result examine(quern::PackedView<F, quern::RowMajor> weight, std::string_view name,
               quern::Trace& trace) {
  const quern::Phase phase(trace, name);
  const auto x = random_values(activation_rows * weight.in(), 1.0f, 1);
  const Eigen::Map<const quern::RowMajorMatrix<float>> activations(
      x.data(), static_cast<Eigen::Index>(activation_rows), static_cast<Eigen::Index>(weight.in()));
  const auto expected = quern::reference::matmul_weight_transposed<double>(activations, weight);

  Result result;
  result.kernel = quern::to_string(quern::best_kernel_key<F, quern::RowMajor>());
  result.blocks_per_row = weight.blocks_per_row();
  result.bytes = weight.bytes();

  RelayoutBytes relayout_bytes;
  quern::CompositeTrace both{&relayout_bytes, &trace};
  quern::ModelScope scope(trace);
  // The first run also takes fresh pages from the system; the second shows the copy itself.
  (void)quern::prepack<quern::InputBlockMajor>(weight, scope);
  const auto start = std::chrono::steady_clock::now();
  const auto packed = quern::prepack<quern::InputBlockMajor>(weight, scope, both);
  result.relayout_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.relayout_bytes = relayout_bytes.bytes();

  std::vector<float> y(activation_rows * weight.out());
  const quern::MatmulOptions options{.trace = &trace, .weight = name};
  quern::matmul_weight_transposed(x, weight, y, options);
  result.row_major_error = relative_error(y, expected);
  std::fill(y.begin(), y.end(), 0.0f);
  quern::matmul_weight_transposed(x, packed, y, options);
  result.block_major_error = relative_error(y, expected);
  return result;
}

std::string write_small_model() {
  const auto path = std::filesystem::temp_directory_path() / "quern-small-model.gguf";
  quern::gguf::Writer writer;
  writer.add("general.architecture", "none");
  writer.add("general.name", "a small model to look at block orders");
  // The writer borrows what it is given, so the weights stay until the file is written.
  std::vector<std::shared_ptr<const void>> weights;
  unsigned seed = 7;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [&](auto tag) {
        using F = typename decltype(tag)::type;
        if constexpr (F::block_size > 1) {
          // Five blocks per row and 96 rows: a grid that is neither square nor a power of two.
          const quern::OutIn shape{std::size_t{96}, std::max<std::size_t>(5 * F::block_size, 640)};
          const auto values = random_values(shape.out * shape.in, 0.02f, seed++);
          const auto weight = std::make_shared<const quern::PackedWeight<F, quern::RowMajor>>(
              quern::quantize<F>(values, shape));
          writer.add_weight("layer." + std::string(F::name) + ".weight", weight->view());
          weights.push_back(weight);
        }
      });
  writer.write(path);
  return path.string();
}

void print_kernels(const quern::CountingTrace& counts) {
  std::printf("\n%-52s %6s %14s %14s %10s\n", "kernel", "runs", "bytes read", "bytes written",
              "GB/s");
  for (const auto& [kernel, sum] : counts.kernels())
    std::printf("%-52s %6zu %14zu %14zu %10.2f\n", kernel.c_str(), sum.runs, sum.bytes_read,
                sum.bytes_written, sum.bytes_per_second() / 1e9);
}

int run(const std::string& path, quern::Trace& trace) {
  const auto file = quern::gguf::File::map(path);
  std::size_t name_width = 4;
  for (const auto& tensor : file.tensors())
    name_width = std::max(name_width, tensor.name.size());
  const int width = static_cast<int>(name_width);
  std::printf("%-*s  %-8s %15s %10s %12s %14s %8s %11s %11s  %s\n", width, "name", "format",
              "[out, in]", "blocks/row", "bytes", "relayout bytes", "GB/s", "err RowMajor",
              "err IBM", "kernel");

  std::size_t matrices = 0;
  std::size_t dense = 0;
  std::size_t other = 0;
  double worst = 0;
  for (const auto& tensor : file.tensors()) {
    if (!tensor.is_matrix()) {
      ++other;
      continue;
    }
    const bool known = quern::with_format(tensor.type_id, [&](auto tag) {
      using F = typename decltype(tag)::type;
      if constexpr (F::block_size == 1) {
        ++dense;
      } else {
        const auto weight = file.weight<F>(tensor.name);
        const Result r = examine(weight, tensor.name, trace);
        ++matrices;
        worst = worse(worst, worse(r.row_major_error, r.block_major_error));
        std::printf(
            "%-*s  %-8s %15s %10zu %12zu %14zu %8.2f %12.2e %11.2e  %s\n", width,
            std::string(tensor.name).c_str(), std::string(F::name).c_str(),
            quern::to_string(weight.shape()).c_str(), r.blocks_per_row, r.bytes, r.relayout_bytes,
            static_cast<double>(r.relayout_bytes) / std::max(r.relayout_seconds, 1e-9) / 1e9,
            r.row_major_error, r.block_major_error, r.kernel.c_str());
        std::fflush(stdout);
      }
    });
    if (!known) ++other;
  }

  if (matrices == 0) {
    std::fprintf(stderr,
                 "nothing to check: %s holds no packed matrix (%zu dense, %zu other tensors)\n",
                 path.c_str(), dense, other);
    return EXIT_FAILURE;
  }
  const bool good = worst < tolerance;
  std::printf("%s: %zu packed matrices, both block orders agree with Eigen within %.2e (limit "
              "%.0e); %zu dense and %zu other tensors passed over\n",
              good ? "PASS" : "FAIL", matrices, worst, tolerance, dense, other);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

// As run(), with all events kept.
int run_traced(const std::string& path, const std::string& trace_path) {
  std::ofstream out(trace_path, std::ios::binary); // before the work, since it may fail
  if (!out) throw std::runtime_error("can't open " + trace_path + " to write the trace to");
  quern::RingTrace ring;
  quern::CountingTrace counts;
  quern::CompositeTrace trace{&ring, &counts};
  const int status = run(path, trace);
  print_kernels(counts);
  quern::write_trace_json(out, ring, "relayout");
  std::printf("%zu events in %s, %zu dropped\n", ring.size(), trace_path.c_str(), ring.dropped());
  return status;
}

int main_with(std::span<char* const> arguments) {
  std::string path;
  std::string trace_path;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--trace" && i + 1 < arguments.size() && trace_path.empty())
      trace_path = arguments[++i];
    else if (!argument.starts_with("--") && path.empty())
      path = argument;
    else {
      std::fprintf(stderr, "usage: %s [--trace out.json] [model.gguf]\n", arguments[0]);
      return EXIT_FAILURE;
    }
  }
  if (path.empty()) path = write_small_model();
  return trace_path.empty() ? run(path, quern::no_trace) : run_traced(path, trace_path);
}

} // namespace

int main(int argc, char** argv) {
  return run_command([&] { return main_with({argv, static_cast<std::size_t>(argc)}); });
}
