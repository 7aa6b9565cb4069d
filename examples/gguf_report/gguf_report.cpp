// gguf_report [--json | --html] [model.gguf]
// What a GGUF file holds and what this machine makes of it: for each tensor its format, shape and
// bytes, the kernels that read it, what a relayout costs, how far the products are from double
// precision, and the first block that is damaged. As a table, as JSON, or as a page with a map of
// the file and of both block orders. Without a file it reports on a small model of its own.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <command.hpp>
#include <engine/convert.hpp>
#include <engine/linear.hpp>
#include <quern/gguf/file.hpp>
#include <quern/quern.hpp>

#include "report.hpp"

namespace {

using report::Report;
using report::Row;

const quern::KernelKey* best_kernel(const quern::KernelSet& kernels, std::string_view format,
                                    bool floats) {
  const auto found = std::ranges::find_if(kernels.keys(), [&](const quern::KernelKey& key) {
    return key.format == format && key.order == quern::RowMajor::name &&
           (key.activation == "float") == floats;
  });
  return found == kernels.keys().end() ? nullptr : &*found;
}

// Largest difference to products in double, relative to the largest of them. Of a large weight some
// rows are looked at, evenly spread.
double product_error(const engine::Linear& weight, std::span<const float> x, bool int8) {
  const std::size_t out = weight.shape().out;
  quern::ModelScope scope;
  engine::Activations activations({x, 1, x.size()}, int8, scope, quern::no_trace);
  std::vector<float> y(out);
  weight.run(activations, {y, 1, out});
  std::vector<float> row(x.size());
  double difference = 0;
  double largest = 0;
  for (std::size_t o = 0; o < out; o += (out + 255) / 256) {
    weight.row(o, row);
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i)
      sum += static_cast<double>(row[i]) * static_cast<double>(x[i]);
    const double here = std::abs(static_cast<double>(y[o]) - sum);
    if (!(here <= difference)) difference = here; // a NaN stays
    largest = std::max(largest, std::abs(sum));
  }
  return largest > 0 ? difference / largest : difference;
}

template <quern::BlockFormat F>
void look_at(quern::PackedView<F, quern::RowMajor> weight, Row& row) {
  row.blocks_per_row = weight.blocks_per_row();
  const auto validation = quern::validate(weight);
  if (!validation.ok()) row.fault = validation.message();
  if (F::block_size == 1 || weight.out() == 1) return;
  quern::ModelScope scope;
  const auto start = std::chrono::steady_clock::now();
  (void)quern::prepack<quern::InputBlockMajor>(weight, scope);
  row.relayout_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  row.relayout_bytes = scope.live_bytes();
}

Row examine(const quern::gguf::File& file, const quern::gguf::Tensor& tensor,
            const quern::KernelSet& kernels) {
  Row row;
  row.name = std::string(tensor.name);
  row.format = quern::gguf::type_name(tensor.type_id);
  row.extents = tensor.extents;
  row.bytes = tensor.bytes;
  row.offset = file.data_position() + tensor.offset;
  if (!tensor.is_matrix() || tensor.bytes == 0 || !quern::find_format(tensor.type_id)) return row;
  file.visit_weight(tensor.name, [&](auto weight) { look_at(weight, row); });
  if (tensor.extents[1] == 1) return row; // of a vector there is no product to look at
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(tensor.extents[0]));
  for (float& value : x)
    value = normal(generator);
  const engine::Linear weight(file, row.name, {});
  for (const bool floats : {true, false})
    if (const auto* const key = best_kernel(kernels, row.format, floats))
      row.kernels.push_back(
          {std::string(key->activation), std::string(key->isa), product_error(weight, x, !floats)});
  return row;
}

int run(std::vector<std::string> arguments) {
  enum class Form { table, json, html } form = Form::table;
  std::string path;
  for (const std::string& argument : arguments)
    if (argument == "--json")
      form = Form::json;
    else if (argument == "--html")
      form = Form::html;
    else if (!argument.starts_with("--") && path.empty())
      path = argument;
    else
      throw std::runtime_error("usage: gguf_report [--json | --html] [model.gguf]");
  if (path.empty()) {
    path = (std::filesystem::temp_directory_path() / "quern-report.gguf").string();
    const auto bytes = engine::random_model({});
    engine::convert(quern::gguf::File::from_bytes(bytes),
                    {quern::Q4_K::gguf_type, quern::Q6_K::gguf_type, quern::Q8_0::gguf_type,
                     quern::IQ4_XS::gguf_type, quern::F16::gguf_type},
                    path);
  }
  // In lenient mode, one tensor of an unknown type does not hide the others.
  quern::gguf::Options lenient;
  lenient.mode = quern::gguf::Mode::lenient;
  const auto file = quern::gguf::File::map(path, lenient);
  Report all{path, file.version(), file.alignment(), file.data_position(), file.size(), {}};
  const auto kernels = quern::KernelSet::of_this_cpu();
  for (const auto& tensor : file.tensors())
    all.rows.push_back(examine(file, tensor, kernels));
  if (form == Form::json)
    report::write_json(std::cout, all);
  else if (form == Form::html)
    report::write_page(std::cout, all);
  else
    report::write_table(std::cout, all);
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("the report could not be written");
  return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char** argv) {
  return run_command([&] { return run({argv + 1, argv + argc}); });
}
