#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"

// The tensor table and the data section. Names carry the numbers of the table in docs/gguf.md.

namespace {

using namespace gguf_test;
using support::contains;

constexpr std::uint32_t f32 = 0, q4_0 = 2, q8_0 = 8, q4_k = 12, i8 = 24, i64 = 27, f64 = 28;
constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();

/// A file of one tensor "w" with room for `data_bytes`.
Bytes one(const std::vector<std::uint64_t>& extents, std::uint32_t type, std::size_t data_bytes = 0,
          std::uint64_t offset = 0) {
  return Bytes::header(1, 0).tensor("w", extents, type, offset).pad().repeat(data_bytes);
}

// Places in such a file.
constexpr std::uint64_t name_at = 24;
constexpr std::uint64_t count_at = 33;
constexpr std::uint64_t extents_at = 37;
std::uint64_t type_at(std::size_t extents) {
  return extents_at + 8 * extents;
}
std::uint64_t offset_at(std::size_t extents) {
  return type_at(extents) + 4;
}

TEST(GgufTensors, H46_ANameLongerThanTheRestIsRefused) {
  for (const std::uint64_t length : {std::uint64_t{33}, std::uint64_t{1} << 62, all_ones})
    expect_refused(Bytes::header(1, 0).u64(length).repeat(32, 'n'), ErrorCode::string_past_end,
                   {name_at, 0});
}

TEST(GgufTensors, H47_ANameHasAtMost64BytesAndInStrictMode63) {
  const auto file = [](std::size_t length) {
    return Bytes::header(1, 0).tensor(std::string(length, 'n'), {1}, f32, 0).pad().repeat(32);
  };
  expect_opened(file(63), strict);
  expect_opened(file(64), {}, [](const File& open) {
    EXPECT_TRUE(open.tensors().contains(std::string(64, 'n')));
    EXPECT_FALSE(open.tensors().contains(std::string(63, 'n')));
  });
  expect_refused(file(64), ErrorCode::bad_tensor_name, {name_at, 0}, strict);
  EXPECT_TRUE(contains(expect_refused(file(65), ErrorCode::bad_tensor_name, {name_at, 0}),
                       "has 65 bytes, at most 64 are allowed"));
  Options longer;
  longer.limits.tensor_name_bytes = 100;
  expect_opened(file(100), longer);
  expect_refused(file(101), ErrorCode::bad_tensor_name, {name_at, 0}, longer);
}

TEST(GgufTensors, H48_AnEmptyNameIsRefused) {
  const Bytes file = Bytes::header(1, 0).tensor("", {1}, f32, 0).pad().repeat(32);
  for (const Options& options : {Options{}, strict, lenient})
    expect_refused(file, ErrorCode::bad_tensor_name, {name_at, 0}, options);
}

TEST(GgufTensors, H49_ANulInANameIsRefused) {
  for (const std::string_view name : {std::string_view("a\0b", 3), std::string_view("\0", 1)})
    expect_refused(Bytes::header(1, 0).tensor(name, {1}, f32, 0).pad().repeat(32),
                   ErrorCode::bad_tensor_name, {name_at, 0});
}

TEST(GgufTensors, H4A_NamesAreUnique) {
  const Bytes file = Bytes::header(3, 0)
                         .tensor("w", {8}, f32, 0)
                         .tensor("v", {8}, f32, 32)
                         .tensor("w", {8}, f32, 64)
                         .pad()
                         .repeat(96);
  EXPECT_TRUE(
      contains(expect_refused(file, ErrorCode::duplicate_tensor, {name_at + 2 * 33, 2, "w"}),
               "the same name as tensor 0"));
}

TEST(GgufTensors, H50_AtMostFourExtents) {
  expect_opened(one({1, 2, 3, 4}, f32, 96), strict);
  expect_refused(one({1, 1, 1, 1, 1}, f32, 32), ErrorCode::too_many_dims, {count_at, 0, "w"});
  for (const std::uint32_t count : {5u, 0x80000000u, 0xFFFFFFFFu}) {
    // Refused before any extent is read: there is none.
    const Bytes file = Bytes::header(1, 0).string("w").u32(count).repeat(12);
    EXPECT_TRUE(contains(expect_refused(file, ErrorCode::too_many_dims, {count_at, 0, "w"}),
                         std::to_string(count) + " extents"));
  }
}

TEST(GgufTensors, H51_MissingExtentsAreOne) {
  expect_opened(one({}, f32, 4), {}, [](const File& open) {
    const auto tensor = open.tensors().at("w");
    EXPECT_EQ(tensor.extents, (std::array<std::uint64_t, 4>{1, 1, 1, 1}));
    EXPECT_EQ(tensor.elements, 1u);
    EXPECT_EQ(tensor.bytes, 4u);
  });
  expect_refused(one({}, q4_0, 32), ErrorCode::row_not_blocks, {extents_at, 0, "w"});
  for (const std::vector<std::uint64_t>& same :
       {std::vector<std::uint64_t>{32, 2}, {32, 2, 1}, {32, 2, 1, 1}})
    expect_opened(one(same, q4_0, 36), {}, [](const File& open) {
      EXPECT_EQ(open.tensors()[0].extents, (std::array<std::uint64_t, 4>{32, 2, 1, 1}));
      EXPECT_TRUE(open.tensors()[0].is_matrix());
    });
}

TEST(GgufTensors, H52_AProductThatDoesNotFitIsRefused) {
  constexpr std::uint64_t one_ = 1;
  struct Shape {
    std::vector<std::uint64_t> extents;
    std::vector<std::uint32_t> types;
  };
  const Shape shapes[] = {
      {{one_ << 32, one_ << 32}, {i8, f32, q4_0}},
      {{one_ << 31, one_ << 31, 4}, {i8}},
      {{one_ << 22, one_ << 21, one_ << 21}, {f32}},
      {{one_ << 16, one_ << 16, one_ << 16, one_ << 16}, {q8_0}},
      {{(one_ << 33) - 4, (one_ << 33) - 4}, {i8}},
      {{(one_ << 63) - 1}, {i8}},
      {{one_ << 62, 2}, {i8}},
      // A zero afterwards hides nothing.
      {{one_ << 32, one_ << 32, 0}, {i8}},
  };
  for (const Shape& shape : shapes)
    for (const std::uint32_t type : shape.types)
      EXPECT_TRUE(contains(expect_refused(one(shape.extents, type, 64), ErrorCode::element_overflow,
                                          {extents_at, 0, "w"}),
                           "element count overflow"));
}

TEST(GgufTensors, H53_AnExtentThatIsNegativeWhenSignedIsRefused) {
  for (const std::uint64_t extent : {std::uint64_t{1} << 63, all_ones}) {
    expect_refused(one({extent}, i8, 64), ErrorCode::element_overflow, {extents_at, 0, "w"});
    expect_refused(one({0, extent}, i8, 64), ErrorCode::element_overflow, {extents_at, 0, "w"});
  }
}

TEST(GgufTensors, H54_AZeroExtentIsAnEmptyTensor) {
  for (const std::vector<std::uint64_t>& extents : {std::vector<std::uint64_t>{0},
                                                    {0, 2},
                                                    {32, 0},
                                                    {32, 2, 0},
                                                    {0, 0, 0, 0},
                                                    {0, std::uint64_t{1} << 62, 4}})
    expect_opened(one(extents, q4_0), strict, [](const File& open) {
      EXPECT_EQ(open.tensors().at("w").elements, 0u);
      EXPECT_TRUE(open.bytes("w").empty());
    });
  expect_opened(one({32, 0}, q4_0), {}, [](const File& open) {
    const auto view = open.weight<quern::Q4_0>("w");
    EXPECT_EQ(view.out(), 0u);
    EXPECT_EQ(view.in(), 32u);
    EXPECT_TRUE(view.to_floats().empty());
  });
}

TEST(GgufTensors, H55_RemovedTypesAreNamedAsSuch) {
  for (const std::uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    const std::string message =
        expect_refused(one({32}, type, 64), ErrorCode::removed_type, {type_at(1), 0, "w"});
    EXPECT_TRUE(contains(message, "removed type " + std::to_string(type)));
    EXPECT_TRUE(contains(message, "other projects reuse"));
  }
}

TEST(GgufTensors, H55_UnknownTypesAreRefused) {
  for (const std::uint32_t type : {43u, 100u, 105u, 0x80000000u, 0xFFFFFFFFu}) {
    const std::string message =
        expect_refused(one({32}, type, 64), ErrorCode::unknown_type, {type_at(1), 0, "w"});
    EXPECT_TRUE(contains(message, "unknown type " + std::to_string(type)));
    EXPECT_TRUE(contains(message, "the highest known is 42"));
    expect_refused(one({32}, type, 64), ErrorCode::unknown_type, {type_at(1), 0, "w"}, strict);
  }
}

TEST(GgufTensors, H55_LenientModeKeepsTheRestUsable) {
  const Bytes file = Bytes::header(3, 1)
                         .key("k", 4)
                         .u32(5)
                         .tensor("odd", {7}, 105, 0)
                         .tensor("gone", {32}, 36, 32)
                         .tensor("w", {32, 2}, q4_0, 64)
                         .pad()
                         .repeat(64)
                         .repeat(36, 0x11);
  expect_opened(file, lenient, [](const File& open) {
    EXPECT_EQ(open.metadata().get<int>("k"), 5);
    EXPECT_EQ(open.tensors().size(), 3u);
    EXPECT_EQ(open.weight<quern::Q4_0>("w").out(), 2u);
    const auto odd = open.tensors().at("odd");
    EXPECT_EQ(odd.type, nullptr);
    EXPECT_EQ(odd.type_id, 105u);
    EXPECT_EQ(odd.extents[0], 7u);
    EXPECT_EQ(odd.bytes, 0u);
    EXPECT_TRUE(contains(
        support::error_of(ErrorCode::unknown_type, [&] { static_cast<void>(open.bytes("odd")); }),
        "unknown type 105"));
    EXPECT_TRUE(
        contains(support::error_of(ErrorCode::wrong_format,
                                   [&] { static_cast<void>(open.weight<quern::Q4_0>("gone")); }),
                 "removed type 36, not Q4_0"));
    static_cast<void>(support::error_of(ErrorCode::wrong_format,
                                        [&] { open.visit_weight("odd", [](const auto&) {}); }));
  });
  expect_refused(file, ErrorCode::unknown_type, {64, 0, "odd"});
}

TEST(GgufTensors, H55_LenientModeStillChecksTheOffsetOfAnUnknownType) {
  expect_refused(one({32}, 105, 64, 1), ErrorCode::offset_misaligned, {offset_at(1), 0, "w"},
                 lenient);
  expect_refused(one({32}, 105, 64, 96), ErrorCode::offset_past_end, {offset_at(1), 0, "w"},
                 lenient);
}

TEST(GgufTensors, H56_TheRowNotTheTotalIsAMultipleOfTheBlock) {
  for (const auto& [extents, type, block] :
       {std::tuple<std::vector<std::uint64_t>, std::uint32_t, const char*>{{31}, q4_0, "32"},
        {{33}, q4_0, "32"},
        {{16, 2}, q4_0, "32"},
        {{2, 96}, q4_0, "32"},
        {{128, 2}, q4_k, "256"},
        {{1, 32}, q4_0, "32"}})
    EXPECT_TRUE(contains(
        expect_refused(one(extents, type, 512), ErrorCode::row_not_blocks, {extents_at, 0, "w"}),
        "row length " + std::to_string(extents[0]) + " is not a multiple of " + block));
}

TEST(GgufTensors, H5A_AByteSizeThatDoesNotFitIsRefused) {
  expect_refused(one({3000000000000000000u}, f64, 64), ErrorCode::bytes_overflow,
                 {extents_at, 0, "w"});
  // Just above 2^64 bytes.
  expect_refused(one({(std::uint64_t{1} << 61) + 1}, i64, 64), ErrorCode::bytes_overflow,
                 {extents_at, 0, "w"});
}

TEST(GgufTensors, H5A_AByteSizeThatFitsIsReckonedExactly) {
  EXPECT_TRUE(contains(expect_refused(one({std::uint64_t{1} << 62}, q4_0, 64),
                                      ErrorCode::data_past_end, {offset_at(1), 0, "w"}),
                       "needs 2594073385365405696 bytes"));
  EXPECT_TRUE(contains(expect_refused(one({5124095576030431008u}, q4_0, 64),
                                      ErrorCode::data_past_end, {offset_at(1), 0, "w"}),
                       "needs 2882303761517117442 bytes"));
}

TEST(GgufTensors, H5B_ActivationTypesAreRawBytes) {
  for (const std::uint32_t id : {9u, 15u}) {
    const quern::gguf::Type& type = *quern::gguf::find_type(id);
    const std::size_t size = std::size_t{2} * type.bytes_per_block;
    expect_opened(one({type.block_size, 2}, id, size), {}, [&](const File& open) {
      EXPECT_EQ(open.bytes("w").size(), size);
      EXPECT_TRUE(contains(support::error_of(ErrorCode::wrong_format,
                                             [&] { open.visit_weight("w", [](const auto&) {}); }),
                           std::string(type.name) + ", which is no weight format"));
    });
  }
}

TEST(GgufTypes, TheTableIsThatOfTheReferenceReader) {
  struct Row {
    std::uint32_t id;
    const char* name;
    std::uint32_t block, bytes;
  };
  // As its library reports them.
  constexpr Row rows[] = {
      {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
      {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
      {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
      {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
      {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
      {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
      {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
      {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
      {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
      {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
      {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
  };
  std::size_t found = 0;
  for (std::uint32_t id = 0; id < 300; ++id) {
    const auto* const row =
        std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.id == id; });
    const auto* const type = quern::gguf::find_type(id);
    if (row == std::end(rows)) {
      EXPECT_EQ(type, nullptr) << id;
      EXPECT_EQ(quern::gguf::is_removed_type(id), id < 43) << id;
      continue;
    }
    ++found;
    ASSERT_NE(type, nullptr) << id;
    EXPECT_EQ(type->name, row->name);
    EXPECT_EQ(type->block_size, row->block) << row->name;
    EXPECT_EQ(type->bytes_per_block, row->bytes) << row->name;
    EXPECT_FALSE(quern::gguf::is_removed_type(id));
    EXPECT_EQ(quern::gguf::type_name(id), row->name);
  }
  EXPECT_EQ(found, std::size(rows));
  EXPECT_EQ(quern::gguf::types.size(), std::size(rows));
}

TEST(GgufData, H57_TheDataSectionMustStartInsideTheFile) {
  const Bytes file = Bytes::header(1, 0).tensor("w", {0}, f32, 0);
  const std::uint64_t end = file.size();
  ASSERT_NE(end % 32, 0u);
  // Even for a tensor without bytes.
  expect_refused(file, ErrorCode::data_past_end, {end});
  expect_opened(Bytes(file).pad());
  // Without a tensor no padding is needed.
  expect_opened(Bytes::header(0, 1).key("k", 0).u8(1), strict);
}

TEST(GgufData, H58_PaddingMayHoldAnythingUnlessTheSpecIsEnforced) {
  Options zero;
  zero.zero_padding = true;
  const auto file = [](std::uint8_t before, std::uint8_t between, std::uint8_t after) {
    const Bytes table = Bytes::header(2, 0).tensor("a", {32}, q4_0, 32).tensor("b", {32}, q4_0, 0);
    return Bytes(table)
        .repeat((32 - table.size() % 32) % 32, before)
        .repeat(18, 0xAA)
        .repeat(14, between)
        .repeat(18, 0xBB)
        .repeat(14, after)
        .repeat(100, 0xEE);
  };
  expect_opened(file(0, 0, 0), zero);
  expect_opened(file(1, 2, 3));
  const std::uint64_t table_end = 24 + 2 * 33;
  expect_refused(file(1, 0, 0), ErrorCode::not_packed, {table_end}, zero);
  EXPECT_TRUE(contains(expect_refused(file(0, 2, 0), ErrorCode::not_packed, {96 + 18}, zero),
                       "a padding byte is 2"));
  expect_refused(file(0, 0, 3), ErrorCode::not_packed, {96 + 32 + 18}, zero);
}

TEST(GgufData, H58_PaddingAfterTheLastTensorMayBeMissingEvenIfItMustBeZero) {
  Options zero;
  zero.zero_padding = true;
  expect_opened(reference_file(), zero);
  expect_opened(reference_file().repeat(5), zero);
  expect_refused(reference_file().repeat(4).u8(9), ErrorCode::not_packed, {96 + 36 + 4}, zero);
}

TEST(GgufData, H59_OffsetsAreMultiplesOfTheAlignment) {
  for (const std::uint64_t offset : {1u, 18u, 33u})
    EXPECT_TRUE(contains(expect_refused(one({32}, q4_0, 128, offset), ErrorCode::offset_misaligned,
                                        {offset_at(1), 0, "w"}),
                         "offset " + std::to_string(offset) + " is not a multiple"));
  // The second of two, where the first ends.
  expect_refused(
      Bytes::header(2, 0).tensor("a", {32}, q4_0, 0).tensor("b", {32}, q4_0, 18).pad().repeat(64),
      ErrorCode::offset_misaligned, {24 + 2 * 33 - 8, 1, "b"});
}

TEST(GgufData, H60_OffsetsLieInsideTheDataSection) {
  for (const std::uint64_t offset : {std::uint64_t{160}, std::uint64_t{1} << 63, all_ones - 31})
    EXPECT_TRUE(contains(expect_refused(one({32}, q4_0, 128, offset), ErrorCode::offset_past_end,
                                        {offset_at(1), 0, "w"}),
                         "beyond the 128 bytes"));
  expect_refused(one({32}, q4_0, 128, all_ones), ErrorCode::offset_misaligned,
                 {offset_at(1), 0, "w"});
  // With alignment 1 every offset is aligned.
  expect_refused(Bytes::header(1, 1).alignment(1).tensor("w", {32}, q4_0, all_ones).repeat(64),
                 ErrorCode::offset_past_end, {24 + 33 + 33 - 8, 0, "w"});
}

TEST(GgufData, H61_DataMustBeThereInFull) {
  for (std::size_t have = 0; have < 36; ++have) {
    const std::string message =
        expect_refused(reference_file(have), ErrorCode::data_past_end, {offset_at(2), 0, "w"});
    EXPECT_TRUE(contains(message, "tensor 0 \"w\""));
    EXPECT_TRUE(contains(message, "needs 36 bytes, the file has " + std::to_string(have)));
  }
}

TEST(GgufData, H62_ThePaddingAfterTheLastTensorIsOptionalExceptInStrictMode) {
  expect_opened(reference_file());
  expect_opened(reference_file().pad(), strict);
  for (std::size_t missing = 1; missing <= 28; ++missing)
    expect_refused(reference_file().repeat(28 - missing), ErrorCode::data_past_end,
                   {offset_at(2), 0, "w"}, strict);
}

/// Three Q4_0 tensors of 36 bytes each at these offsets.
Bytes three(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return Bytes::header(3, 0)
      .tensor("a", {32, 2}, q4_0, a)
      .tensor("b", {32, 2}, q4_0, b)
      .tensor("c", {32, 2}, q4_0, c)
      .pad()
      .repeat(320);
}
constexpr std::uint64_t offset_of_entry(std::uint64_t i) {
  return 24 + 41 * (i + 1) - 8;
}

TEST(GgufData, H63_DataDoesNotOverlap) {
  EXPECT_TRUE(contains(
      expect_refused(three(0, 0, 64), ErrorCode::data_overlap, {offset_of_entry(1), 1, "b"}),
      "inside that of tensor 0 \"a\""));
  expect_refused(three(0, 32, 96), ErrorCode::data_overlap, {offset_of_entry(1), 1, "b"});
  expect_refused(three(64, 0, 32), ErrorCode::data_overlap, {offset_of_entry(2), 2, "c"});
  expect_refused(three(96, 0, 64), ErrorCode::data_overlap, {offset_of_entry(0), 0, "a"});
  // A small one inside a large one.
  expect_refused(Bytes::header(2, 0)
                     .tensor("large", {64}, f32, 0)
                     .tensor("small", {1}, f32, 128)
                     .pad()
                     .repeat(320),
                 ErrorCode::data_overlap, {24 + 2 * 37 - 8, 1, "small"});
}

TEST(GgufData, H64_AnyOrderAndGapsAreLegalExceptInStrictMode) {
  expect_opened(three(0, 64, 128), strict);
  for (const auto& [file, place] : {std::pair{three(0, 64, 192), std::uint64_t{2}},
                                    {three(128, 64, 0), 0},
                                    {three(32, 96, 160), 0},
                                    {three(0, 128, 64), 1}}) {
    expect_opened(file);
    EXPECT_TRUE(contains(expect_refused(file, ErrorCode::not_packed,
                                        {offset_of_entry(place), place,
                                         std::string(1, static_cast<char>('a' + place))},
                                        strict),
                         "packed it would be"));
  }
}

TEST(GgufData, H65_EmptyTensorsMayLieAtAnyAlignedOffset) {
  const auto file = [](std::uint64_t offset) {
    return Bytes::header(3, 0)
        .tensor("a", {32, 2}, q4_0, 0)
        .tensor("e", {32, 0}, q4_0, offset)
        .tensor("z", {0}, f32, offset)
        .pad()
        .repeat(64);
  };
  for (const std::uint64_t offset : {0u, 32u, 64u})
    expect_opened(file(offset), {}, [](const File& open) { EXPECT_TRUE(open.bytes("e").empty()); });
  expect_opened(file(64), strict);
  expect_refused(file(96), ErrorCode::offset_past_end, {24 + 82 - 8, 1, "e"});
  expect_refused(file(1), ErrorCode::offset_misaligned, {24 + 82 - 8, 1, "e"});
}

TEST(GgufData, H66_ASumOfSizesThatWrapsIsRefused) {
  for (const Options& options : {Options{}, strict})
    expect_refused(Bytes::header(2, 0)
                       .tensor("a", {0x7FFFFFFFFFFFFFC0u}, i8, 0)
                       .tensor("b", {0x7FFFFFFFFFFFFFC0u}, i8, 0x7FFFFFFFFFFFFFC0u)
                       .pad()
                       .repeat(32),
                   ErrorCode::data_past_end, {24 + 33 - 8, 0, "a"}, options);
}

TEST(GgufData, H68_OffsetZeroIsAnOffset) {
  expect_opened(one({1}, f32, 4, 0), {}, [](const File& open) {
    EXPECT_EQ(open.tensors().at("w").offset, 0u);
    EXPECT_EQ(open.bytes("w").size(), 4u);
  });
}

TEST(GgufData, H69_WeightsAtOddAddressesReadTheSame) {
  // Alignment 1 and a name that puts the data at an odd place.
  const Bytes table = Bytes::header(1, 1).alignment(1).tensor("w", {32, 2}, q4_0, 0);
  const Bytes block = Bytes().u16(0x3C00).repeat(16, 0x21);
  for (const std::size_t shift : {0u, 1u, 2u, 3u}) {
    const Bytes file = Bytes().repeat(shift).raw(table).raw(block).raw(block);
    Options options;
    options.offset = shift;
    const File open = File::from_bytes(file.data(), options);
    const auto view = open.weight<quern::Q4_0>("w");
    for (std::size_t o = 0; o < 2; ++o) {
      EXPECT_EQ(view.get(o, 0), -7.0f);
      EXPECT_EQ(view.get(o, 31), -6.0f);
    }
  }
}

TEST(GgufData, H76_SizesOfAnotherBuildsSuperBlocksDoNotMatch) {
  // An early build option stored Q4_K as blocks of 64 values in 40 bytes under the same id: two
  // rows of 256 values take 320 bytes there, 288 here, so the next tensor overlaps or the file ends
  // early.
  const Bytes wrong = Bytes::header(2, 0)
                          .tensor("a", {256, 4}, q4_k, 0)
                          .tensor("b", {256}, q4_k, 544)
                          .pad()
                          .repeat(800);
  expect_refused(wrong, ErrorCode::data_overlap, {24 + 41 + 33 - 8, 1, "b"});
  expect_refused(one({256, 4}, q4_k, 544), ErrorCode::data_past_end, {offset_at(2), 0, "w"});
}

} // namespace
