// A report on a GGUF file, and the three forms it is written in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace report {

struct Kernel {
  std::string activation, isa;
  double error = 0; // of a product, relative to the largest
};

struct Row {
  std::string name, format, fault;
  std::array<std::uint64_t, 4> extents{};
  std::uint64_t bytes = 0, offset = 0; // the offset from the start of the file
  std::size_t blocks_per_row = 0, relayout_bytes = 0;
  double relayout_seconds = 0;
  std::vector<Kernel> kernels;
};

struct Report {
  std::string path;
  std::uint32_t version, alignment;
  std::uint64_t data_position, size;
  std::vector<Row> rows;
};

void write_table(std::ostream& out, const Report& report);
void write_json(std::ostream& out, const Report& report);
// A page that needs nothing else: map of the file, block orders, table. When it has been laid out
// it looks at itself, and says in <body data-checked> what it found.
void write_page(std::ostream& out, const Report& report);

} // namespace report
