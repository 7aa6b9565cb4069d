#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <Eigen/Core>

#include <quern/eigen/reference.hpp>
#include <quern/formats.hpp>
#include <quern/matmul.hpp>
#include <quern/quantize_activations.hpp>

#include "inputs.hpp"
#include "machine_limits.hpp"
#include "thread_clock.hpp"

/// @file
/// What the benchmarks of products share.

/// What weights of one row of activations are drawn from: more than any cache holds.
inline constexpr std::size_t rotated_bytes = std::size_t{520} << 20;

/// Weights of one format, one behind the other; kept until another format or size is asked for.
template <class F>
std::span<const std::byte> pool(std::size_t weight_bytes, std::size_t count) {
  static std::vector<std::byte> bytes;
  static std::string_view format;
  const std::size_t size = weight_bytes * count;
  if (format != F::name || bytes.size() < size) {
    const auto some = blocks<F>(weight_bytes / F::bytes_per_block);
    bytes = {};
    bytes.resize(size);
    for (std::size_t at = 0; at < size; at += some.size())
      std::memcpy(bytes.data() + at, some.data(), std::min(some.size(), size - at));
    format = F::name;
  }
  return {bytes.data(), size};
}

/// Seconds that `call` takes.
[[nodiscard]] double timed(auto&& call) {
  const double start = thread_seconds();
  call();
  benchmark::ClobberMemory();
  return thread_seconds() - start;
}

using DenseMatrix = quern::RowMajorMatrix<float>;

/// y = x * w^T by Eigen.
inline void eigen_product(std::span<const float> x, const DenseMatrix& w, std::span<float> y) {
  const auto rows = static_cast<Eigen::Index>(x.size()) / w.cols();
  const Eigen::Map<const DenseMatrix> from(x.data(), rows, w.cols());
  Eigen::Map<DenseMatrix> to(y.data(), rows, w.rows());
  if (rows == 1)
    to.row(0).transpose().noalias() = w * from.row(0).transpose();
  else
    to.noalias() = from * w.transpose();
}

/// Products with int8 activations; quantizing them counts.
struct Int8Product {
  static constexpr const char* name = "int8";
  static double peak() { return byte_peak(); }
  template <class F, class O>
  static void run(quern::MatrixView<const float> x, quern::PackedView<F, O> w,
                  quern::MatrixView<float> y, std::vector<std::byte>& room) {
    using quern::int8_width;
    room.resize(quern::Int8Blocks<int8_width<F>>::bytes_for(x.rows(), x.cols()) + 64);
    void* start = room.data();
    std::size_t space = room.size();
    std::align(64, space - 64, start, space);
    const auto codes = quern::quantize_activations<int8_width<F>>(
        x, std::span<std::byte>(static_cast<std::byte*>(start), space));
    quern::matmul_weight_transposed(codes, w, y);
  }
};

/// Products with float activations.
struct FloatProduct {
  static constexpr const char* name = "float";
  static double peak() { return float_peak(); }
  template <class F, class O>
  static void run(quern::MatrixView<const float> x, quern::PackedView<F, O> w,
                  quern::MatrixView<float> y, std::vector<std::byte>&) {
    quern::matmul_weight_transposed(x, w, y);
  }
};

/// The model of the processor, where the system tells.
[[nodiscard]] inline std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

/// Tells the report what it was measured with.
inline void add_context() {
  benchmark::AddCustomContext("processor", processor());
  benchmark::AddCustomContext("compiler", QUERN_COMPILER);
  benchmark::AddCustomContext("commit", QUERN_COMMIT);
}

/// Registers `run(state, shape, rows of x)` for each shape and number of rows that products are
/// measured with, as <name>/<out>x<in>/M:<rows>.
template <class Run>
void add_products(const std::string& name, Run run) {
  using quern::OutIn;
  for (const OutIn shape : {OutIn{4096, 4096}, OutIn{11008, 4096}, OutIn{4096, 11008}})
    for (const std::size_t rows : {1u, 8u, 32u, 128u, 512u}) {
      std::string whole = name;
      for (const std::string& part :
           {std::to_string(shape.out.value()) + "x" + std::to_string(shape.in.value()),
            "M:" + std::to_string(rows)})
        whole.append("/").append(part);
      benchmark::RegisterBenchmark(whole.c_str(), run, shape, rows)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
}
