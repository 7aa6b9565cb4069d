#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>

#include <quern/decode.hpp>
#include <quern/formats.hpp>
#include <quern/isas.hpp>
#include <quern/kernels.hpp>
#include <quern/quantize.hpp>

/// @file
/// The table of docs/formats.md, from the list of formats. bench_formats writes it, and a test
/// compares what is written with what these functions give.

namespace format_facts {

/// What can be said of a format without a clock.
struct Facts {
  std::string name;
  std::uint32_t id = 0;
  std::size_t block = 0; ///< values
  std::size_t bytes = 0;
  double bits = 0;
  double error = 0;           ///< root of squared error over squares, of normal_matrix()
  std::string decode_kernels; ///< instruction sets, best first
  std::string float_kernels;
  std::string int8_kernels;
};

inline constexpr std::size_t rows = 16;
inline constexpr std::size_t columns = 1024;

/// The same normally distributed numbers everywhere, with standard deviation 1.
[[nodiscard]] inline std::vector<float> normal_matrix() {
  std::uint64_t state = 1;
  const auto uniform = [&] { // in (0, 1)
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 33) + 0.5) * 0x1p-31;
  };
  std::vector<float> values(rows * columns);
  for (float& value : values) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    value = static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform()));
  }
  return values;
}

/// `text` as printf forms it.
template <class... Values>
[[nodiscard]] std::string formatted(const char* text, Values... values) {
  std::string result(static_cast<std::size_t>(std::snprintf(nullptr, 0, text, values...)), ' ');
  std::snprintf(result.data(), result.size() + 1, text, values...);
  return result;
}

/// The instruction sets I for which `has(std::type_identity<I>{})`, best first.
template <class Has>
[[nodiscard]] std::string instruction_sets(Has&& has) {
  std::string names;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
      [&](auto tag) {
        if (has(tag)) names += (names.empty() ? "" : ", ") + std::string(decltype(tag)::type::name);
      });
  return names.empty() ? "none" : names;
}

/// True when both orders have the kernel.
template <class Activation, class F, class I>
inline constexpr bool in_both_orders = quern::has_kernel<Activation, F, quern::RowMajor, I>&&
    quern::has_kernel<Activation, F, quern::InputBlockMajor, I>;

template <class F>
[[nodiscard]] double relative_error(std::span<const float> values,
                                    const quern::PackedWeight<F, quern::RowMajor>& weight) {
  std::vector<float> decoded(values.size());
  quern::decode(weight.view(), quern::MatrixView<float>{std::span<float>(decoded), rows, columns});
  double error = 0, size = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(decoded[i]) - static_cast<double>(values[i]), 2);
    size += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(error / size);
}

template <class F>
[[nodiscard]] Facts facts_of(std::span<const float> matrix) {
  using quern::InputBlockMajor;
  using quern::RowMajor;
  Facts facts;
  facts.name = F::name;
  facts.id = F::gguf_type;
  facts.block = F::block_size;
  facts.bytes = F::bytes_per_block;
  facts.bits = F::bits_per_weight;
  facts.error = relative_error<F>(matrix, quern::quantize<F>(matrix, quern::OutIn{rows, columns}));
  facts.decode_kernels = instruction_sets([](auto tag) {
    using I = typename decltype(tag)::type;
    return quern::has_decode_kernel<F, RowMajor, I> &&
           quern::has_decode_kernel<F, InputBlockMajor, I>;
  });
  facts.float_kernels = instruction_sets(
      [](auto tag) { return in_both_orders<float, F, typename decltype(tag)::type>; });
  facts.int8_kernels = instruction_sets([](auto tag) {
    using I = typename decltype(tag)::type;
    return in_both_orders<quern::Int8Blocks<32>, F, I> ||
           in_both_orders<quern::Int8Blocks<256>, F, I>;
  });
  return facts;
}

/// All formats in the order of the list, which is that of their ids.
[[nodiscard]] inline std::vector<Facts> all_facts() {
  const auto matrix = normal_matrix();
  std::vector<Facts> all;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [&](auto tag) { all.push_back(facts_of<typename decltype(tag)::type>(matrix)); });
  return all;
}

/// Figures of a clock, in GB/s of floats. Empty: not measured.
struct Speeds {
  std::string decode;
  std::string quantize;
  std::string fast; ///< quantizing with QuantizeMode::fast
};

inline constexpr std::string_view table_begin = "<!-- table by bench_formats -->\n";
inline constexpr std::string_view table_end = "<!-- end of table -->\n";
inline constexpr std::array<std::string_view, 12> headings = {"format",
                                                              "GGUF id",
                                                              "block",
                                                              "bytes",
                                                              "bits per weight",
                                                              "error",
                                                              "decode GB/s",
                                                              "quantize GB/s",
                                                              "fast",
                                                              "decode with",
                                                              "float product with",
                                                              "int8 product with"};
/// Where the columns of measured figures begin and end.
inline constexpr std::size_t first_speed = 6;
inline constexpr std::size_t end_of_speeds = 9;

/// One row of the table; the measured cells as given.
[[nodiscard]] inline std::vector<std::string> cells(const Facts& facts, const Speeds& speeds) {
  return {facts.name,
          std::to_string(facts.id),
          std::to_string(facts.block),
          std::to_string(facts.bytes),
          formatted("%.6g", facts.bits),
          formatted("%.3g", facts.error),
          speeds.decode,
          speeds.quantize,
          speeds.fast,
          facts.decode_kernels,
          facts.float_kernels,
          facts.int8_kernels};
}

[[nodiscard]] inline std::string line_of(std::span<const std::string> row) {
  std::string line = "|";
  for (const std::string& cell : row)
    line += " " + cell + " |";
  return line + "\n";
}

/// The cells of a line of a table; nothing when it is none.
[[nodiscard]] inline std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> row;
  while (line.size() > 2 && line.front() == '|') {
    const std::size_t end = line.find('|', 1);
    if (end == std::string_view::npos) break;
    std::string_view cell = line.substr(1, end - 1);
    while (!cell.empty() && cell.front() == ' ')
      cell.remove_prefix(1);
    while (!cell.empty() && cell.back() == ' ')
      cell.remove_suffix(1);
    row.emplace_back(cell);
    line.remove_prefix(end);
  }
  return row;
}

/// Where the table lies in a page, without its marks; nothing when a mark is missing.
[[nodiscard]] inline std::optional<std::pair<std::size_t, std::size_t>>
find_table(std::string_view page) {
  const std::size_t begin = page.find(table_begin);
  const std::size_t end = page.find(table_end);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return std::pair{begin + table_begin.size(), end};
}

/// The rows of the page's table, without headings.
[[nodiscard]] inline std::vector<std::vector<std::string>> rows_of(std::string_view page) {
  std::vector<std::vector<std::string>> table;
  const auto place = find_table(page);
  if (!place) return table;
  std::istringstream lines(std::string(page.substr(place->first, place->second - place->first)));
  std::string line;
  for (std::size_t number = 0; std::getline(lines, line); ++number)
    if (number >= 2) table.push_back(cells_of(line));
  return table;
}

[[nodiscard]] inline std::string heading_lines() {
  const std::vector<std::string> names(headings.begin(), headings.end());
  std::string text = line_of(names) + "|";
  for (std::size_t i = 0; i < headings.size(); ++i)
    text += i == 0 || i >= end_of_speeds ? "---|" : "---:|";
  return text + "\n";
}

} // namespace format_facts
