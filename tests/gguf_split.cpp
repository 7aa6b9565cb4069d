#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/split.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"

// Models in several files. Names carry the numbers of the table in docs/gguf.md.

namespace {

using namespace gguf_test;
using quern::gguf::SplitName;
using quern::gguf::SplitSet;
using support::contains;

constexpr std::uint32_t u8 = 0, u16 = 2, i32 = 5, string = 8, u64 = 10;

/// Three files: the first with metadata and no tensor, then two tensors, then one.
class GgufSplit : public testing::Test {
protected:
  struct Shard {
    std::optional<std::uint16_t> number;
    std::optional<std::uint16_t> count = 3;
    std::optional<std::int32_t> total = 3;
    std::vector<std::string> tensors;
    std::uint32_t alignment = 32;
  };

  void SetUp() override {
    shards_ = {{0, 3, 3, {}, 32}, {1, 3, 3, {"a", "b"}, 64}, {2, 3, 3, {"c"}, 1}};
  }

  /// Byte i of every tensor of shard s is 16 * s.
  static Bytes bytes_of(const Shard& shard, std::size_t place) {
    Bytes metadata;
    std::uint64_t keys = 0;
    const auto add = [&](auto value, auto put) {
      if (!value) return;
      put(*value);
      ++keys;
    };
    add(shard.number, [&](std::uint16_t v) { metadata.key("split.no", u16).u16(v); });
    add(shard.count, [&](std::uint16_t v) { metadata.key("split.count", u16).u16(v); });
    add(shard.total, [&](std::int32_t v) { metadata.key("split.tensors.count", i32).i32(v); });
    metadata.alignment(shard.alignment);
    ++keys;
    if (place == 0) {
      metadata.key("general.architecture", string).string("llama");
      ++keys;
    }
    Bytes file = Bytes::header(shard.tensors.size(), keys).raw(metadata);
    const std::size_t step = (36 + shard.alignment - 1) / shard.alignment * shard.alignment;
    for (std::size_t i = 0; i < shard.tensors.size(); ++i)
      file.tensor(shard.tensors[i], {32, 2}, 2, i * step);
    file.pad(shard.alignment);
    for (std::size_t i = 0; i < shard.tensors.size(); ++i)
      file.repeat(36, static_cast<std::uint8_t>(16 * place)).repeat(step - 36);
    return file;
  }

  std::filesystem::path path_of(std::size_t number) const {
    return files_.folder() / ("model-0000" + std::to_string(number) + "-of-00003.gguf");
  }
  void write(std::size_t place, const Bytes& bytes) const {
    std::ofstream out(path_of(place + 1), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data().data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  void write_all() const {
    for (std::size_t place = 0; place < shards_.size(); ++place)
      write(place, bytes_of(shards_[place], place));
  }
  /// The message with which the set is refused, whichever file it is opened from.
  std::string refused(ErrorCode code) const {
    std::string message;
    for (std::size_t number = 1; number <= 3; ++number)
      for (const auto open : {&SplitSet::map, &SplitSet::read})
        message =
            support::error_of(code, [&] { static_cast<void>(open(path_of(number), Options{})); });
    return message;
  }

  std::vector<Shard> shards_;
  TemporaryFile files_;
};

TEST(GgufSplitName, H80_TheNameHasFiveDigitsThatCountFromOne) {
  const auto name = SplitName::parse("some-model-00002-of-00013.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "some-model");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 13u);
  EXPECT_EQ(name->name_of(13), "some-model-00013-of-00013.gguf");
  EXPECT_TRUE(SplitName::parse("m-99999-of-99999.gguf").has_value());
  for (const char* const other :
       {"", "model.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-0001-of-0002.gguf",
        "m-00001-of-00002", "m-00001-of-00002.GGUF", "m-00001_of-00002.gguf",
        "m-000x1-of-00002.gguf", "m-00001-of-0000 .gguf", "m000001-of-00002.gguf",
        "-00001-of-00002.gguf", "00001-of-00002.gguf", "m-+0001-of-00002.gguf",
        "m_00001-of-00002.gguf"})
    EXPECT_FALSE(SplitName::parse(other).has_value()) << other;
}

TEST_F(GgufSplit, H80_AnotherNameIsRefused) {
  const TemporaryFile file(reference_file(), "model.gguf");
  EXPECT_TRUE(contains(support::error_of(ErrorCode::split_name,
                                         [&] { static_cast<void>(SplitSet::map(file.path())); }),
                       "model.gguf"));
}

TEST_F(GgufSplit, H83_H84_OpenedFromAnyFileTheSetIsTheSame) {
  write_all();
  for (std::size_t number = 1; number <= 3; ++number)
    for (const auto open : {&SplitSet::map, &SplitSet::read}) {
      const SplitSet set = open(path_of(number), Options{});
      EXPECT_EQ(set.files().size(), 3u);
      EXPECT_EQ(set.size(), 3u);
      EXPECT_EQ(set.metadata().get<std::string>("general.architecture"), "llama");
      EXPECT_EQ(&set.file_of("b"), &set.files()[1]);
      EXPECT_EQ(set.find("d"), nullptr);
      EXPECT_EQ(std::to_integer<int>(set.weight<quern::Q4_0>("b").block(1, 0)[0]), 16);
      EXPECT_EQ(std::to_integer<int>(set.weight<quern::Q4_0>("c", 0u).block(1, 0)[0]), 32);
      EXPECT_EQ(set.weights<quern::Q4_0>("c")[0].data(), set.weight<quern::Q4_0>("c", 0u).data());
      set.visit_weight("c", [](const auto& view) { EXPECT_EQ(view.out(), 2u); });
      set.visit_weight("c", 0u, [](const auto& view) { EXPECT_EQ(view.out(), 2u); });
      EXPECT_TRUE(contains(support::error_of(ErrorCode::no_such_tensor,
                                             [&] { static_cast<void>(set.file_of("d")); }),
                           "no tensor \"d\" among the 3 of 3 files"));
    }
}

TEST_F(GgufSplit, H81_AnyIntegerTypeInRangeIsTaken) {
  write_all();
  write(0, Bytes::header(0, 3)
               .key("split.no", u64)
               .u64(0)
               .key("split.count", u8)
               .u8(3)
               .key("split.tensors.count", u64)
               .u64(3));
  EXPECT_EQ(SplitSet::map(path_of(1)).size(), 3u);
}

TEST_F(GgufSplit, H81_MissingOrImpossibleKeysAreRefused) {
  const auto with = [&](auto change) {
    SetUp();
    change();
    write_all();
    return refused(ErrorCode::split_keys);
  };
  EXPECT_TRUE(contains(with([&] { shards_[1].number.reset(); }), "no key split.no"));
  EXPECT_TRUE(contains(with([&] { shards_[2].count.reset(); }), "no key split.count"));
  EXPECT_TRUE(contains(with([&] { shards_[0].total.reset(); }), "no key split.tensors.count"));
  EXPECT_TRUE(contains(with([&] { shards_[0].total = -1; }), "-1"));
  SetUp();
  write_all();
  write(1, Bytes::header(0, 1).key("split.no", string).string("1"));
  EXPECT_TRUE(contains(refused(ErrorCode::split_keys), "of type string"));
}

TEST_F(GgufSplit, H82_KeysThatContradictTheNameAreRefused) {
  shards_[1].number = 2;
  write_all();
  EXPECT_TRUE(contains(refused(ErrorCode::split_mismatch), "split.no is 2, by the name it is 1"));
  SetUp();
  shards_[2].count = 4;
  write_all();
  EXPECT_TRUE(contains(refused(ErrorCode::split_mismatch), "split.count is 4"));
}

TEST_F(GgufSplit, H83_AMissingFileIsNamed) {
  for (std::size_t missing = 1; missing <= 3; ++missing) {
    write_all();
    std::filesystem::remove(path_of(missing));
    EXPECT_TRUE(contains(refused(ErrorCode::split_missing), path_of(missing).filename().string()));
  }
}

TEST_F(GgufSplit, H83_OneFileUnderTwoNumbersIsNoSet) {
  write_all();
  std::filesystem::remove(path_of(3));
  std::filesystem::copy_file(path_of(2), path_of(3));
  static_cast<void>(refused(ErrorCode::split_mismatch));
}

TEST_F(GgufSplit, H85_TheSumOfTensorsIsTheDeclaredOne) {
  for (const int total : {0, 2, 4}) {
    for (Shard& shard : shards_)
      shard.total = total;
    write_all();
    EXPECT_TRUE(contains(refused(ErrorCode::split_count), "the files together have 3 tensors"));
  }
  SetUp();
  shards_[2].total = 4;
  write_all();
  EXPECT_TRUE(contains(refused(ErrorCode::split_count), "not the same as in the first file"));
}

TEST_F(GgufSplit, H4A_H85_NamesAreUniqueAcrossFiles) {
  shards_[2].tensors = {"a"};
  write_all();
  const std::string message = refused(ErrorCode::duplicate_tensor);
  EXPECT_TRUE(contains(message, "model-00003-of-00003.gguf: the tensor \"a\""));
  EXPECT_TRUE(contains(message, "number 2"));
}

TEST_F(GgufSplit, H86_EachFileHasItsOwnAlignment) {
  write_all();
  const SplitSet set = SplitSet::map(path_of(2));
  EXPECT_EQ(set.files()[0].alignment(), 32u);
  EXPECT_EQ(set.files()[1].alignment(), 64u);
  EXPECT_EQ(set.files()[2].alignment(), 1u);
}

TEST_F(GgufSplit, H87_OneOfOneIsACompleteFile) {
  const TemporaryFile file(reference_file(), "m-00001-of-00001.gguf");
  EXPECT_EQ(SplitSet::map(file.path()).size(), 1u);
  file.write(
      Bytes::header(1, 1).key("split.count", u16).u16(2).tensor("w", {1}, 0, 0).pad().repeat(4));
  static_cast<void>(support::error_of(ErrorCode::split_mismatch,
                                      [&] { static_cast<void>(SplitSet::map(file.path())); }));
}

TEST_F(GgufSplit, AFaultInsideAFileNamesTheFile) {
  write_all();
  write(1, Bytes().text("NOPE").repeat(20));
  EXPECT_TRUE(contains(refused(ErrorCode::bad_magic), "model-00002-of-00003.gguf"));
}

TEST_F(GgufSplit, H88_FilesAreOnlyRead) {
  write_all();
  std::vector<std::uintmax_t> sizes;
  for (std::size_t number = 1; number <= 3; ++number) {
    sizes.push_back(std::filesystem::file_size(path_of(number)));
    std::filesystem::permissions(path_of(number), std::filesystem::perms::owner_read);
  }
  static_cast<void>(SplitSet::map(path_of(1)));
  static_cast<void>(SplitSet::read(path_of(1)));
  for (std::size_t number = 1; number <= 3; ++number)
    EXPECT_EQ(std::filesystem::file_size(path_of(number)), sizes[number - 1]);
}

} // namespace
