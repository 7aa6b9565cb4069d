#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include <quern/formats/q4_k.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/load.hpp>
#include <quern/plan_model.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/weight_form.hpp>

#include "inputs.hpp"

/// @file
/// What it costs to load a model in kernel order, next to reading the same file into memory as it
/// is, which nothing that ends in memory can beat. Both run in turn in every iteration. Counters,
/// of the bytes of the file per second of wall-clock time:
///
///   GB/s         opening, planning and loading, median over the iterations
///   read_GB/s    read() into new memory of a ModelScope, the same
///   of_read      quotient of these medians: 1 is as fast as read(), more is faster
///   of_read_cpu  the same of processor time, of all threads: what else runs on the machine then
///                counts only for the caches and the bandwidth that it takes
///
///   cached/N/K   the file is in the page cache; N threads, pieces of K KiB
///   disk/N/K     the system was told to forget it

namespace {

using quern::InputBlockMajor;
using quern::OutIn;
using quern::Q4_K;
using quern::RowMajor;

constexpr OutIn shape{std::size_t{16384}, std::size_t{8192}};
constexpr std::size_t tensor_bytes = 16384 / 256 * 8192 * Q4_K::bytes_per_block;
constexpr std::size_t tensors = 4;
constexpr std::size_t model_bytes = tensors * tensor_bytes;

/// The file, for as long as the program runs.
class ModelFile {
public:
  ModelFile() : path_(std::filesystem::temp_directory_path() / "quern-bench-load.gguf") {
    std::vector<std::byte> blocks(tensor_bytes);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      blocks[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    const quern::PackedView<Q4_K, RowMajor> weight{blocks, shape};
    quern::gguf::Writer writer;
    for (std::size_t i = 0; i < tensors; ++i)
      writer.add_weight(std::string("w").append(std::to_string(i)), weight);
    writer.write(path_);
  }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Asks the system to drop the file from its cache.
  void forget() const {
#if defined(POSIX_FADV_DONTNEED)
    const int file = ::open(path_.c_str(), O_RDONLY);
    if (file < 0) throw std::runtime_error("can't open the file");
    (void)::fsync(file);
    (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    (void)::close(file);
#endif
  }

private:
  std::filesystem::path path_;
};

const ModelFile& model() {
  static const ModelFile file;
  return file;
}

/// Threads that are made for each call.
struct Threads {
  std::size_t count;
  [[nodiscard]] std::size_t concurrency() const { return count; }
  template <class F>
  void parallel_for(std::size_t pieces, F&& f) const {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < pieces; i = next++)
        f(i);
    };
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < count; ++t)
      others.emplace_back(work);
    work();
    for (std::thread& thread : others)
      thread.join();
  }
};

void read_whole(const std::filesystem::path& path) {
  quern::ModelScope scope;
  auto* to = static_cast<std::byte*>(scope.allocate(model_bytes, quern::detail::cache_line));
  const int file = ::open(path.c_str(), O_RDONLY);
  if (file < 0) throw std::runtime_error("can't open the file");
  std::size_t done = 0;
  while (done < model_bytes) {
    const auto count = ::read(file, to + done, std::min(model_bytes - done, std::size_t{1} << 20));
    if (count <= 0) throw std::runtime_error("can't read the file");
    done += static_cast<std::size_t>(count);
  }
  (void)::close(file);
}

void load_in_kernel_order(const std::filesystem::path& path, std::size_t threads,
                          std::size_t piece_bytes) {
  const Threads executor{threads};
  quern::LoadOptions options;
  options.executor = executor;
  options.piece_bytes = piece_bytes;
  quern::FormPolicy policy;
  policy.form = quern::WeightForm{{}, quern::WeightOrder::input_block_major};
  const auto file = quern::gguf::File::map(path);
  const auto plan = quern::plan_model(file, std::numeric_limits<std::size_t>::max(), policy);
  quern::ModelScope scope;
  benchmark::DoNotOptimize(quern::load_model(plan, scope, quern::no_trace, options));
}

/// Processor time of all threads so far.
double cpu_seconds() {
  std::timespec time{};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The times that one side took.
struct Times {
  std::vector<double> wall;
  std::vector<double> cpu;

  template <class Call>
  void add(Call&& call) {
    const double cpu_start = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    call();
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    cpu.push_back(cpu_seconds() - cpu_start);
  }
};

void load(benchmark::State& state, bool from_disk) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const std::size_t piece_bytes = static_cast<std::size_t>(state.range(1)) << 10;
  const auto& path = model().path();
  Times reads;
  Times loads;
  read_whole(path);
  for (auto _ : state) {
    if (from_disk) model().forget();
    reads.add([&] { read_whole(path); });
    if (from_disk) model().forget();
    loads.add([&] { load_in_kernel_order(path, threads, piece_bytes); });
    state.SetIterationTime(loads.wall.back());
  }
  state.counters["GB/s"] = static_cast<double>(model_bytes) / median(loads.wall) / 1e9;
  state.counters["read_GB/s"] = static_cast<double>(model_bytes) / median(reads.wall) / 1e9;
  state.counters["of_read"] = median(reads.wall) / median(loads.wall);
  state.counters["of_read_cpu"] = median(reads.cpu) / median(loads.cpu);
}

BENCHMARK_CAPTURE(load, cached, false)
    ->ArgsProduct({{1, 2}, {64, 256, 1024}})
    ->Iterations(9)
    ->UseManualTime();
BENCHMARK_CAPTURE(load, disk, true)
    ->ArgsProduct({{1, 2}, {256, 1024}})
    ->Iterations(5)
    ->UseManualTime();

} // namespace

BENCHMARK_MAIN();
