#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>

#include "gguf_bytes.hpp"
#include "support/weights.hpp"

// The kinds of handcrafted files with which the reference reader is tested, malformed and valid,
// each in the shape that it has there: every key or every tensor of the file has the fault. Files
// are opened through every source.

namespace {

using namespace gguf_test;

constexpr std::uint32_t i8 = 24, i64 = 27;
constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();

// Groups: the header alone; keys without tensors; tensors without data; tensors with data.

TEST(GgufMalformedHeader, BadMagic) {
  expect_refused(Bytes().text("FUGG").u32(3).u64(0).u64(0), ErrorCode::bad_magic, {0});
}
TEST(GgufMalformedHeader, Version0) {
  expect_refused(Bytes::header(0, 0, 0), ErrorCode::unsupported_version, {4});
}
TEST(GgufMalformedHeader, Version1InTheShapeOfVersion3IsAnEmptyVersion1File) {
  // The reference reader refuses it, and so does strict mode.
  expect_opened(Bytes::header(0, 0, 1));
  expect_refused(Bytes::header(0, 0, 1), ErrorCode::unsupported_version, {4}, strict);
}
TEST(GgufMalformedHeader, VersionOfTheFuture) {
  expect_refused(Bytes::header(0, 0, 4), ErrorCode::unsupported_version, {4});
}
TEST(GgufMalformedHeader, TooManyTensors) {
  expect_refused(Bytes::header(all_ones, 0), ErrorCode::count_impossible, {8});
}
TEST(GgufMalformedHeader, TooManyKeys) {
  expect_refused(Bytes::header(0, all_ones), ErrorCode::count_impossible, {16});
}
TEST(GgufMalformedHeader, Empty) {
  expect_opened(Bytes::header(0, 0), strict);
}

TEST(GgufMalformedKeys, BadKeySize) {
  expect_refused(Bytes::header(0, 2).u64(all_ones).text("key 0").repeat(40),
                 ErrorCode::string_past_end, {24, 0});
}
TEST(GgufMalformedKeys, EmptyKey) {
  expect_refused(Bytes::header(0, 2).key("", 4).u32(1).key("", 4).u32(1), ErrorCode::bad_key,
                 {24, 0});
}
TEST(GgufMalformedKeys, BadType) {
  expect_refused(Bytes::header(0, 1).key("k", 13).repeat(16), ErrorCode::bad_value_type,
                 {33, 0, "k"});
  expect_refused(Bytes::header(0, 1).key("k", 9).u32(13).u64(1).repeat(8),
                 ErrorCode::bad_value_type, {37, 0, "k"});
}
TEST(GgufMalformedKeys, DuplicateKeys) {
  Bytes file = Bytes::header(0, 10);
  for (int i = 0; i < 10; ++i)
    file.key("key " + std::to_string(i / 2), 4).u32(1);
  expect_refused(file, ErrorCode::duplicate_key, {24 + 21, 1, "key 0"});
}
TEST(GgufMalformedKeys, BadAlignment) {
  expect_refused(Bytes::header(0, 1).alignment(13), ErrorCode::alignment_value,
                 {53, 0, "general.alignment"});
}
TEST(GgufMalformedKeys, AlignmentOfTypeI32) {
  expect_refused(Bytes::header(0, 1).key("general.alignment", 5).i32(32), ErrorCode::alignment_type,
                 {53, 0, "general.alignment"});
}
TEST(GgufMalformedKeys, ValueLengthsOfTerabytes) {
  expect_refused(Bytes::header(0, 1).key("k", 8).u64(std::uint64_t{1} << 41).repeat(8),
                 ErrorCode::string_past_end, {37, 0, "k"});
  expect_refused(Bytes::header(0, 1).key("k", 9).u32(12).u64(std::uint64_t{1} << 41).repeat(8),
                 ErrorCode::array_past_end, {41, 0, "k"});
}

/// A value of any type with pseudo-random content.
void add_random_value(quern::gguf::Writer& writer, const std::string& key,
                      support::Random& random) {
  const auto ints = [&](auto as) {
    std::vector<decltype(as)> all(random.bits() % 5);
    for (auto& value : all)
      value = static_cast<decltype(as)>(random.bits());
    return all;
  };
  const std::string text(random.bits() % 9, static_cast<char>('a' + random.bits() % 26));
  switch (random.bits() % 20) {
  case 0:
    return writer.add(key, static_cast<std::uint8_t>(random.bits()));
  case 1:
    return writer.add(key, static_cast<std::int8_t>(random.bits()));
  case 2:
    return writer.add(key, static_cast<std::uint16_t>(random.bits()));
  case 3:
    return writer.add(key, static_cast<std::int16_t>(random.bits()));
  case 4:
    return writer.add(key, random.bits());
  case 5:
    return writer.add(key, static_cast<std::int32_t>(random.bits()));
  case 6:
    return writer.add(key, random.value());
  case 7:
    return writer.add(key, random.bits() % 2 == 0);
  case 8:
    return writer.add(key, text);
  case 9:
    return writer.add(key, std::uint64_t{random.bits()} << 32);
  case 10:
    return writer.add(key, -(std::int64_t{random.bits()} << 20));
  case 11:
    return writer.add(key, static_cast<double>(random.value()));
  case 12:
    return writer.add(key, ints(std::uint8_t{}));
  case 13:
    return writer.add(key, ints(std::int16_t{}));
  case 14:
    return writer.add(key, ints(std::uint32_t{}));
  case 15:
    return writer.add(key, ints(std::int64_t{}));
  case 16:
    return writer.add(key, std::vector<float>{random.value(), random.value()});
  case 17:
    return writer.add(key, std::vector<bool>{true, random.bits() % 2 == 0});
  case 18:
    return writer.add(key, std::vector<std::string>{text, "", text + text});
  default:
    return writer.add(key, std::vector<double>{});
  }
}

TEST(GgufMalformedKeys, AHundredRandomKeysAreFine) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    support::Random random(seed);
    quern::gguf::Writer writer;
    for (int i = 0; i < 100; ++i)
      add_random_value(writer, "key " + std::to_string(i), random);
    const auto bytes = writer.to_bytes();
    expect_opened(bytes, strict, [&](const File& open) {
      EXPECT_EQ(open.metadata().size(), 100u);
      // Copied value by value into another file, the metadata is the same bytes.
      quern::gguf::Writer copy;
      copy.add_all(open.metadata());
      EXPECT_EQ(copy.to_bytes(), bytes);
    });
  }
}

/// Ten tensors, each made by `add(file, i)`.
template <class Add>
Bytes ten_tensors(Add add, std::size_t data_bytes, std::uint32_t alignment = 0) {
  Bytes file = Bytes::header(10, alignment == 0 ? 0 : 1);
  if (alignment != 0) file.alignment(alignment);
  for (std::uint64_t i = 0; i < 10; ++i)
    add(file, i);
  return file.pad(alignment == 0 ? 32 : alignment).repeat(data_bytes, 0x5A);
}
std::string name_of(std::uint64_t i) {
  return "tensor " + std::to_string(i);
}
// Where the extents of the first of ten such tensors start.
constexpr std::uint64_t extents_at = 24 + 8 + 8 + 4;

TEST(GgufMalformedTensors, BadNameSize) {
  const Bytes file = ten_tensors(
      [](Bytes& b, std::uint64_t i) {
        b.tensor(std::string(65, 'n') + name_of(i), {8}, 0, 32 * i);
      },
      320);
  expect_refused(file, ErrorCode::bad_tensor_name, {24, 0});
}
TEST(GgufMalformedTensors, TooManyExtents) {
  const Bytes file = ten_tensors(
      [](Bytes& b, std::uint64_t i) {
        b.tensor(name_of(i), {1, 1, 1, 1, 1}, 0, 32 * i);
      },
      320);
  expect_refused(file, ErrorCode::too_many_dims, {extents_at - 4, 0, name_of(0)});
}
TEST(GgufMalformedTensors, NegativeExtents) {
  const Bytes file = ten_tensors(
      [](Bytes& b, std::uint64_t i) {
        b.tensor(name_of(i), {all_ones, all_ones, all_ones, all_ones}, 0, 32 * i);
      },
      320);
  expect_refused(file, ErrorCode::element_overflow, {extents_at, 0, name_of(0)});
}
TEST(GgufMalformedTensors, ZeroExtentsAreFine) {
  const Bytes file = ten_tensors(
      [](Bytes& b, std::uint64_t i) {
        b.tensor(name_of(i), {8 * (i + 1), 0}, 0, 0);
      },
      0);
  expect_opened(file, strict);
}
TEST(GgufMalformedTensors, ElementOverflow) {
  const std::uint64_t extent = 4 * ((std::uint64_t{1} << 31) - 1);
  const Bytes file = ten_tensors(
      [&](Bytes& b, std::uint64_t i) {
        b.tensor(name_of(i), {extent, extent}, i8, 32 * i);
      },
      320);
  expect_refused(file, ErrorCode::element_overflow, {extents_at, 0, name_of(0)});
}
TEST(GgufMalformedTensors, ByteOverflow) {
  // 2^31 * 2^30 + ... elements of 8 bytes: just above 2^64 bytes.
  const Bytes file = ten_tensors(
      [&](Bytes& b, std::uint64_t i) {
        b.tensor(name_of(i), {(std::uint64_t{1} << 31) + 1, std::uint64_t{1} << 30}, i64, 32 * i);
      },
      320);
  expect_refused(file, ErrorCode::bytes_overflow, {extents_at, 0, name_of(0)});
}
TEST(GgufMalformedTensors, BadType) {
  const Bytes file =
      ten_tensors([](Bytes& b, std::uint64_t i) { b.tensor(name_of(i), {8}, 43, 32 * i); }, 320);
  expect_refused(file, ErrorCode::unknown_type, {extents_at + 8, 0, name_of(0)});
}
TEST(GgufMalformedTensors, BadOffset) {
  const Bytes file = ten_tensors(
      [](Bytes& b, std::uint64_t i) { b.tensor(name_of(i), {8}, 0, all_ones - 31); }, 320);
  expect_refused(file, ErrorCode::offset_past_end, {extents_at + 12, 0, name_of(0)});
}
TEST(GgufMalformedTensors, OneNameForAll) {
  const Bytes file =
      ten_tensors([](Bytes& b, std::uint64_t i) { b.tensor("same", {8}, 0, 32 * i); }, 320);
  expect_refused(file, ErrorCode::duplicate_tensor, {24 + 36, 1, "same"});
}
TEST(GgufMalformedTensors, BadAlignment) {
  const Bytes file =
      ten_tensors([](Bytes& b, std::uint64_t i) { b.tensor(name_of(i), {8}, 0, 39 * i); }, 400, 13);
  expect_refused(file, ErrorCode::alignment_value, {53, 0, "general.alignment"});
}
TEST(GgufMalformedTensors, OffsetsOfAnotherAlignment) {
  // Packed without padding, 33 bytes each, but no key says so.
  const auto packed = [](Bytes& b, std::uint64_t i) { b.tensor(name_of(i), {33}, i8, 33 * i); };
  for (const Options& options : {Options{}, strict})
    expect_refused(ten_tensors(packed, 330), ErrorCode::offset_misaligned,
                   {extents_at + 40 + 12, 1, name_of(1)}, options);
  // With the key the same offsets are right.
  expect_opened(ten_tensors(packed, 330, 1), strict);
}
TEST(GgufMalformedTensors, ValidTensorsAreFine) {
  const Bytes file =
      ten_tensors([](Bytes& b, std::uint64_t i) { b.tensor(name_of(i), {8}, 0, 32 * i); }, 320);
  expect_opened(file, strict);
}

/// Ten tensors of 36 bytes, packed and padded, with data that tells them apart.
Bytes with_data(std::uint32_t alignment, std::uint32_t key) {
  const std::uint64_t step = (36 + alignment - 1) / alignment * alignment;
  Bytes file = ten_tensors(
      [&](Bytes& b, std::uint64_t i) {
        b.tensor(name_of(i), {32, 2}, 2, step * i);
      },
      0, key);
  for (std::uint64_t i = 0; i < 10; ++i)
    file.repeat(36, static_cast<std::uint8_t>(i + 1)).repeat(static_cast<std::size_t>(step - 36));
  return file;
}
void expect_data(const File& open) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto bytes = open.bytes(name_of(i));
    EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()),
              std::vector<std::byte>(36, static_cast<std::byte>(i + 1)));
  }
}

TEST(GgufMalformedData, DataIsReadBack) {
  expect_opened(with_data(32, 0), strict, expect_data);
}
TEST(GgufMalformedData, DataOfAlignment1IsReadBack) {
  expect_opened(with_data(1, 1), strict, expect_data);
}
TEST(GgufMalformedData, NotEnoughData) {
  Bytes file = with_data(32, 0);
  const std::uint64_t last_offset_at = extents_at + 9 * 48 + 20;
  // One byte of the last padding is missing.
  file.data().pop_back();
  expect_opened(file, {}, expect_data);
  expect_refused(file, ErrorCode::data_past_end, {last_offset_at, 9, name_of(9)}, strict);
  // One byte of the last tensor is missing.
  file.data().resize(file.size() - 28);
  expect_refused(file, ErrorCode::data_past_end, {last_offset_at, 9, name_of(9)});
}
TEST(GgufMalformedData, BadAlignment) {
  expect_refused(with_data(32, 13), ErrorCode::alignment_value, {53, 0, "general.alignment"});
}
TEST(GgufMalformedData, InconsistentAlignment) {
  // The tensors lie 64 bytes apart, so a key that says 64 would not contradict them.
  expect_refused(with_data(32, 128), ErrorCode::offset_misaligned,
                 {extents_at + 33 + 48 + 20, 1, name_of(1)});
  expect_refused(with_data(1, 32), ErrorCode::offset_misaligned,
                 {extents_at + 33 + 48 + 20, 1, name_of(1)});
}
TEST(GgufMalformedData, SizesThatWrapTogether) {
  expect_refused(Bytes::header(2, 0)
                     .tensor("a", {0x7FFFFFFFFFFFFFC0u}, i8, 0)
                     .tensor("b", {0x7FFFFFFFFFFFFFC0u}, i8, 0x7FFFFFFFFFFFFFC0u)
                     .pad()
                     .repeat(32),
                 ErrorCode::data_past_end, {24 + 25, 0, "a"});
}

} // namespace
