#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "format_facts.hpp"

/// @file
/// The plot of docs/images/error_bits.svg, from the same numbers as the table.

namespace format_facts {

namespace detail {

struct Box {
  double left, top, right, bottom;
  [[nodiscard]] bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// Bits to the right, from `bend` on logarithmic so that wide formats stay near; the logarithm of
/// the error upwards.
class Frame {
public:
  static constexpr double width = 900, height = 760;
  static constexpr double left = 80, right = 870, top = 50, bottom = 690;
  static constexpr double bend = 9;

  [[nodiscard]] static double x(double bits) {
    const double share = bits <= bend ? 0.84 * (bits - 0.8) / (bend - 0.8)
                                      : 0.84 + 0.16 * std::log2(bits / bend) / std::log2(40 / bend);
    return left + (right - left) * share;
  }
  [[nodiscard]] static double y(double error) {
    return bottom - (bottom - top) * std::log10(error / 1e-4) / std::log10(1 / 1e-4);
  }
  /// Where formats without an error stand.
  static constexpr double zero = bottom - 14;
};

[[nodiscard]] inline std::string text(double x, double y, const char* anchor, const char* colour,
                                      const std::string& words, const char* more = "") {
  return formatted("<text x=\"%.1f\" y=\"%.1f\" ", x, y) +
         formatted("text-anchor=\"%s\" fill=\"%s\"%s>", anchor, colour, more) + words + "</text>\n";
}
[[nodiscard]] inline std::string line(double x1, double y1, double x2, double y2,
                                      const char* style) {
  return formatted("<line x1=\"%.1f\" y1=\"%.1f\" ", x1, y1) +
         formatted("x2=\"%.1f\" y2=\"%.1f\" ", x2, y2) + style + "/>\n";
}

/// Families by how their codes mean values.
[[nodiscard]] inline std::size_t family(const std::string& name) {
  if (name.starts_with("IQ")) return 2;
  if (name.ends_with("_K")) return 1;
  if (name.starts_with("TQ") || name.ends_with("FP4")) return 3;
  return name.starts_with("Q") ? 0 : 4;
}
inline constexpr std::array<std::pair<const char*, const char*>, 5> families = {
    {{"one scale per block", "#4e79a7"},
     {"K: scaled scales", "#e15759"},
     {"IQ: code books, levels", "#2f8f46"},
     {"ternary, 4-bit floats", "#8a5fa8"},
     {"single values", "#666666"}}};

/// A place for the label of point (x, y) where it meets none of `taken`.
[[nodiscard]] inline Box place_label(double x, double y, std::size_t letters,
                                     std::span<const Box> taken) {
  const double wide = 6.6 * static_cast<double>(letters), high = 12;
  Box best{};
  for (double away = 7; away < 60; away += 6)
    for (const auto& [dx, dy] : std::array<std::pair<double, double>, 8>{
             {{1, 0}, {-1, 0}, {0, -1}, {0, 1}, {1, -1}, {1, 1}, {-1, -1}, {-1, 1}}}) {
      const double middle_x = x + dx * (away + wide / 2), middle_y = y + dy * (away + high / 2);
      best = {middle_x - wide / 2, middle_y - high / 2, middle_x + wide / 2, middle_y + high / 2};
      const bool inside = best.left > Frame::left && best.right < Frame::right &&
                          best.top > Frame::top && best.bottom < Frame::bottom;
      if (inside && std::ranges::none_of(taken, [&](const Box& b) { return b.meets(best); }))
        return best;
    }
  return best;
}

} // namespace detail

/// The plot as SVG: error against bits per weight.
[[nodiscard]] inline std::string plot(std::span<const Facts> all) {
  using detail::Frame;
  using detail::line;
  using detail::text;
  std::string svg = formatted("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" ",
                              Frame::width, Frame::height);
  svg += "font-family=\"sans-serif\" font-size=\"12\" role=\"img\" aria-labelledby=\"t d\">\n"
         "<title id=\"t\">Error of each format against its size</title>\n"
         "<desc id=\"d\">Relative root mean square error of quantizing a normal matrix, for every "
         "format, against bits per weight. Errors are on a logarithmic axis, bits above 9 too; the "
         "numbers are those of the "
         "table in docs/formats.md.</desc>\n";
  svg += formatted("<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n", Frame::width,
                   Frame::height);
  svg += text(Frame::left, 28, "start", "#222",
              "Error against size: a normal matrix, quantized with quern::quantize",
              " font-weight=\"bold\" font-size=\"15\"");
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32}) {
    const double x = Frame::x(bits);
    svg += line(x, Frame::top, x, Frame::bottom, "stroke=\"#e4e4e4\"");
    svg += text(x, Frame::bottom + 18, "middle", "#444", std::to_string(bits));
  }
  for (const double error : {1e-4, 1e-3, 1e-2, 0.1, 0.2, 0.5}) {
    const double y = Frame::y(error);
    svg += line(Frame::left, y, Frame::right, y, "stroke=\"#e4e4e4\"");
    svg += text(Frame::left - 8, y + 4, "end", "#444", formatted("%g", error));
  }
  svg += text((Frame::left + Frame::right) / 2, Frame::bottom + 42, "middle", "#222",
              "bits per weight");
  svg +=
      text(20, (Frame::top + Frame::bottom) / 2, "middle", "#222", "relative error",
           formatted(" transform=\"rotate(-90 20 %g)\"", (Frame::top + Frame::bottom) / 2).c_str());
  // No code for independent normal numbers has less error than 2^-bits.
  svg += "<polyline fill=\"none\" stroke=\"#999\" stroke-dasharray=\"5 4\" points=\"";
  for (double bits = 1; bits <= Frame::bend; bits += 1)
    svg += formatted("%.1f,%.1f ", Frame::x(bits), Frame::y(std::exp2(-bits)));
  svg += "\"/>\n";
  svg += text(Frame::x(7.5) - 8, Frame::y(std::exp2(-7.5)) + 4, "end", "#777",
              "least possible: 2^-bits");

  std::vector<detail::Box> taken;
  const auto y_of = [](const Facts& f) { return f.error == 0 ? Frame::zero : Frame::y(f.error); };
  for (const Facts& f : all) {
    const double x = Frame::x(f.bits), y = y_of(f);
    taken.push_back({x - 5, y - 5, x + 5, y + 5});
  }
  // The key.
  for (std::size_t i = 0; i < detail::families.size(); ++i) {
    const auto& [name, colour] = detail::families[i];
    const double y = Frame::top + 22 + 20 * static_cast<double>(i);
    svg += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" ", Frame::right - 168, y) +
           formatted("r=\"4.5\" fill=\"%s\"/>\n", colour);
    svg += text(Frame::right - 156, y + 4, "start", "#222", name);
  }
  // From the top down, which leaves the fewest labels without a place next to their point.
  std::vector<Facts> downwards(all.begin(), all.end());
  std::ranges::stable_sort(downwards, std::greater{}, &Facts::error);
  for (const Facts& f : downwards) {
    const double x = Frame::x(f.bits), y = y_of(f);
    const char* colour = detail::families[detail::family(f.name)].second;
    const std::string label = f.error == 0 ? f.name + ": exact" : f.name;
    const detail::Box box = detail::place_label(x, y, label.size(), taken);
    taken.push_back(box);
    const double middle_x = (box.left + box.right) / 2, middle_y = (box.top + box.bottom) / 2;
    if (std::hypot(middle_x - x, middle_y - y) > 7 * static_cast<double>(label.size()) / 2 + 16)
      svg += line(x, y, std::clamp(x, box.left, box.right), std::clamp(y, box.top, box.bottom),
                  "stroke=\"#bbb\"");
    svg += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" ", x, y) +
           formatted("r=\"4.5\" fill=\"%s\"/>\n", colour);
    svg += text(middle_x, middle_y + 4, "middle", colour, label,
                " font-size=\"11\" paint-order=\"stroke\" stroke=\"#fff\" stroke-width=\"3\"");
  }
  return svg + "</svg>\n";
}

} // namespace format_facts
