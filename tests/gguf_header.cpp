#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"

// The fields before the first key. Names carry the numbers of the table in docs/gguf.md.

namespace {

using namespace gguf_test;
using support::contains;

constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();

Bytes cut(Bytes bytes, std::size_t size) {
  bytes.data().resize(size);
  return bytes;
}

TEST(GgufHeader, H01_LessThanTheMagicIsTruncated) {
  for (const std::size_t size : {0u, 1u, 3u})
    expect_refused(cut(Bytes::header(0, 0), size), ErrorCode::truncated, {0});
}

TEST(GgufHeader, H02_LessThanTheHeaderIsTruncated) {
  expect_refused(cut(Bytes::header(0, 0), 4), ErrorCode::truncated, {4});
  expect_refused(cut(Bytes::header(0, 0), 7), ErrorCode::truncated, {4});
  expect_refused(cut(Bytes::header(0, 0), 8), ErrorCode::truncated, {8});
  expect_refused(cut(Bytes::header(0, 0), 15), ErrorCode::truncated, {8});
  expect_refused(cut(Bytes::header(0, 0), 23), ErrorCode::truncated, {16});
}

TEST(GgufHeader, H02_AHeaderAloneIsAFile) {
  for (const std::uint32_t version : {2u, 3u}) {
    expect_opened(Bytes::header(0, 0, version), strict, [&](const File& file) {
      EXPECT_EQ(file.version(), version);
      EXPECT_TRUE(file.tensors().empty());
      EXPECT_TRUE(file.metadata().empty());
      EXPECT_EQ(file.alignment(), 32u);
    });
  }
}

TEST(GgufHeader, H02_AHeaderOfVersion1HasSixteenBytes) {
  const Bytes header = Bytes().text("GGUF").u32(1).u32(0).u32(0);
  expect_opened(header);
  expect_refused(cut(header, 15), ErrorCode::truncated, {12});
}

TEST(GgufHeader, H03_EveryFieldThatIsCutOffIsTruncatedAtItsPosition) {
  // Key "k" of type u32: length at 24, name at 32, type at 33, value at 37.
  const Bytes file = Bytes::header(0, 1).key("k", 4).u32(5).repeat(10);
  EXPECT_TRUE(contains(expect_refused(cut(file, 40), ErrorCode::truncated, {37, 0, "k"}),
                       "4 bytes needed, 3 left"));
  // Tensor "w": length at 24, name at 32, extent count at 33, extents at 37 and 45, type at 53,
  // offset at 57.
  const Bytes table = Bytes::header(1, 0).tensor("w", {32, 2}, 2, 0);
  expect_refused(cut(table, 52), ErrorCode::truncated, {45, 0, "w"});
  expect_refused(cut(table, 56), ErrorCode::truncated, {53, 0, "w"});
  expect_refused(cut(table, 64), ErrorCode::truncated, {57, 0, "w"});
}

TEST(GgufHeader, H05_EverythingIsRelativeToTheStartOfTheGguf) {
  // expect_opened also opens it behind 7 other bytes: positions stay, and so does the padding.
  expect_opened(reference_file(), {}, [](const File& file) {
    EXPECT_EQ(file.data_position(), 96u);
    EXPECT_EQ(std::to_integer<int>(file.bytes("w").front()), 0x11);
  });
}

TEST(GgufHeader, H05_AnOffsetBeyondTheSourceIsTruncated) {
  const Bytes file = reference_file();
  Options options;
  options.offset = file.size() + 1;
  EXPECT_TRUE(contains(
      support::error_of(ErrorCode::truncated,
                        [&] { static_cast<void>(File::from_bytes(file.data(), options)); }),
      "is said to start at byte 133"));
  options.offset = file.size();
  static_cast<void>(support::error_of(
      ErrorCode::truncated, [&] { static_cast<void>(File::from_bytes(file.data(), options)); }));
}

TEST(GgufHeader, H06_BytesAfterTheLastTensorAreIgnored) {
  expect_opened(reference_file().pad().repeat(1000, 0xEE));
  expect_opened(reference_file().pad().repeat(1000, 0xEE), strict);
  expect_opened(Bytes::header(0, 0).text("junk"));
}

TEST(GgufHeader, H10_AnotherMagicIsRefused) {
  EXPECT_TRUE(contains(expect_refused(Bytes().text("NOPE").repeat(20), ErrorCode::bad_magic, {0}),
                       "\"NOPE\""));
  EXPECT_TRUE(
      contains(expect_refused(Bytes().text("FUGG").u32(3).repeat(16), ErrorCode::bad_magic, {0}),
               "in reverse"));
}

TEST(GgufHeader, H10_AGitLfsPointerIsNamed) {
  const Bytes pointer = Bytes().text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_TRUE(contains(expect_refused(pointer, ErrorCode::bad_magic, {0}), "Git LFS pointer"));
  EXPECT_FALSE(contains(expect_refused(Bytes().text("version 7"), ErrorCode::bad_magic, {0}),
                        "Git LFS pointer"));
}

TEST(GgufHeader, H10_FilesFromBeforeGgufAreNamed) {
  for (const char* const magic : {"lmgg", "fmgg", "tjgg", "algg"})
    EXPECT_TRUE(contains(expect_refused(Bytes().text(magic).repeat(60), ErrorCode::bad_magic, {0}),
                         "before GGUF"));
}

TEST(GgufHeader, H11_Versions1To3AreRead) {
  expect_opened(Bytes().text("GGUF").u32(1).u32(0).u32(0), {},
                [](const File& file) { EXPECT_EQ(file.version(), 1u); });
  expect_opened(Bytes::header(0, 0, 2), {},
                [](const File& file) { EXPECT_EQ(file.version(), 2u); });
  expect_opened(Bytes::header(0, 0, 3), {},
                [](const File& file) { EXPECT_EQ(file.version(), 3u); });
}

TEST(GgufHeader, H12_Version0IsUnsupported) {
  expect_refused(Bytes::header(0, 0, 0), ErrorCode::unsupported_version, {4});
}

TEST(GgufHeader, H13_ABigEndianFileIsRefusedWithAHint) {
  for (const std::uint32_t version : {0x01000000u, 0x02000000u, 0x03000000u}) {
    const std::string message =
        expect_refused(Bytes::header(0, 0, version), ErrorCode::foreign_endian, {4});
    EXPECT_TRUE(contains(message, "convert the file to little-endian"));
    EXPECT_TRUE(contains(message, "version " + std::to_string(version >> 24)));
  }
}

TEST(GgufHeader, H13_LowBitsOfZeroAloneAreNoBigEndianFile) {
  for (const std::uint32_t version : {0x04000000u, 0x00010000u, 0x03010000u})
    expect_refused(Bytes::header(0, 0, version), ErrorCode::unsupported_version, {4});
}

TEST(GgufHeader, H14_NewerVersionsAreUnsupportedAndTheHighestIsNamed) {
  for (const std::uint32_t version : {4u, 65539u, 0xFFFFFFFFu})
    EXPECT_TRUE(
        contains(expect_refused(Bytes::header(0, 0, version), ErrorCode::unsupported_version, {4}),
                 "versions 1 to 3"));
}

TEST(GgufHeader, H15_TensorCountMustFitTheRest) {
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{1} << 40, std::uint64_t{1} << 62, all_ones})
    EXPECT_TRUE(contains(expect_refused(Bytes::header(count, 0), ErrorCode::count_impossible, {8}),
                         "24 bytes"));
  // Two entries need 48 bytes at least: with 47 the count can't be true, with 48 it may be.
  expect_refused(Bytes::header(2, 0).repeat(47), ErrorCode::count_impossible, {8});
  expect_refused(Bytes::header(2, 0).repeat(48), ErrorCode::bad_tensor_name, {24, 0});
}

TEST(GgufHeader, H15_TensorCountOfVersion1) {
  const auto file = [](std::size_t rest) {
    return Bytes().text("GGUF").u32(1).u32(2).u32(0).repeat(rest);
  };
  expect_refused(file(39), ErrorCode::count_impossible, {8});
  expect_refused(file(40), ErrorCode::bad_tensor_name, {16, 0});
}

TEST(GgufHeader, H16_KeyCountMustFitTheRest) {
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{1} << 40, std::uint64_t{1} << 62, all_ones})
    EXPECT_TRUE(contains(expect_refused(Bytes::header(0, count), ErrorCode::count_impossible, {16}),
                         "14 bytes"));
  expect_refused(Bytes::header(0, 2).repeat(27), ErrorCode::count_impossible, {16});
  expect_refused(Bytes::header(0, 2).repeat(28), ErrorCode::bad_key, {24, 0});
}

TEST(GgufHeader, H16_KeyCountOfVersion1) {
  const auto file = [](std::size_t rest) {
    return Bytes().text("GGUF").u32(1).u32(0).u32(2).repeat(rest);
  };
  expect_refused(file(19), ErrorCode::count_impossible, {12});
  expect_refused(file(20), ErrorCode::bad_key, {16, 0});
}

TEST(GgufHeader, H17_CountsThatAreNegativeWhenSignedAreImpossible) {
  for (const std::uint64_t count : {std::uint64_t{1} << 63, all_ones - 1}) {
    expect_refused(Bytes::header(count, 0).repeat(100), ErrorCode::count_impossible, {8});
    expect_refused(Bytes::header(0, count).repeat(100), ErrorCode::count_impossible, {16});
  }
}

TEST(GgufHeader, H18_LimitsOfTheCaller) {
  const Bytes file = Bytes::header(1, 2)
                         .key("ab", 4)
                         .u32(5)
                         .key("c", 4)
                         .u32(5)
                         .tensor("w", {1}, 0, 0)
                         .pad()
                         .f32(1);
  const auto limited = [](auto set) {
    Options options;
    set(options.limits);
    return options;
  };
  expect_opened(file, limited([](auto& limits) {
                  limits.keys = 2;
                  limits.tensors = 1;
                  limits.key_bytes = 2;
                  limits.metadata_bytes = 35;
                  limits.tensor_name_bytes = 1;
                }));
  expect_refused(file, ErrorCode::limit_exceeded, {16},
                 limited([](auto& limits) { limits.keys = 1; }));
  expect_refused(file, ErrorCode::limit_exceeded, {8},
                 limited([](auto& limits) { limits.tensors = 0; }));
  expect_refused(file, ErrorCode::limit_exceeded, {24, 0},
                 limited([](auto& limits) { limits.key_bytes = 1; }));
  expect_refused(file, ErrorCode::limit_exceeded, {59, 1, "c"},
                 limited([](auto& limits) { limits.metadata_bytes = 34; }));
  expect_refused(file, ErrorCode::bad_tensor_name, {59, 0},
                 limited([](auto& limits) { limits.tensor_name_bytes = 0; }));
}

TEST(GgufHeader, H20_Version1IsReadAndStrictModeRefusesIt) {
  // 45 bytes of header and table, data at 64.
  const Bytes file = Bytes()
                         .text("GGUF")
                         .u32(1)
                         .u32(1)
                         .u32(0)
                         .string1("w")
                         .u32(2)
                         .u32(32)
                         .u32(2)
                         .u32(2)
                         .u64(0)
                         .pad(64)
                         .repeat(36, 0x11);
  expect_opened(file, {}, [](const File& open) {
    EXPECT_EQ(open.data_position(), 64u);
    const auto tensor = open.tensors().at("w");
    EXPECT_EQ(tensor.extents, (std::array<std::uint64_t, 4>{32, 2, 1, 1}));
    EXPECT_EQ(tensor.bytes, 36u);
    EXPECT_EQ(open.weight<quern::Q4_0>("w").out(), 2u);
  });
  expect_refused(file, ErrorCode::unsupported_version, {4}, strict);
}

TEST(GgufHeader, H20_MetadataOfVersion1HasNarrowLengths) {
  const Bytes file = Bytes()
                         .text("GGUF")
                         .u32(1)
                         .u32(0)
                         .u32(2)
                         .string1("s")
                         .u32(8)
                         .string1("text")
                         .string1("a")
                         .u32(9)
                         .u32(8) // an array of two strings
                         .u32(2)
                         .string1("x")
                         .string1("yz");
  expect_opened(file, {}, [](const File& open) {
    EXPECT_EQ(open.metadata().get<std::string_view>("s"), "text");
    const auto array = open.metadata().get<quern::gguf::Array>("a");
    EXPECT_EQ(array.to_vector<std::string>(), (std::vector<std::string>{"x", "yz"}));
  });
}

TEST(GgufHeader, H21_H24_Version2AndVersion3AreTheSame) {
  for (const std::uint32_t version : {2u, 3u}) {
    const Bytes file =
        Bytes::header(1, 1, version).key("k", 4).u32(5).tensor("w", {32, 2}, 2, 0).pad().repeat(36);
    expect_opened(file, {}, [](const File& open) {
      EXPECT_EQ(open.metadata().get<int>("k"), 5);
      EXPECT_EQ(open.bytes("w").size(), 36u);
    });
    expect_opened(Bytes(file).pad(), strict);
  }
}

TEST(GgufHeader, H22_ByteOrderIsNeverGuessedFromCounts) {
  // Swapped counts under a little-endian version are just impossible counts.
  const Bytes file = Bytes().text("GGUF").u32(3).u64(std::uint64_t{1} << 56).u64(0).repeat(64);
  expect_refused(file, ErrorCode::count_impossible, {8});
}

TEST(GgufHeader, H23_Version1HasNo64BitValueTypes) {
  for (std::uint32_t type = 10; type <= 13; ++type) {
    const Bytes scalar = Bytes().text("GGUF").u32(1).u32(0).u32(1).string1("k").u32(type).repeat(8);
    expect_refused(scalar, ErrorCode::bad_value_type, {21, 0, "k"});
    const Bytes array =
        Bytes().text("GGUF").u32(1).u32(0).u32(1).string1("k").u32(9).u32(type).u32(0);
    expect_refused(array, ErrorCode::bad_value_type, {25, 0, "k"});
  }
}

} // namespace
