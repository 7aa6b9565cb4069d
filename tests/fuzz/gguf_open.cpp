// A libFuzzer target: any bytes are opened in every mode, and everything that an open file offers
// is used: metadata is walked, weights are visited, validated and decoded.
//
// Nothing but a gguf::Error may come out of opening. What opens in strict mode is also written anew
// and must read back as the same file.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/validate.hpp>

namespace {

using quern::gguf::Array;
using quern::gguf::File;
using quern::gguf::Mode;
using quern::gguf::Options;
using quern::gguf::Tensor;
using quern::gguf::Value;
using quern::gguf::ValueType;

void require(bool holds) {
  if (!holds) std::abort();
}

void walk(const Value& value) {
  if (value.type() == ValueType::array) {
    const Array array = value.get<Array>();
    std::size_t count = 0;
    for (const Value& element : array) {
      if (count < 100) walk(element);
      ++count;
    }
    require(count == array.size());
  } else if (value.type() == ValueType::string) {
    static_cast<void>(quern::gguf::is_utf8(value.get<std::string_view>()));
  } else {
    try {
      static_cast<void>(value.get<std::int16_t>());
    } catch (const quern::gguf::Error&) {
    }
  }
}

void decode(const File& file, const Tensor& tensor) {
  unsigned sum = 0;
  for (const std::byte byte : file.bytes(tensor))
    sum += std::to_integer<unsigned>(byte);
  if (!quern::find_format(tensor.type_id)) return;
  const auto use = [&](const auto& view) {
    if (view.out() == 0 || view.in() == 0 || view.in() > 65536) return;
    std::vector<float> row(view.in());
    const auto found = quern::validate(view);
    require(!found.message().empty() && found.out < view.out());
    for (const std::size_t o : {std::size_t{0}, view.out() - 1}) {
      view.decode_row(o, row);
      // What is valid decodes to numbers.
      require(!found.ok() ||
              std::ranges::all_of(row, [](float value) { return std::isfinite(value); }));
    }
    sum += static_cast<unsigned>(view.bytes());
  };
  if (tensor.is_matrix())
    file.visit_weight(tensor.name, use);
  else if (tensor.extents[2] != 0 && tensor.extents[3] != 0)
    file.visit_weight(tensor.name, std::size_t{0}, use);
  volatile unsigned keep = sum;
  static_cast<void>(keep);
}

void walk(const File& file) {
  for (const auto& [key, value] : file.metadata()) {
    require(file.metadata().contains(key));
    walk(value);
  }
  for (const Tensor& tensor : file.tensors()) {
    require(file.tensors().at(tensor.name).index == tensor.index);
    if (tensor.type != nullptr) decode(file, tensor);
  }
}

void rewrite(const File& file) {
  quern::gguf::Writer writer(std::min(file.alignment(), 4096u));
  writer.add_all(file.metadata());
  for (const Tensor& tensor : file.tensors())
    writer.add_tensor(tensor.name, tensor.type_id, tensor.extents, file.bytes(tensor));
  const auto bytes = writer.to_bytes();
  require(bytes.size() == writer.size());
  Options options;
  options.mode = Mode::strict;
  options.zero_padding = true;
  const File again = File::from_bytes(bytes, options);
  require(again.tensors().size() == file.tensors().size());
  for (const Tensor& tensor : file.tensors()) {
    const Tensor same = again.tensors()[tensor.index];
    require(same.name == tensor.name && same.extents == tensor.extents);
    require(std::ranges::equal(again.bytes(same), file.bytes(tensor)));
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const Mode mode : {Mode::standard, Mode::strict, Mode::lenient}) {
    Options options;
    options.mode = mode;
    bool from_bytes = false;
    bool from_callback = false;
    try {
      const File file = File::from_bytes(bytes, options);
      from_bytes = true;
      walk(file);
      if (mode == Mode::strict) {
        try {
          rewrite(file);
        } catch (const quern::Error& error) {
          // Keys above 65535 bytes are read but not written.
          require(error.code() == quern::ErrorCode::bad_key);
        }
      }
    } catch (const quern::gguf::Error&) {
      require(!from_bytes); // what opened must not fail later
    }
    try {
      const File file = File::from_callback(
          size,
          [&](std::uint64_t position, std::span<std::byte> into) {
            const auto at = static_cast<std::size_t>(position);
            const std::size_t count = std::min({std::size_t{7}, into.size(), size - at});
            std::copy_n(bytes.data() + at, count, into.data());
            return count;
          },
          options);
      from_callback = true;
      walk(file);
    } catch (const quern::gguf::Error&) {
      require(!from_callback);
    }
    require(from_bytes == from_callback);
  }
  return 0;
}
