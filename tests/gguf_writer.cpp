#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"
#include "support/weights.hpp"

#if defined(__unix__) || defined(__APPLE__)
#include <csignal>
#include <sys/resource.h>
#endif

// What the writer makes, byte for byte and as strict readers see it. Names carry the numbers of the
// table in docs/gguf.md.

namespace {

using namespace gguf_test;
using quern::OutIn;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using quern::gguf::Array;
using quern::gguf::Writer;
using support::contains;

std::vector<std::byte> content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return Bytes().text(text).data();
}

TEST(GgufWriter, W9_AnEmptyFileIsTheHeaderOfVersion3) {
  EXPECT_EQ(Writer().to_bytes(), Bytes::header(0, 0, 3).data());
  EXPECT_EQ(Writer().size(), 24u);
}

TEST(GgufWriter, W3_W5_W9_BytesAreThoseOfTheFormatText) {
  const auto blocks = support::counting_weight(2, 1);
  const auto floats = Bytes().f32(1).f32(2).f32(3);
  Writer writer;
  writer.add("name", "tiny");
  writer.add("count", std::uint32_t{7});
  writer.add_weight("w", PackedView<Q4_0, RowMajor>(blocks, OutIn{2, 32}));
  writer.add_tensor("bias", 0, {3}, floats.data());
  const Bytes expected = Bytes::header(2, 2)
                             .key("name", 8)
                             .string("tiny")
                             .key("count", 4)
                             .u32(7)
                             .tensor("w", {32, 2}, 2, 0) // in first
                             .tensor("bias", {3}, 0, 64)
                             .pad()
                             .raw(blocks)
                             .pad()
                             .raw(floats)
                             .pad(); // after the last tensor too
  EXPECT_EQ(writer.to_bytes(), expected.data());
  EXPECT_EQ(writer.size(), expected.size());
}

TEST(GgufWriter, EveryTypeOfMetadataComesBack) {
  Writer writer;
  writer.add("u8", std::uint8_t{200});
  writer.add("i8", std::int8_t{-100});
  writer.add("u16", std::uint16_t{60000});
  writer.add("i16", std::int16_t{-30000});
  writer.add("u32", 4000000000u);
  writer.add("i32", -2000000000);
  writer.add("f32", 0.1f);
  writer.add("bool", true);
  writer.add("string", std::string("text\0more", 9));
  writer.add("array", std::array<std::int64_t, 2>{-1, 1});
  writer.add("u64", std::numeric_limits<std::uint64_t>::max());
  writer.add("i64", std::numeric_limits<std::int64_t>::min());
  writer.add("f64", 0.1);
  expect_opened(writer.to_bytes(), strict, [](const File& open) {
    const auto& m = open.metadata();
    std::uint32_t type = 0;
    for (const auto& entry : m)
      EXPECT_EQ(static_cast<std::uint32_t>(entry.value.type()), type++) << entry.key;
    EXPECT_EQ(type, 13u);
    EXPECT_EQ(m.get<std::uint8_t>("u8"), 200);
    EXPECT_EQ(m.get<std::int8_t>("i8"), -100);
    EXPECT_EQ(m.get<std::uint16_t>("u16"), 60000);
    EXPECT_EQ(m.get<std::int16_t>("i16"), -30000);
    EXPECT_EQ(m.get<std::uint32_t>("u32"), 4000000000u);
    EXPECT_EQ(m.get<std::int32_t>("i32"), -2000000000);
    EXPECT_EQ(m.get<float>("f32"), 0.1f);
    EXPECT_EQ(m.get<bool>("bool"), true);
    EXPECT_EQ(m.get<std::string_view>("string"), std::string_view("text\0more", 9));
    EXPECT_EQ(m.get<Array>("array").to_vector<int>(), (std::vector<int>{-1, 1}));
    EXPECT_EQ(m.get<std::uint64_t>("u64"), std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(m.get<std::int64_t>("i64"), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(m.get<double>("f64"), 0.1);
  });
}

TEST(GgufWriter, ArraysOfEveryElementAndArraysOfArrays) {
  Writer writer;
  writer.add("strings", std::vector<std::string>{"a", "", "ccc"});
  writer.add("views", std::vector<std::string_view>{"x"});
  writer.add("bools", std::vector<bool>{true, false, true});
  writer.add("floats", std::vector<float>{1, 2});
  writer.add("none", std::vector<std::uint16_t>{});
  using Rows = std::vector<std::vector<std::vector<std::vector<std::int32_t>>>>;
  writer.add("deep", Rows{{{{1, 2}, {}}}, {}});
  const auto bytes = writer.to_bytes();
  expect_opened(bytes, {}, [](const File& open) {
    const auto& m = open.metadata();
    EXPECT_EQ(m.get<Array>("strings").to_vector<std::string>(),
              (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_EQ(m.get<Array>("views")[0].get<std::string>(), "x");
    EXPECT_EQ(m.get<Array>("bools").to_vector<bool>(), (std::vector<bool>{true, false, true}));
    EXPECT_EQ(m.get<Array>("floats").to_vector<float>(), (std::vector<float>{1, 2}));
    EXPECT_TRUE(m.get<Array>("none").empty());
    const Array deep = m.get<Array>("deep");
    EXPECT_EQ(deep.size(), 2u);
    EXPECT_EQ(deep[0].get<Array>()[0].get<Array>()[0].get<Array>().to_vector<int>(),
              (std::vector<int>{1, 2}));
    EXPECT_TRUE(deep[1].get<Array>().empty());
  });
  // Copied from the file, the metadata is the same bytes.
  const File open = File::from_bytes(bytes);
  Writer copy;
  copy.add_all(open.metadata());
  EXPECT_EQ(copy.to_bytes(), bytes);
}

TEST(GgufWriter, MetadataOfVersion1IsCopiedIntoVersion3) {
  const Bytes old = Bytes()
                        .text("GGUF")
                        .u32(1)
                        .u32(0)
                        .u32(2)
                        .string1("general.alignment")
                        .u32(4)
                        .u32(64)
                        .string1("a")
                        .u32(9)
                        .u32(8)
                        .u32(2)
                        .string1("x")
                        .string1("yz");
  const File open = File::from_bytes(old.data());
  Writer writer;
  writer.add_all(open.metadata());
  // The alignment of the old file stays behind.
  EXPECT_EQ(writer.to_bytes(),
            Bytes::header(0, 1).key("a", 9).u32(8).u64(2).string("x").string("yz").data());
}

TEST(GgufWriter, W1_NamesAndKeysAreCheckedAsStrictReadersDo) {
  Writer writer;
  writer.add("k", 1);
  static_cast<void>(support::error_of(ErrorCode::duplicate_key, [&] { writer.add("k", 2.0f); }));
  static_cast<void>(support::error_of(ErrorCode::bad_key, [&] { writer.add("", 1); }));
  static_cast<void>(
      support::error_of(ErrorCode::bad_key, [&] { writer.add(std::string_view("a\0", 2), 1); }));
  static_cast<void>(
      support::error_of(ErrorCode::bad_key, [&] { writer.add(std::string(65536, 'k'), 1); }));
  const auto data = Bytes().repeat(4);
  const auto add = [&](std::string_view name) { writer.add_tensor(name, 0, {1}, data.data()); };
  add("w");
  static_cast<void>(support::error_of(ErrorCode::duplicate_tensor, [&] { add("w"); }));
  static_cast<void>(support::error_of(ErrorCode::bad_tensor_name, [&] { add(""); }));
  static_cast<void>(
      support::error_of(ErrorCode::bad_tensor_name, [&] { add(std::string_view("a\0b", 3)); }));
  static_cast<void>(
      support::error_of(ErrorCode::bad_tensor_name, [&] { add(std::string(64, 'n')); }));
  add(std::string(63, 'n'));
  // What was refused left no trace.
  expect_opened(writer.to_bytes(), strict, [](const File& open) {
    EXPECT_EQ(open.metadata().size(), 1u);
    EXPECT_EQ(open.tensors().size(), 2u);
  });
}

TEST(GgufWriter, W2_TheAlignmentIsAPowerOfTwoAndSetOnce) {
  for (const std::uint32_t bad : {0u, 3u, 24u})
    static_cast<void>(
        support::error_of(ErrorCode::alignment_value, [&] { static_cast<void>(Writer(bad)); }));
  Writer writer(64);
  static_cast<void>(
      support::error_of(ErrorCode::alignment_value, [&] { writer.add("general.alignment", 32u); }));
  EXPECT_EQ(writer.to_bytes(), Bytes::header(0, 1).alignment(64).data());
}

TEST(GgufWriter, W3_TensorsArePackedForEveryAlignment) {
  const auto blocks = support::counting_weight(2, 1);
  for (const std::uint32_t alignment : {1u, 8u, 32u, 256u}) {
    Writer writer(alignment);
    for (int i = 0; i < 5; ++i)
      writer.add_weight("w" + std::to_string(i), PackedView<Q4_0, RowMajor>(blocks, OutIn{2, 32}));
    Options options = strict;
    options.zero_padding = true;
    expect_opened(writer.to_bytes(), options, [&](const File& open) {
      EXPECT_EQ(open.alignment(), alignment);
      for (const auto& tensor : open.tensors()) {
        EXPECT_EQ(tensor.offset % alignment, 0u);
        EXPECT_EQ(open.weight<Q4_0>(tensor.name).get(1, 0), 2.0f);
      }
    });
  }
}

TEST(GgufWriter, W4_SizesBeyondFourGibibytesAreReckonedIn64Bits) {
  // Never written: only the size is asked for, and the offset that the table gets.
  const std::size_t large = (std::size_t{1} << 32) + 32;
  std::byte one{};
  Writer writer;
  writer.add_tensor("a", 24, {large}, std::span<const std::byte>(&one, large));
  writer.add_tensor("b", 24, {1}, std::span<const std::byte>(&one, 1));
  EXPECT_EQ(writer.size(), 96u + large + 32u);
  std::vector<std::byte> header;
  try {
    writer.write_to([&](std::span<const std::byte> part) {
      header.assign(part.begin(), part.end());
      throw std::runtime_error("enough");
    });
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(
      header,
      Bytes::header(2, 0).tensor("a", {large}, 24, 0).tensor("b", {1}, 24, large).pad().data());
}

TEST(GgufWriter, W5_TensorsKeepTheExtentsThatTheyAreGiven) {
  const auto data = Bytes().repeat(24 * 4);
  Writer writer;
  writer.add_tensor("four", 0, {2, 3, 4, 1}, data.data());
  writer.add_tensor("three", 0, {2, 3, 4}, data.data());
  expect_opened(writer.to_bytes(), strict, [](const File& open) {
    for (const auto& tensor : open.tensors())
      EXPECT_EQ(tensor.extents, (std::array<std::uint64_t, 4>{2, 3, 4, 1}));
  });
}

TEST(GgufWriter, W7_BoolsAreZeroAndOne) {
  Writer writer;
  writer.add("t", true);
  writer.add("f", false);
  EXPECT_EQ(writer.to_bytes(), Bytes::header(0, 2).key("t", 7).u8(1).key("f", 7).u8(0).data());
}

TEST(GgufWriter, W8_TheSameCallsGiveTheSameBytes) {
  const auto blocks = support::counting_weight(4, 3);
  const auto make = [&] {
    Writer writer;
    writer.add("k", std::vector<std::string>{"a", "b"});
    writer.add_weight("w", PackedView<Q4_0, RowMajor>(blocks, OutIn{4, 96}).narrow_blocks(1, 2));
    return writer.to_bytes();
  };
  EXPECT_EQ(make(), make());
}

TEST(GgufWriter, ShapesAndSizesMustAgree) {
  const auto data = Bytes().repeat(36);
  Writer writer;
  const auto code_of = [&](ErrorCode code, std::uint32_t type,
                           std::initializer_list<std::uint64_t> extents, std::size_t bytes) {
    return support::error_of(
        code, [&] { writer.add_tensor("w", type, extents, std::span(data.data()).first(bytes)); });
  };
  EXPECT_TRUE(
      contains(code_of(ErrorCode::size_mismatch, 2, {32, 2}, 35), "takes 36 bytes, got 35"));
  static_cast<void>(code_of(ErrorCode::row_not_blocks, 2, {16, 4}, 36));
  static_cast<void>(code_of(ErrorCode::too_many_dims, 2, {32, 2, 1, 1, 1}, 36));
  static_cast<void>(code_of(ErrorCode::removed_type, 36, {32, 2}, 36));
  static_cast<void>(code_of(ErrorCode::unknown_type, 43, {32, 2}, 36));
  static_cast<void>(code_of(ErrorCode::element_overflow, 24, {1ull << 32, 1ull << 32}, 36));
  EXPECT_EQ(writer.to_bytes(), Writer().to_bytes());
}

TEST(GgufWriter, AFileIsReplacedWhenItIsComplete) {
  const TemporaryFile file(Bytes().text("old"));
  Writer writer;
  writer.add("k", 5);
  writer.write(file.path());
  EXPECT_EQ(content_of(file.path()), writer.to_bytes());
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.folder()), {}), 1);
}

TEST(GgufWriter, AMappedFileMayBeReplacedFromItself) {
  const auto blocks = support::counting_weight(2, 1);
  Writer first;
  first.add_weight("w", PackedView<Q4_0, RowMajor>(blocks, OutIn{2, 32}));
  const TemporaryFile file(first.to_bytes());
  const File open = File::map(file.path());
  Writer second;
  second.add("note", "rewritten");
  second.add_weight("w", open.weight<Q4_0>("w"));
  second.write(file.path());
  EXPECT_EQ(open.weight<Q4_0>("w").get(1, 0), 2.0f);
  EXPECT_EQ(content_of(file.path()), second.to_bytes());
}

TEST(GgufWriter, AFolderThatIsNotThereIsAnError) {
  const TemporaryFile file;
  EXPECT_TRUE(
      contains(support::error_of(ErrorCode::file_write,
                                 [&] { Writer().write(file.folder() / "none" / "x.gguf"); }),
               "can't create"));
}

TEST(GgufWriter, ASinkThatFailsAtAnyPartGetsItsExceptionBack) {
  const auto blocks = support::counting_weight(2, 1);
  Writer writer;
  writer.add_weight("a", PackedView<Q4_0, RowMajor>(blocks, OutIn{2, 32}));
  writer.add_weight("b", PackedView<Q4_0, RowMajor>(blocks, OutIn{2, 32}));
  int parts = 0;
  writer.write_to([&](std::span<const std::byte>) { ++parts; });
  ASSERT_GT(parts, 2);
  for (int end = 0; end < parts; ++end) {
    int seen = 0;
    EXPECT_THROW(writer.write_to([&](std::span<const std::byte>) {
      if (seen++ == end) throw std::range_error("full");
    }),
                 std::range_error);
  }
}

#if defined(__unix__) || defined(__APPLE__)
/// While this lives, no file of this process can grow beyond `bytes`, as on a full disk.
class FullDisk {
public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limited{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(GgufWriter, AFullDiskLeavesTheOldFileAndNoOther) {
  const Bytes old = Bytes().text("old");
  const TemporaryFile file(old);
  const std::vector<std::byte> data(100000, std::byte{7});
  Writer writer;
  writer.add_tensor("w", 24, {data.size()}, data);
  for (const rlim_t space : {0u, 10u, 50000u, 100000u}) {
    std::string message;
    {
      const FullDisk full(space);
      message = support::error_of(ErrorCode::file_write, [&] { writer.write(file.path()); });
    }
    EXPECT_TRUE(contains(message, "is as it was before"));
    EXPECT_EQ(content_of(file.path()), old.data());
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.folder()), {}), 1);
  }
  writer.write(file.path());
  EXPECT_EQ(content_of(file.path()), writer.to_bytes());
}
#endif

TEST(GgufWriter, RealWeightsAreCopiedByteForByte) {
  const std::filesystem::path path =
      std::filesystem::path(QUERN_SHARED_DIR) / "real" / "dense_layers.gguf";
  if (std::string(QUERN_SHARED_DIR).empty() || !std::filesystem::exists(path))
    GTEST_SKIP() << "real/dense_layers.gguf is not in the folder of shared test data";
  const File open = File::map(path);
  Writer writer(open.alignment());
  writer.add_all(open.metadata());
  for (const auto& tensor : open.tensors())
    writer.add_tensor(tensor.name, tensor.type_id, tensor.extents, open.bytes(tensor));
  const auto bytes = writer.to_bytes();
  const File copy = File::from_bytes(bytes, strict);
  EXPECT_EQ(copy.metadata().get<std::string>("general.name"),
            open.metadata().get<std::string>("general.name"));
  ASSERT_EQ(copy.tensors().size(), open.tensors().size());
  for (const auto& tensor : open.tensors())
    EXPECT_TRUE(std::ranges::equal(copy.bytes(tensor.name), open.bytes(tensor))) << tensor.name;
}

} // namespace
