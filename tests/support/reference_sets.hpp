#pragma once

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <quern/formats/f32.hpp>
#include <quern/gguf/file.hpp>

/// @file
/// Matrices with what the reference implementation made of them in each format: eight rows of
/// different kinds, and layers of trained networks. They are no part of the project.

#ifndef QUERN_SHARED_DIR
#define QUERN_SHARED_DIR ""
#endif

namespace support {

/// Values, rows of `cols`, and the values that the reference's blocks decode to.
struct ReferenceSet {
  std::string name;
  std::size_t cols;
  std::vector<float> values;
  std::vector<float> kept;
  std::vector<std::byte> blocks;
};

[[nodiscard]] inline std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> raw{std::istreambuf_iterator<char>(stream), {}};
  std::vector<std::byte> bytes(raw.size());
  if (!raw.empty()) std::memcpy(bytes.data(), raw.data(), raw.size());
  return bytes;
}

[[nodiscard]] inline std::vector<float> file_floats(const std::filesystem::path& path) {
  const auto bytes = file_bytes(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// The name that the files have for a format: lower case but for the K of K-quants.
[[nodiscard]] inline std::string reference_name(std::string_view format) {
  std::string name(format);
  for (char& letter : name)
    letter = static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
  if (format.ends_with("_K")) name.back() = 'K';
  return name;
}

/// The sets of format F; none where the files are not on this machine.
template <class F>
[[nodiscard]] std::vector<ReferenceSet> reference_sets() {
  std::vector<ReferenceSet> sets;
  const std::filesystem::path shared = QUERN_SHARED_DIR;
  const std::string name = reference_name(F::name);
  const auto folder = shared / "golden" / name;
  const auto values = file_floats(folder / "encode_input.f32");
  const auto kept = file_floats(folder / "encoded.f32");
  const auto blocks = file_bytes(folder / "encoded.bin");
  constexpr std::size_t cols = 768;
  const std::size_t row_bytes = cols / F::block_size * F::bytes_per_block;
  for (std::size_t row = 0; (row + 1) * cols <= kept.size(); ++row) {
    const auto part = [&](const auto& all, std::size_t length) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(row * length);
      return std::vector(from, from + static_cast<std::ptrdiff_t>(length));
    };
    sets.push_back({"row " + std::to_string(row), cols, part(values, cols), part(kept, cols),
                    part(blocks, row_bytes)});
  }
  const auto layers = shared / "real" / "dense_layers.gguf";
  if (!std::filesystem::exists(layers)) return sets;
  const auto file = quern::gguf::File::map(layers.string());
  const std::string_view mark = ".weight.";
  for (const auto& tensor : file.tensors()) {
    const auto at = tensor.name.find(mark);
    if (at == std::string_view::npos || tensor.name.substr(at + mark.size()) != name) continue;
    const auto dense =
        file.template weight<quern::F32>(std::string(tensor.name.substr(0, at)) + ".weight");
    const auto packed = file.template weight<F>(tensor.name);
    const std::span<const std::byte> bytes(packed.data(), packed.bytes());
    sets.push_back({std::string(tensor.name), dense.in(), dense.to_floats(), packed.to_floats(),
                    std::vector<std::byte>(bytes.begin(), bytes.end())});
  }
  return sets;
}

[[nodiscard]] inline double squared_error(std::span<const float> values,
                                          std::span<const float> kept,
                                          std::span<const float> weights = {}) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double miss = static_cast<double>(kept[i]) - static_cast<double>(values[i]);
    sum += miss * miss * (weights.empty() ? 1.0 : static_cast<double>(weights[i % weights.size()]));
  }
  return sum;
}

} // namespace support
