#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"

// Keys, values and general.alignment. Names carry the numbers of the table in docs/gguf.md.

namespace {

using namespace gguf_test;
using quern::gguf::Array;
using quern::gguf::Value;
using quern::gguf::ValueType;
using support::contains;

constexpr std::uint32_t u8 = 0, i8 = 1, u16 = 2, i16 = 3, u32 = 4, i32 = 5, f32 = 6, boolean = 7,
                        string = 8, array = 9, u64 = 10, i64 = 11, f64 = 12;
constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();

/// A file without tensors; the entries come next.
Bytes keys(std::uint64_t count) {
  return Bytes::header(0, count);
}

TEST(GgufMetadata, H26_AKeyLongerThanTheRestIsRefused) {
  for (const std::uint64_t length : {std::uint64_t{1000}, std::uint64_t{1} << 63, all_ones}) {
    const std::string message =
        expect_refused(keys(1).u64(length).text("abcdef"), ErrorCode::string_past_end, {24, 0});
    EXPECT_TRUE(contains(message, "a key says " + std::to_string(length) + " bytes, 6 are left"));
  }
}

TEST(GgufMetadata, H27_AnEmptyKeyIsRefused) {
  expect_refused(keys(1).key("", u32).u32(1).repeat(8), ErrorCode::bad_key, {24, 0});
  expect_refused(keys(2).key("k", u32).u32(1).key("", u32).u32(1), ErrorCode::bad_key, {41, 1});
}

TEST(GgufMetadata, H28_AKeyOfMoreThan65535BytesIsLegalUnlessTheSpecIsEnforced) {
  const std::string name(65536, 'k');
  const Bytes file = keys(1).key(name, u32).u32(7);
  expect_opened(file, {}, [&](const File& open) { EXPECT_EQ(open.metadata().get<int>(name), 7); });
  Options spec;
  spec.spec_keys = true;
  expect_refused(file, ErrorCode::bad_key, {24, 0}, spec);
  expect_opened(keys(1).key(std::string(65535, 'k'), u32).u32(7), spec);
}

TEST(GgufMetadata, H29_AnyBytesMakeAKeyUnlessTheSpecIsEnforced) {
  Options spec;
  spec.spec_keys = true;
  for (const std::string_view name :
       {"K", "a b", "\xFF\xFE", ".a", "a.", "a..b", "a-b", "\xC3\xA4"}) {
    const Bytes file = keys(1).key(name, u32).u32(7);
    expect_opened(file, {},
                  [&](const File& open) { EXPECT_EQ(open.metadata().get<int>(name), 7); });
    expect_refused(file, ErrorCode::bad_key, {24, 0}, spec);
  }
  for (const std::string_view name : {"a", "general.name", "a_1.b2"})
    expect_opened(keys(1).key(name, u32).u32(7), spec);
}

TEST(GgufMetadata, H30_ANulInAKeyIsRefused) {
  for (const std::string_view name :
       {std::string_view("\0", 1), std::string_view("a\0b", 3), std::string_view("a\0", 2)})
    EXPECT_TRUE(contains(
        expect_refused(keys(1).key(name, u32).u32(7).repeat(4), ErrorCode::bad_key, {24, 0}),
        "\\x00"));
}

TEST(GgufMetadata, H31_KeysAreUniqueByteForByte) {
  EXPECT_TRUE(
      contains(expect_refused(keys(3).key("k", u32).u32(1).key("m", u32).u32(1).key("k", u8).u8(1),
                              ErrorCode::duplicate_key, {58, 2, "k"}),
               "the same key as key 0"));
  expect_refused(keys(2).alignment(32).alignment(32), ErrorCode::duplicate_key,
                 {57, 1, "general.alignment"});
  expect_opened(keys(3).key("k", u8).u8(1).key("K", u8).u8(2).key("k ", u8).u8(3), {},
                [](const File& open) {
                  EXPECT_EQ(open.metadata().get<int>("k"), 1);
                  EXPECT_EQ(open.metadata().get<int>("K"), 2);
                  EXPECT_EQ(open.metadata().get<int>("k "), 3);
                });
}

TEST(GgufMetadata, H32_AnUnknownValueTypeIsRefused) {
  for (const std::uint32_t type : {13u, 14u, 255u, 0x80000000u, 0xFFFFFFFFu})
    EXPECT_TRUE(contains(
        expect_refused(keys(1).key("k", type).repeat(8), ErrorCode::bad_value_type, {33, 0, "k"}),
        "is " + std::to_string(type)));
}

TEST(GgufMetadata, H33_AScalarMustBeThereInFull) {
  constexpr std::array<std::size_t, 13> bytes{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  for (std::uint32_t type = 0; type < bytes.size(); ++type) {
    Bytes file = keys(1).key("kk", type);
    // An array's length is the field that is cut off, behind its element type.
    const std::uint64_t at = file.size() + (type == array ? 4 : 0);
    expect_refused(Bytes(file).repeat(bytes[type] - 1), ErrorCode::truncated, {at, 0, "kk"});
    expect_opened(file.repeat(bytes[type]), strict);
  }
}

TEST(GgufMetadata, H34_ABoolIsZeroOrOneExceptInLenientMode) {
  for (const int value : {2, 3, 128, 255}) {
    const auto byte = static_cast<std::uint8_t>(value);
    const Bytes scalar = keys(1).key("b", boolean).u8(byte);
    EXPECT_TRUE(contains(expect_refused(scalar, ErrorCode::bad_bool, {37, 0, "b"}),
                         "byte " + std::to_string(byte)));
    expect_refused(scalar, ErrorCode::bad_bool, {37, 0, "b"}, strict);
    expect_opened(scalar, lenient,
                  [](const File& open) { EXPECT_TRUE(open.metadata().get<bool>("b")); });
    const Bytes in_array = keys(1).key("b", array).u32(boolean).u64(4).u8(1).u8(0).u8(byte).u8(1);
    expect_refused(in_array, ErrorCode::bad_bool, {51, 0, "b"});
    expect_opened(in_array, lenient, [](const File& open) {
      EXPECT_EQ(open.metadata().get<Array>("b").to_vector<bool>(),
                (std::vector<bool>{true, false, true, true}));
    });
  }
  expect_opened(keys(2).key("f", boolean).u8(0).key("t", boolean).u8(1), strict,
                [](const File& open) {
                  EXPECT_FALSE(open.metadata().get<bool>("f"));
                  EXPECT_TRUE(open.metadata().get<bool>("t"));
                });
}

TEST(GgufMetadata, H35_AStringLongerThanTheRestIsRefused) {
  for (const std::uint64_t length : {std::uint64_t{4}, std::uint64_t{1} << 62, all_ones})
    expect_refused(keys(1).key("s", string).u64(length).text("abc"), ErrorCode::string_past_end,
                   {37, 0, "s"});
}

TEST(GgufMetadata, H35_StringsAreOpaqueAndUtf8IsAQuery) {
  using quern::gguf::is_utf8;
  const std::string_view bad("a\0\xFF\xC0", 4);
  expect_opened(keys(2).key("s", string).string(bad).key("e", string).string(""), strict,
                [&](const File& open) {
                  EXPECT_EQ(open.metadata().get<std::string_view>("s"), bad);
                  EXPECT_EQ(open.metadata().get<std::string>("s"), bad);
                  EXPECT_FALSE(is_utf8(open.metadata().get<std::string_view>("s")));
                  EXPECT_EQ(open.metadata().get<std::string_view>("e"), "");
                });
  for (const std::string_view good :
       {std::string_view(""), std::string_view("plain"), std::string_view("\0", 1),
        std::string_view("\xC2\x80\xDF\xBF"),
        std::string_view("\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80"),
        std::string_view("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF")})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const std::string_view other :
       {"\x80", "\xBF", "\xC2", "\xC2\x41", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xE1\x80", "\xE1\x80\x41", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xF1\x80\x80", "\xF1\x80\x80\x41", "\xF8\x88\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(other));
}

TEST(GgufMetadata, H36_AnUnknownElementTypeIsRefused) {
  for (const std::uint32_t type : {13u, 0xFFFFFFFFu})
    expect_refused(keys(1).key("a", array).u32(type).u64(0), ErrorCode::bad_value_type,
                   {37, 0, "a"});
}

TEST(GgufMetadata, H37_AnArrayLongerThanTheRestIsRefused) {
  const auto file = [](std::uint32_t type, std::uint64_t count, std::size_t rest) {
    return keys(1).key("a", array).u32(type).u64(count).repeat(rest);
  };
  for (const auto& [type, least] : {std::pair<std::uint32_t, std::uint64_t>{u8, 1},
                                    {u16, 2},
                                    {f32, 4},
                                    {f64, 8},
                                    {string, 8},
                                    {array, 12}}) {
    for (const std::uint64_t count : {std::uint64_t{1} << 61, std::uint64_t{1} << 63, all_ones})
      expect_refused(file(type, count, 100), ErrorCode::array_past_end, {41, 0, "a"});
    // Three elements: with one byte less than they need at least, then with exactly that.
    expect_refused(file(type, 3, 3 * least - 1), ErrorCode::array_past_end, {41, 0, "a"});
    expect_opened(file(type, 3, 3 * least));
  }
}

TEST(GgufMetadata, H37_ArraysOfVersion1AreBoundedToo) {
  const auto file = [](std::uint32_t type, std::uint32_t count, std::size_t rest) {
    return Bytes()
        .text("GGUF")
        .u32(1)
        .u32(0)
        .u32(1)
        .string1("a")
        .u32(array)
        .u32(type)
        .u32(count)
        .repeat(rest);
  };
  expect_refused(file(string, 3, 11), ErrorCode::array_past_end, {29, 0, "a"});
  expect_opened(file(string, 3, 12));
  expect_refused(file(array, 3, 23), ErrorCode::array_past_end, {29, 0, "a"});
  expect_opened(file(array, 3, 24));
}

TEST(GgufMetadata, H37_StringsInAnArrayAreBoundedOneByOne) {
  expect_refused(keys(1).key("a", array).u32(string).u64(2).string("abc").u64(6).text("defgh"),
                 ErrorCode::string_past_end, {60, 0, "a"});
}

TEST(GgufMetadata, H38_EmptyArraysOfEveryTypeAreLegal) {
  for (std::uint32_t type = 0; type <= 12; ++type)
    expect_opened(keys(1).key("a", array).u32(type).u64(0), type == array ? Options{} : strict,
                  [&](const File& open) {
                    const Array empty = open.metadata().get<Array>("a");
                    EXPECT_EQ(empty.size(), 0u);
                    EXPECT_TRUE(empty.begin() == empty.end());
                    EXPECT_EQ(static_cast<std::uint32_t>(empty.element_type()), type);
                  });
}

/// An array of `depth` levels around one u32 of 7.
Bytes nested(std::size_t depth) {
  Bytes file = keys(1).key("a", array);
  for (std::size_t level = 1; level < depth; ++level)
    file.u32(array).u64(1);
  return file.u32(u32).u64(1).u32(7);
}

TEST(GgufMetadata, H39_ArraysOfArraysGoFourDeep) {
  for (std::size_t depth = 1; depth <= 4; ++depth)
    expect_opened(nested(depth), {}, [&](const File& open) {
      Value value = open.metadata().at("a");
      for (std::size_t level = 0; level < depth; ++level) {
        const Array inner = value.get<Array>();
        ASSERT_EQ(inner.size(), 1u);
        value = inner[0];
      }
      EXPECT_EQ(value.get<int>(), 7);
    });
  // The fifth level starts behind four array headers of 12 bytes.
  for (const std::size_t depth : {5u, 6u, 100000u})
    expect_refused(nested(depth), ErrorCode::nested_too_deep, {37 + 4 * 12, 0, "a"});
}

TEST(GgufMetadata, H39_StrictModeRefusesArraysOfArrays) {
  expect_opened(nested(1), strict);
  for (const std::size_t depth : {2u, 4u, 5u})
    expect_refused(nested(depth), ErrorCode::bad_value_type, {37, 0, "a"}, strict);
}

TEST(GgufMetadata, H39_RaggedArraysAreWalkedInOrder) {
  // {{1, 2}, {}, {3}}
  const Bytes file = keys(2)
                         .key("a", array)
                         .u32(array)
                         .u64(3)
                         .u32(u16)
                         .u64(2)
                         .u16(1)
                         .u16(2)
                         .u32(string)
                         .u64(0)
                         .u32(u8)
                         .u64(1)
                         .u8(3)
                         .key("after", u8)
                         .u8(9);
  expect_opened(file, {}, [](const File& open) {
    std::vector<std::vector<int>> all;
    for (const Value& inner : open.metadata().get<Array>("a"))
      all.push_back(inner.get<Array>().to_vector<int>());
    EXPECT_EQ(all, (std::vector<std::vector<int>>{{1, 2}, {}, {3}}));
    EXPECT_EQ(open.metadata().get<Array>("a")[2].get<Array>()[0].get<int>(), 3);
    EXPECT_EQ(open.metadata().get<int>("after"), 9);
  });
}

TEST(GgufMetadata, H3A_ArraysAreDecodedOnRequestInAnyOrder) {
  Bytes file = keys(2).key("words", array).u32(string).u64(1000);
  for (int i = 0; i < 1000; ++i)
    file.string("word " + std::to_string(i));
  file.key("scores", array).u32(f32).u64(1000);
  for (int i = 0; i < 1000; ++i)
    file.f32(static_cast<float>(i) / 2);
  expect_opened(file, strict, [](const File& open) {
    const Array words = open.metadata().get<Array>("words");
    const Array scores = open.metadata().get<Array>("scores");
    EXPECT_EQ(words.size(), 1000u);
    EXPECT_EQ(words[999].get<std::string_view>(), "word 999");
    EXPECT_EQ(words[0].get<std::string_view>(), "word 0");
    EXPECT_EQ(words.to_vector<std::string>().at(500), "word 500");
    EXPECT_EQ(scores[7].get<float>(), 3.5f);
    EXPECT_EQ(scores.to_vector<double>().back(), 499.5);
    // A string is a view of the file's own bytes: two requests give the same address.
    EXPECT_EQ(words[3].get<std::string_view>().data(), words[3].get<std::string_view>().data());
    EXPECT_TRUE(contains(
        support::error_of(ErrorCode::out_of_range, [&] { static_cast<void>(scores[1000]); }),
        "element 1000 of an array of 1000"));
    static_cast<void>(
        support::error_of(ErrorCode::out_of_range, [&] { static_cast<void>(words[1000]); }));
  });
}

/// One entry of each scalar type.
Bytes every_type() {
  return keys(13)
      .key("u8", u8)
      .u8(200)
      .key("i8", i8)
      .i8(-100)
      .key("u16", u16)
      .u16(60000)
      .key("i16", i16)
      .i16(-30000)
      .key("u32", u32)
      .u32(4000000000u)
      .key("i32", i32)
      .i32(-2000000000)
      .key("f32", f32)
      .f32(0.1f)
      .key("bool", boolean)
      .u8(1)
      .key("string", string)
      .string("text")
      .key("array", array)
      .u32(i64)
      .u64(2)
      .i64(-1)
      .i64(1)
      .key("u64", u64)
      .u64(all_ones)
      .key("i64", i64)
      .i64(std::numeric_limits<std::int64_t>::min())
      .key("f64", f64)
      .f64(0.1);
}

TEST(GgufMetadata, H3B_EveryTypeReadsAsItself) {
  expect_opened(every_type(), strict, [](const File& open) {
    const auto& m = open.metadata();
    EXPECT_EQ(m.get<std::uint8_t>("u8"), 200);
    EXPECT_EQ(m.get<std::int8_t>("i8"), -100);
    EXPECT_EQ(m.get<std::uint16_t>("u16"), 60000);
    EXPECT_EQ(m.get<std::int16_t>("i16"), -30000);
    EXPECT_EQ(m.get<std::uint32_t>("u32"), 4000000000u);
    EXPECT_EQ(m.get<std::int32_t>("i32"), -2000000000);
    EXPECT_EQ(m.get<float>("f32"), 0.1f);
    EXPECT_EQ(m.get<bool>("bool"), true);
    EXPECT_EQ(m.get<std::string_view>("string"), "text");
    EXPECT_EQ(m.get<Array>("array").to_vector<std::int64_t>(), (std::vector<std::int64_t>{-1, 1}));
    EXPECT_EQ(m.get<std::uint64_t>("u64"), all_ones);
    EXPECT_EQ(m.get<std::int64_t>("i64"), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(m.get<double>("f64"), 0.1);
    // The i-th entry in file order is of type i.
    std::uint32_t type = 0;
    for (const auto& [key, value] : m) {
      EXPECT_EQ(static_cast<std::uint32_t>(value.type()), type++);
      EXPECT_EQ(key, to_string(value.type()));
    }
    EXPECT_EQ(type, 13u);
  });
}

TEST(GgufMetadata, H3B_IntegersWidenAndNeverChangeTheirValue) {
  const Bytes bytes = every_type();
  const File open = File::from_bytes(bytes.data());
  const auto& m = open.metadata();
  EXPECT_EQ(m.get<std::uint64_t>("u8"), 200u);
  EXPECT_EQ(m.get<std::int16_t>("u8"), 200);
  EXPECT_EQ(m.get<std::int64_t>("i8"), -100);
  EXPECT_EQ(m.get<long long>("u32"), 4000000000LL);
  EXPECT_EQ(m.get<double>("f32"), static_cast<double>(0.1f));
  const auto refused = [&](auto as, const char* key) {
    using T = decltype(as);
    return support::error_of(ErrorCode::out_of_range, [&] { static_cast<void>(m.get<T>(key)); });
  };
  EXPECT_TRUE(
      contains(refused(std::int8_t{}, "u8"), "the value 200 does not fit a signed integer"));
  EXPECT_TRUE(contains(refused(std::uint8_t{}, "i8"), "-100"));
  EXPECT_TRUE(contains(refused(std::uint64_t{}, "i8"), "an unsigned integer of 64 bits"));
  EXPECT_TRUE(contains(refused(std::uint64_t{}, "i64"), "-9223372036854775808"));
  EXPECT_TRUE(contains(refused(std::int64_t{}, "u64"), "18446744073709551615"));
  EXPECT_TRUE(contains(refused(std::uint16_t{}, "u32"), "key 4 \"u32\""));
}

TEST(GgufMetadata, H3B_OtherTypesDoNotConvert) {
  const Bytes bytes = every_type();
  const File open = File::from_bytes(bytes.data());
  const auto& m = open.metadata();
  const auto refused = [&](auto ask) {
    try {
      ask();
      ADD_FAILURE();
    } catch (const quern::gguf::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::wrong_value_type) << error.what();
      EXPECT_FALSE(error.name().empty());
    }
  };
  refused([&] { static_cast<void>(m.get<int>("f32")); });
  refused([&] { static_cast<void>(m.get<int>("bool")); });
  refused([&] { static_cast<void>(m.get<bool>("u8")); });
  refused([&] { static_cast<void>(m.get<float>("f64")); });
  refused([&] { static_cast<void>(m.get<double>("u32")); });
  refused([&] { static_cast<void>(m.get<std::string_view>("array")); });
  refused([&] { static_cast<void>(m.get<int>("string")); });
  refused([&] { static_cast<void>(m.get<Array>("string")); });
  refused([&] { static_cast<void>(m.get<Array>("array").to_vector<float>()); });
}

TEST(GgufMetadata, LookupByKey) {
  const Bytes bytes = every_type();
  const File open = File::from_bytes(bytes.data());
  const auto& m = open.metadata();
  EXPECT_EQ(m.size(), 13u);
  EXPECT_TRUE(m.contains("u8"));
  EXPECT_FALSE(m.contains("u"));
  EXPECT_FALSE(m.contains(""));
  EXPECT_FALSE(m.find("missing").has_value());
  EXPECT_EQ(m.get_or<int>("missing", 5), 5);
  EXPECT_EQ(m.get_or<int>("u8", 5), 200);
  EXPECT_TRUE(contains(
      support::error_of(ErrorCode::no_such_key, [&] { static_cast<void>(m.at("missing")); }),
      "\"missing\""));
  static_cast<void>(support::error_of(ErrorCode::out_of_range, [&] { static_cast<void>(m[13]); }));
  static_cast<void>(support::error_of(ErrorCode::wrong_value_type,
                                      [&] { static_cast<void>(m.get_or<int>("string", 5)); }));
}

TEST(GgufMetadata, H3C_TheDeclaredFileTypeDecidesNothing) {
  // general.file_type 7 would say Q8_0.
  const Bytes file = Bytes::header(1, 1)
                         .key("general.file_type", u32)
                         .u32(7)
                         .tensor("w", {32, 2}, 2, 0)
                         .pad()
                         .repeat(36);
  expect_opened(file, {}, [](const File& open) {
    EXPECT_EQ(open.tensors().at("w").type->name, "Q4_0");
    EXPECT_EQ(open.metadata().get<int>("general.file_type"), 7);
  });
}

TEST(GgufMetadata, H3D_TheQuantizationVersionMayBeAbsentAndIsExposed) {
  expect_opened(reference_file());
  expect_opened(keys(1).key("general.quantization_version", u32).u32(2), {}, [](const File& open) {
    EXPECT_EQ(open.metadata().get<int>("general.quantization_version"), 2);
  });
}

TEST(GgufMetadata, H3E_FloatsPassThroughWhateverTheyAre) {
  const float inf = std::numeric_limits<float>::infinity();
  const Bytes file =
      keys(2).key("nan", f32).u32(0x7FC00001).key("inf", f64).f64(-static_cast<double>(inf));
  expect_opened(file, strict, [&](const File& open) {
    EXPECT_TRUE(std::isnan(open.metadata().get<float>("nan")));
    EXPECT_EQ(open.metadata().get<double>("inf"), -static_cast<double>(inf));
  });
}

TEST(GgufMetadata, StrictModeLimitsLengthsAsTheReferenceReaderDoes) {
  constexpr std::uint64_t most = std::uint64_t{1} << 30;
  for (const std::uint64_t count : {most, most + 1}) {
    const Bytes start = keys(1).key("a", array).u32(u8).u64(count);
    const TemporaryFile sparse(start);
    std::filesystem::resize_file(sparse.path(), start.size() + count);
    EXPECT_EQ(File::map(sparse.path()).version(), 3u);
    if (count == most) {
      EXPECT_EQ(File::map(sparse.path(), strict).version(), 3u);
    } else {
      EXPECT_TRUE(
          contains(support::error_of(ErrorCode::limit_exceeded,
                                     [&] { static_cast<void>(File::map(sparse.path(), strict)); }),
                   "1073741825"));
    }
  }
}

TEST(GgufAlignment, H40_WithoutTheKeyItIs32) {
  expect_opened(reference_file(), {}, [](const File& open) { EXPECT_EQ(open.alignment(), 32u); });
}

TEST(GgufAlignment, H41_OnlyU32IsTaken) {
  const std::string name = "general.alignment";
  const std::uint64_t position = 24 + 8 + name.size() + 4;
  expect_refused(keys(1).key(name, i32).i32(32), ErrorCode::alignment_type, {position, 0, name});
  expect_refused(keys(1).key(name, u64).u64(32), ErrorCode::alignment_type, {position, 0, name});
  expect_refused(keys(1).key(name, u8).u8(32), ErrorCode::alignment_type, {position, 0, name});
  expect_refused(keys(1).key(name, string).string("32"), ErrorCode::alignment_type,
                 {position, 0, name});
  expect_refused(keys(1).key(name, array).u32(u32).u64(1).u32(32), ErrorCode::alignment_type,
                 {position, 0, name});
  expect_refused(keys(1).key(name, i32).i32(32), ErrorCode::alignment_type, {position, 0, name},
                 lenient);
}

TEST(GgufAlignment, H42_OnlyPowersOfTwoAreTaken) {
  const std::string name = "general.alignment";
  for (const std::uint32_t value : {0u, 3u, 13u, 24u, 33u, 0xFFFFFFFFu})
    EXPECT_TRUE(contains(expect_refused(keys(1).alignment(value), ErrorCode::alignment_value,
                                        {24 + 8 + name.size() + 4, 0, name}),
                         "is " + std::to_string(value) + ", must be a power of two"));
}

TEST(GgufAlignment, H43_SmallAlignmentsAreLegalAndDataLiesAtAnyAddress) {
  for (const std::uint32_t value : {1u, 2u, 4u, 8u, 64u, 4096u}) {
    // Two tensors of 18 bytes.
    const std::size_t second = (18 + value - 1) / value * value;
    const Bytes file = Bytes::header(2, 1)
                           .alignment(value)
                           .tensor("a", {32}, 2, 0)
                           .tensor("b", {32}, 2, second)
                           .pad(value)
                           .repeat(second, 1)
                           .repeat(18, 2);
    expect_opened(file, {}, [&](const File& open) {
      EXPECT_EQ(open.alignment(), value);
      EXPECT_EQ(open.data_position() % value, 0u);
      EXPECT_EQ(std::to_integer<int>(open.bytes("b").front()), 2);
      EXPECT_EQ(open.weight<quern::Q4_0>("b").bytes(), 18u);
    });
    expect_opened(Bytes(file).pad(value), strict);
  }
}

TEST(GgufAlignment, H44_HugeAlignmentsNeedTheFileToReachTheirDataUnlessThereIsNone) {
  expect_opened(keys(1).alignment(1u << 31), strict,
                [](const File& open) { EXPECT_EQ(open.alignment(), 1u << 31); });
  const Bytes file = Bytes::header(1, 1).alignment(1u << 31).tensor("w", {1}, 0, 0);
  const std::uint64_t end = file.size();
  EXPECT_TRUE(contains(expect_refused(Bytes(file).repeat(64), ErrorCode::data_past_end, {end}),
                       "starts at byte 2147483648"));
  Options limited;
  limited.limits.alignment = 64;
  expect_refused(keys(1).alignment(128), ErrorCode::limit_exceeded,
                 {24 + 8 + 17 + 4, 0, "general.alignment"}, limited);
  expect_opened(keys(1).alignment(64), limited);
}

TEST(GgufAlignment, H45_PaddingIsZeroWhenTheTableEndsAligned) {
  // 24 + (8 + n + 4 + 8 + 4 + 8) = 64 with a name of 8 bytes.
  const Bytes file = Bytes::header(1, 0).tensor("abcdefgh", {1}, 0, 0);
  ASSERT_EQ(file.size(), 64u);
  expect_opened(Bytes(file).f32(2.5f), {}, [](const File& open) {
    EXPECT_EQ(open.data_position(), 64u);
    EXPECT_EQ(open.bytes("abcdefgh").size(), 4u);
  });
}

} // namespace
