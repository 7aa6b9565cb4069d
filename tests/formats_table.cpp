// docs/formats.md and its plot say what the list of formats says.

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/detail/target.hpp>

#include "../benchmarks/format_facts.hpp"
#include "../benchmarks/format_plot.hpp"

namespace {

using namespace format_facts;

constexpr const char* fix = "run `bench_formats --update docs` in the project's folder";

const std::filesystem::path& docs() {
  static const auto folder =
      std::filesystem::absolute(__FILE__).parent_path().parent_path() / "docs";
  return folder;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::vector<Facts>& facts() {
  static const auto all = all_facts();
  return all;
}

TEST(FormatsTable, HasARowForEachFormatWithItsFacts) {
  const std::string page = read(docs() / "formats.md");
  const auto place = find_table(page);
  ASSERT_TRUE(place) << "the marks around the table are gone; " << fix;
  EXPECT_EQ(page.compare(place->first, heading_lines().size(), heading_lines()), 0) << fix;
  const auto table = rows_of(page);
  ASSERT_EQ(table.size(), facts().size()) << fix;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto& row = table[i];
    const auto right = cells(facts()[i], {});
    ASSERT_EQ(row.size(), headings.size()) << right[0] << "; " << fix;
    for (std::size_t column = 0; column < row.size(); ++column) {
      if (column >= first_speed && column < end_of_speeds) {
        char* end = nullptr;
        const double speed = std::strtod(row[column].c_str(), &end);
        EXPECT_TRUE(end != row[column].c_str() && *end == '\0' && speed > 0.0)
            << right[0] << " has no " << headings[column] << "; " << fix;
        continue;
      }
#if !defined(QUERN_X86_KERNELS)
      if (column >= end_of_speeds) continue; // the page tells of x86 builds
#endif
      EXPECT_EQ(row[column], right[column]) << right[0] << ", " << headings[column] << "; " << fix;
    }
  }
}

TEST(FormatsTable, PlotShowsTheSameNumbers) {
  const std::string svg = read(docs() / "images" / "error_bits.svg");
  EXPECT_EQ(svg, plot(facts())) << fix;
  for (const Facts& f : facts())
    EXPECT_NE(svg.find(">" + f.name + (f.error == 0 ? ": exact<" : "<")), std::string::npos)
        << f.name;
}

// The facts themselves, where they can be said otherwise.
TEST(FormatsTable, FactsAreThoseOfTheFormats) {
  for (const Facts& f : facts()) {
    EXPECT_EQ(f.bits * static_cast<double>(f.block), 8.0 * static_cast<double>(f.bytes)) << f.name;
    EXPECT_TRUE(f.decode_kernels.ends_with("Scalar")) << f.name;
    EXPECT_TRUE(f.float_kernels.ends_with("Scalar")) << f.name;
    EXPECT_TRUE(f.block != 1 || f.int8_kernels == "none") << f.name << " has no integers";
    EXPECT_EQ(f.error == 0, f.name == "F32") << f.name;
    // No code for independent normal numbers has less error.
    if (f.error != 0) {
      EXPECT_GE(f.error, std::exp2(-f.bits)) << f.name;
    }
    EXPECT_LT(f.error, 1.0) << f.name;
  }
}

// Reading the table back gives what was written, whatever stands in its cells.
TEST(FormatsTable, RowsAreReadAsTheyAreWritten) {
  const auto row = cells(facts()[2], {"1.5", "x y", ""});
  EXPECT_EQ(cells_of(line_of(row).substr(0, line_of(row).size() - 1)), row);
  const std::string page = "text\n" + std::string(table_begin) + heading_lines() + line_of(row) +
                           std::string(table_end) + "| no | row |\n";
  EXPECT_EQ(rows_of(page), std::vector<std::vector<std::string>>(1, row));
  EXPECT_TRUE(rows_of("| no | table |\n").empty());
  EXPECT_FALSE(find_table(std::string(table_end) + std::string(table_begin)));
}

} // namespace
