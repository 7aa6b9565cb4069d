// A libFuzzer target: the input says what a Writer is asked to write. What it takes must read back
// the same in strict mode, with and without every option, and what it refuses must leave no trace.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <quern/formats/q4_0.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>

#include "input.hpp"

namespace {

using fuzz::Input;
using fuzz::require;
using quern::gguf::Array;
using quern::gguf::File;
using quern::gguf::Value;
using quern::gguf::Writer;

struct Tensor {
  std::string name;
  std::uint32_t type;
  std::array<std::uint64_t, 4> extents;
  std::vector<std::byte> bytes;
};

/// What was written, kept apart from the writer.
struct Model {
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<std::string>> lists;
  std::map<std::string, std::uint64_t> float_bits;
  std::list<Tensor> tensors; // a list: the writer borrows their bytes

  [[nodiscard]] std::size_t keys() const {
    return numbers.size() + texts.size() + lists.size() + float_bits.size();
  }
  [[nodiscard]] bool has_tensor(const std::string& name) const {
    return std::ranges::any_of(tensors, [&](const Tensor& t) { return t.name == name; });
  }
};

std::string text(Input& input, std::size_t most) {
  const auto bytes = input.bytes(input.below(most));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Asks for `add`; true when the writer took it. A refusal must not change the size of the file.
template <class Add>
bool took(Writer& writer, Add add) {
  const std::uint64_t before = writer.size();
  try {
    add();
    return true;
  } catch (const quern::Error&) {
    require(writer.size() == before, "a refused call changed the file");
    return false;
  }
}

void add_key(Input& input, Writer& writer, Model& model) {
  const std::string key = text(input, 12);
  const auto kind = input.below(7);
  if (kind == 0) {
    const auto value = input.number<std::int8_t>();
    if (took(writer, [&] { writer.add(key, value); })) model.numbers[key] = value;
  } else if (kind == 1) {
    const auto value = input.number<std::uint16_t>();
    if (took(writer, [&] { writer.add(key, value); })) model.numbers[key] = value;
  } else if (kind == 2) {
    const auto value = input.number<std::int64_t>();
    if (took(writer, [&] { writer.add(key, value); })) model.numbers[key] = value;
  } else if (kind == 3) {
    const auto value = std::bit_cast<double>(input.number<std::uint64_t>());
    if (took(writer, [&] { writer.add(key, value); }))
      model.float_bits[key] = std::bit_cast<std::uint64_t>(value);
  } else if (kind == 4) {
    const std::string value = text(input, 40);
    if (took(writer, [&] { writer.add(key, value); })) model.texts[key] = value;
  } else if (kind == 5) {
    std::vector<std::string> value(input.below(5));
    for (std::string& element : value)
      element = text(input, 6);
    if (took(writer, [&] { writer.add(key, value); })) model.lists[key] = value;
  } else {
    const bool value = input.below(2) == 1;
    if (took(writer, [&] { writer.add(key, value); })) model.numbers[key] = value ? 1 : 0;
  }
}

void add_tensor(Input& input, Writer& writer, Model& model) {
  Tensor tensor{text(input, 70), input.number<std::uint8_t>() % 48u, {1, 1, 1, 1}, {}};
  const std::size_t rank = input.below(6);
  std::vector<std::uint64_t> extents;
  const quern::gguf::Type* const type = quern::gguf::find_type(tensor.type);
  const std::uint64_t block = type == nullptr ? 1 : type->block_size;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t kind = input.below(16);
    extents.push_back(kind == 0 ? input.number<std::uint64_t>()
                                : input.below(4) * (i == 0 && kind < 14 ? block : 1));
  }
  std::uint64_t size = type == nullptr ? 0 : type->bytes_per_block;
  for (std::size_t i = 0; i < rank && size <= 100000; ++i) {
    const std::uint64_t step = i == 0 ? extents[i] / block : extents[i];
    size = step > 100000 ? 100001 : size * step;
  }
  if (size > 100000) size = 7; // what follows is refused
  if (input.below(16) == 0) ++size;
  tensor.bytes = input.bytes(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i)
    tensor.bytes[i] ^= static_cast<std::byte>(i * 7);
  model.tensors.push_back(std::move(tensor));
  const Tensor& kept = model.tensors.back();
  const bool exists = std::ranges::count(model.tensors, kept.name, &Tensor::name) > 1;
  if (took(writer, [&] { writer.add_tensor(kept.name, kept.type, extents, kept.bytes); })) {
    require(!exists && type != nullptr, "a tensor that must be refused");
    std::ranges::copy(extents, model.tensors.back().extents.begin());
  } else {
    model.tensors.pop_back();
  }
}

void expect_same(const File& file, const Model& model, std::size_t own_keys) {
  const auto& metadata = file.metadata();
  require(metadata.size() == model.keys() + own_keys, "the number of keys");
  for (const auto& [key, value] : model.numbers) {
    const Value stored = metadata.at(key);
    require((stored.type() == quern::gguf::ValueType::boolean
                 ? std::int64_t{stored.get<bool>()}
                 : stored.get<std::int64_t>()) == value,
            "a number");
  }
  for (const auto& [key, value] : model.texts)
    require(metadata.get<std::string>(key) == value, "a string");
  for (const auto& [key, value] : model.lists)
    require(metadata.get<Array>(key).to_vector<std::string>() == value, "an array of strings");
  for (const auto& [key, bits] : model.float_bits) {
    const double value = metadata.get<double>(key);
    require(std::memcmp(&value, &bits, sizeof value) == 0, "a double");
  }
  require(file.tensors().size() == model.tensors.size(), "the number of tensors");
  std::size_t index = 0;
  for (const Tensor& tensor : model.tensors) {
    const auto stored = file.tensors().at(tensor.name);
    require(stored.index == index++ && stored.type_id == tensor.type &&
                stored.extents == tensor.extents,
            "an entry of the tensor table");
    require(std::ranges::equal(file.bytes(stored), tensor.bytes), "the bytes of a tensor");
  }
}

std::vector<std::byte> copy_of(const File& file, std::uint32_t alignment) {
  Writer copy(alignment);
  copy.add_all(file.metadata());
  for (const auto& tensor : file.tensors())
    copy.add_tensor(tensor.name, tensor.type_id, tensor.extents, file.bytes(tensor));
  return copy.to_bytes();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::uint32_t alignment = 1u << input.below(9);
  Writer writer(alignment);
  Model model;
  while (!input.empty()) {
    if (input.below(2) == 0)
      add_key(input, writer, model);
    else
      add_tensor(input, writer, model);
  }
  const auto bytes = writer.to_bytes();
  require(bytes.size() == writer.size(), "the size that was told");
  quern::gguf::Options options;
  options.mode = quern::gguf::Mode::strict;
  options.zero_padding = true;
  const File file = File::from_bytes(bytes, options);
  const std::size_t own_keys = alignment == 32 ? 0 : 1;
  expect_same(file, model, own_keys);

  // A copy is the same file; a copy of the copy, which has four extents everywhere, the same bytes.
  const auto copied = copy_of(file, alignment);
  const File copy = File::from_bytes(copied, options);
  expect_same(copy, model, own_keys);
  require(copy_of(copy, alignment) == copied, "a copy of a copy");
  return 0;
}
