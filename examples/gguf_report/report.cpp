#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>
#include <string_view>

#include <quern/gguf/value.hpp>

namespace report {

namespace {

std::string shape(const Row& row) {
  std::string text =
      "[" + std::to_string(row.extents[1]) + ", " + std::to_string(row.extents[0]) + "]";
  if (row.extents[2] * row.extents[3] != 1)
    text += " x " + std::to_string(row.extents[2] * row.extents[3]);
  return text;
}

std::string scientific(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1e", value);
  return text.data();
}

std::string kernels(const Row& row) {
  std::string text;
  for (const Kernel& kernel : row.kernels)
    text += (text.empty() ? "" : ", ") + kernel.activation + " " + kernel.isa + " (" +
            scientific(kernel.error) + ")";
  return text.empty() ? "-" : text;
}

double relayout_speed(const Row& row) {
  return static_cast<double>(row.relayout_bytes) / std::max(row.relayout_seconds, 1e-9) / 1e9;
}

// Names come from strangers: what is no text is written byte by byte.
std::string json_string(std::string_view text) {
  const bool utf8 = quern::gguf::is_utf8(text);
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (code < 0x20 || (code >= 0x7F && !utf8)) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(code));
      result += escape.data();
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string html(std::string_view text) {
  const bool utf8 = quern::gguf::is_utf8(text);
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '<' || c == '>' || c == '&' || c == '"' || code < 0x20 || (code >= 0x7F && !utf8))
      result += "&#" + std::to_string(code < 0x20 ? 0x2400u + code : code) + ";";
    else
      result += c;
  }
  return result;
}

constexpr std::array colours{"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2",
                             "#edc948", "#b07aa1", "#9c755f", "#ff9da7", "#bab0ac"};

// The file from left to right, in lines of equal size; a tensor may go over several.
void write_map(std::ostream& out, const Report& report,
               const std::map<std::string, std::string>& colour_of) {
  constexpr std::uint64_t lines = 16;
  constexpr double width = 960;
  constexpr double height = 22;
  const double line_bytes = std::max(1.0, static_cast<double>(report.size) / lines);
  out << "<svg id=\"map\" viewBox=\"0 0 " << width << " " << lines * (height + 4)
      << "\" role=\"img\" aria-label=\"Map of the file\">\n";
  const auto piece = [&](std::uint64_t from, std::uint64_t bytes, const std::string& colour,
                         const std::string& title, const char* kind) {
    double at = static_cast<double>(from);
    const double end = static_cast<double>(from + bytes);
    while (at < end) {
      const double line = std::min(std::floor(at / line_bytes), static_cast<double>(lines - 1));
      const double stop = line + 1 == lines ? end : std::min(end, (line + 1) * line_bytes);
      if (stop <= at) break;
      out << "<rect class=\"" << kind << "\" x=\"" << (at - line * line_bytes) / line_bytes * width
          << "\" y=\"" << line * (height + 4) << "\" width=\"" << (stop - at) / line_bytes * width
          << "\" height=\"" << height << "\" fill=\"" << colour << "\"><title>" << title
          << "</title></rect>\n";
      at = stop;
    }
  };
  piece(0, report.size, "#eeeeee", "padding", "padding");
  piece(0, std::min(report.data_position, report.size), "#555555", "metadata and tensor table",
        "header");
  for (const Row& row : report.rows)
    piece(row.offset, row.bytes, colour_of.at(row.format),
          html(row.name) + " " + html(row.format) + " " + shape(row) + ", " +
              std::to_string(row.bytes) + " bytes at " + std::to_string(row.offset),
          "tensor");
  out << "</svg>\n";
}

// A corner of a weight's grid: the number in a cell is the block's place in memory.
void write_order(std::ostream& out, const Row& row, bool by_rows) {
  const auto rows = static_cast<std::size_t>(row.extents[1]);
  const std::size_t shown_rows = std::min<std::size_t>(rows, 6);
  const std::size_t shown_columns = std::min<std::size_t>(row.blocks_per_row, 6);
  out << "<table class=\"order\"><caption>" << (by_rows ? "RowMajor" : "InputBlockMajor")
      << "</caption>\n";
  for (std::size_t o = 0; o < shown_rows; ++o) {
    out << "<tr>";
    for (std::size_t b = 0; b < shown_columns; ++b) {
      const std::size_t place = by_rows ? o * row.blocks_per_row + b : b * rows + o;
      // Lightness follows the place in memory.
      const double share = static_cast<double>(place) /
                           static_cast<double>(std::max<std::size_t>(rows * row.blocks_per_row, 1));
      out << "<td style=\"background:hsl(210 60% " << 92 - 40 * share << "%)\">" << place
          << "</td>";
    }
    out << "</tr>\n";
  }
  out << "</table>\n";
}

constexpr const char* style = R"(<style>
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1100px;padding:0 16px;color:#222}
h1{font-size:22px;overflow-wrap:anywhere}h2{font-size:17px;margin-top:28px}
svg{width:100%;height:auto}rect.tensor{stroke:#fff;stroke-width:.5}
.key span{display:inline-block;margin-right:14px}.key i{display:inline-block;width:12px;height:12px;margin-right:5px}
.scroll{overflow-x:auto}#tensors{border-collapse:collapse;width:100%}
#tensors th,#tensors td{padding:3px 8px;text-align:left;border-bottom:1px solid #ddd;white-space:nowrap}
#tensors td.n,#tensors th.n{text-align:right;font-variant-numeric:tabular-nums}
.orders{display:flex;gap:40px;flex-wrap:wrap}.order td{width:52px;height:26px;text-align:center}
.order caption{text-align:left;font-weight:600;padding-bottom:4px}.fault{color:#b00020}
</style>
)";

// Looks at the page as it is laid out: every tensor has a row and a visible place in the map, and
// nothing of the map lies outside it.
constexpr const char* check = R"(<script>
addEventListener("load",()=>{
const map=document.getElementById("map").getBoundingClientRect();
const pieces=[...document.querySelectorAll("#map rect")].map(r=>r.getBoundingClientRect());
const outside=pieces.filter(r=>r.left<map.left-1||r.right>map.right+1||r.bottom>map.bottom+1).length;
const flat=pieces.filter(r=>r.height<4).length;
const wide=document.documentElement.scrollWidth>document.documentElement.clientWidth;
document.body.dataset.checked="rows "+document.querySelectorAll("#tensors tbody tr").length+
", tensors in map "+new Set([...document.querySelectorAll("#map rect.tensor title")].map(t=>t.textContent)).size+
", outside "+outside+", flat "+flat+", too wide "+wide;
});
</script>
)";

} // namespace

void write_table(std::ostream& out, const Report& report) {
  std::size_t name = 4;
  for (const Row& row : report.rows)
    name = std::max(name, row.name.size());
  const auto width = static_cast<int>(name);
  out << report.path << ": GGUF version " << report.version << ", " << report.size << " bytes, "
      << report.rows.size() << " tensors\n"
      << std::left << std::setw(width) << "name"
      << "  " << std::setw(8) << "format" << std::setw(18) << "[out, in]" << std::right
      << std::setw(12) << "bytes" << std::setw(15) << "relayout bytes" << std::setw(8) << "GB/s"
      << "  kernels (error of a product)\n";
  for (const Row& row : report.rows) {
    out << std::left << std::setw(width) << row.name << "  " << std::setw(8) << row.format
        << std::setw(18) << shape(row) << std::right << std::setw(12) << row.bytes << std::setw(15)
        << row.relayout_bytes << std::setw(8) << std::fixed << std::setprecision(2)
        << relayout_speed(row) << "  " << kernels(row);
    if (!row.fault.empty()) out << "  " << row.fault;
    out << "\n";
  }
}

void write_json(std::ostream& out, const Report& report) {
  // JSON has no NaN and no infinity.
  const auto number = [](double value) {
    if (!std::isfinite(value)) return std::string("null");
    std::ostringstream text;
    text << std::setprecision(9) << value;
    return text.str();
  };
  out << "{\"file\":" << json_string(report.path) << ",\"version\":" << report.version
      << ",\"alignment\":" << report.alignment << ",\"data_position\":" << report.data_position
      << ",\"bytes\":" << report.size << ",\"tensors\":[";
  const char* separator = "\n";
  for (const Row& row : report.rows) {
    out << separator << "{\"name\":" << json_string(row.name)
        << ",\"format\":" << json_string(row.format) << ",\"extents\":[" << row.extents[0] << ","
        << row.extents[1] << "," << row.extents[2] << "," << row.extents[3]
        << "],\"bytes\":" << row.bytes << ",\"offset\":" << row.offset
        << ",\"blocks_per_row\":" << row.blocks_per_row
        << ",\"relayout_bytes\":" << row.relayout_bytes
        << ",\"relayout_seconds\":" << number(row.relayout_seconds)
        << ",\"fault\":" << (row.fault.empty() ? "null" : json_string(row.fault))
        << ",\"kernels\":[";
    const char* comma = "";
    for (const Kernel& kernel : row.kernels) {
      out << comma << "{\"activation\":" << json_string(kernel.activation)
          << ",\"isa\":" << json_string(kernel.isa) << ",\"error\":" << number(kernel.error) << "}";
      comma = ",";
    }
    out << "]}";
    separator = ",\n";
  }
  out << "\n]}\n";
}

void write_page(std::ostream& out, const Report& report) {
  std::map<std::string, std::string> colour_of;
  for (const Row& row : report.rows)
    colour_of.try_emplace(row.format, colours[colour_of.size() % colours.size()]);
  out << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>"
      << html(report.path) << "</title>\n"
      << style << "</head><body>\n<h1>" << html(report.path) << "</h1>\n<p>GGUF version "
      << report.version << ", " << report.size << " bytes, " << report.rows.size()
      << " tensors, aligned to " << report.alignment << " bytes</p>\n<h2>Map of the file</h2>\n";
  write_map(out, report, colour_of);
  out << "<p class=\"key\"><span><i style=\"background:#555\"></i>metadata</span>";
  for (const auto& [format, colour] : colour_of)
    out << "<span><i style=\"background:" << colour << "\"></i>" << html(format) << "</span>";
  out << "</p>\n";
  const auto grid = std::ranges::find_if(report.rows, [](const Row& row) {
    return row.relayout_bytes != 0 && row.blocks_per_row > 1;
  });
  if (grid != report.rows.end()) {
    out << "<h2>Block orders</h2>\n<p>A corner of " << html(grid->name) << ", " << grid->extents[1]
        << " rows of " << grid->blocks_per_row
        << " blocks; a number is the place of its block in memory.</p>\n<div class=\"orders\">\n";
    write_order(out, *grid, true);
    write_order(out, *grid, false);
    out << "</div>\n";
  }
  out << "<h2>Tensors</h2>\n<div class=\"scroll\"><table "
         "id=\"tensors\"><thead><tr><th>name</th><th>format"
         "</th><th>[out, in]</th><th class=\"n\">bytes</th><th class=\"n\">relayout bytes</th><th "
         "class=\"n\">GB/s</th><th>kernels (error of a product)</th></tr></thead><tbody>\n"
      << std::fixed << std::setprecision(2);
  for (const Row& row : report.rows) {
    out << "<tr><td>" << html(row.name) << "</td><td>" << html(row.format) << "</td><td>"
        << shape(row) << "</td><td class=\"n\">" << row.bytes << "</td><td class=\"n\">"
        << row.relayout_bytes << "</td><td class=\"n\">" << relayout_speed(row) << "</td><td>"
        << kernels(row);
    if (!row.fault.empty()) out << " <span class=\"fault\">" << html(row.fault) << "</span>";
    out << "</td></tr>\n";
  }
  out << "</tbody></table></div>\n" << check << "</body></html>\n";
}

} // namespace report
