// The table and the plot of docs/formats.md.
//
//   bench_formats                   prints the table, all of it measured
//   bench_formats --update <docs>   rewrites the table in <docs>/formats.md and
//                                   <docs>/images/error_bits.svg; measured figures of formats that
//                                   have a row already stay
//   bench_formats --measure <docs>  the same, all of it measured anew
//
// Figures are in GB/s of floats, on one thread: decoding 16 x 1024 values in cache, and quantizing
// them in both modes. The best of several runs counts.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>

#include "format_facts.hpp"
#include "format_plot.hpp"
#include "thread_clock.hpp"

namespace {

using namespace format_facts;

/// Seconds of the fastest of some calls, which take about `budget` seconds together.
template <class Call>
double fastest(double budget, Call&& call) {
  double best = 1e9, spent = 0;
  for (int run = 0; run < 3 || spent < budget; ++run) {
    const double start = thread_seconds();
    call();
    const double took = thread_seconds() - start;
    best = std::min(best, took);
    spent += took;
  }
  return best;
}

std::string rate(double seconds) {
  const double speed = static_cast<double>(rows * columns * sizeof(float)) / seconds / 1e9;
  return formatted(speed < 10 ? "%.2g" : "%.0f", speed);
}

template <class F>
Speeds measure(std::span<const float> matrix) {
  const quern::OutIn shape{rows, columns};
  const auto weight = quern::quantize<F>(matrix, shape);
  std::vector<float> decoded(matrix.size());
  // A call is too short for the clock, so it is repeated.
  constexpr int repeats = 50;
  const double decode_seconds = fastest(0.2, [&] {
    for (int i = 0; i < repeats; ++i)
      quern::decode(weight.view(),
                    quern::MatrixView<float>{std::span<float>(decoded), rows, columns});
  });
  const double quantize_seconds =
      fastest(0.2, [&] { static_cast<void>(quern::quantize<F>(matrix, shape)); });
  const double fast_seconds = fastest(0.2, [&] {
    static_cast<void>(quern::quantize<F>(matrix, shape, {.mode = quern::QuantizeMode::fast}));
  });
  return {rate(decode_seconds / repeats), rate(quantize_seconds), rate(fast_seconds)};
}

/// The table. Rows of `old` lend their measured figures to formats of the same name.
std::string make_table(std::span<const Facts> all, std::span<const std::vector<std::string>> old) {
  const auto matrix = normal_matrix();
  std::string table = heading_lines();
  std::size_t place = 0;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [&](auto tag) {
        const Facts& facts = all[place++];
        const auto known = std::ranges::find_if(old, [&](const auto& row) {
          return row.size() == headings.size() && row.front() == facts.name;
        });
        const Speeds speeds = known == old.end()
                                  ? measure<typename decltype(tag)::type>(matrix)
                                  : Speeds{(*known)[first_speed], (*known)[first_speed + 1],
                                           (*known)[first_speed + 2]};
        table += line_of(cells(facts, speeds));
      });
  return table;
}

int update(const std::filesystem::path& docs, bool measure_all) {
  const auto path = docs / "formats.md";
  std::ifstream in(path, std::ios::binary);
  std::string page{std::istreambuf_iterator<char>(in), {}};
  const auto place = find_table(page);
  if (!place) {
    std::cerr << path.string() << " has no table marked " << table_begin;
    return 1;
  }
  const auto all = all_facts();
  const auto old = measure_all ? std::vector<std::vector<std::string>>{} : rows_of(page);
  page.replace(place->first, place->second - place->first, make_table(all, old));
  std::ofstream(path, std::ios::binary) << page;
  std::ofstream(docs / "images" / "error_bits.svg", std::ios::binary) << plot(all);
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    std::cout << make_table(all_facts(), {});
    return 0;
  }
  if (arguments.size() == 2 && (arguments[0] == "--update" || arguments[0] == "--measure"))
    return update(arguments[1], arguments[0] == "--measure");
  std::cerr << "usage: bench_formats [--update <docs folder> | --measure <docs folder>]\n";
  return 2;
}
