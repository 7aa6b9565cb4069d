#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>
#include <quern/gguf/name_table.hpp>

#include "gguf_bytes.hpp"

// Opening is no slower than sorting, also for files made to be slow.

namespace {

using namespace gguf_test;

template <class Call>
double seconds(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What is measured is recorded. Only what no machine would take unless the work is quadratic fails:
// 10^5 or 10^6 entries then take minutes.
constexpr double limit = 30.0;

constexpr std::uint32_t key_count = 1000000;
constexpr std::uint32_t tensor_count = 100000;

TEST(GgufScale, AMillionKeysAndAHundredThousandTensors) {
  Bytes bytes = Bytes::header(tensor_count, key_count);
  for (std::uint32_t i = 0; i < key_count; ++i)
    bytes.key("some.prefix.key_" + std::to_string(i), 4).u32(i);
  for (std::uint32_t i = 0; i < tensor_count; ++i)
    bytes.tensor("blk." + std::to_string(i) + ".weight", {32, 1}, 2, std::uint64_t{i} * 32);
  bytes.pad().repeat(std::size_t{tensor_count} * 32);
  const double took = seconds([&] {
    const File open = File::from_bytes(bytes.data(), strict);
    EXPECT_EQ(open.metadata().get<std::uint32_t>("some.prefix.key_999999"), 999999u);
    EXPECT_EQ(open.tensors().at("blk.99999.weight").index, 99999u);
  });
  RecordProperty("seconds", std::to_string(took));
  EXPECT_LT(took, limit);
}

TEST(GgufScale, DataAgainstTheOrderOfTheTable) {
  Bytes bytes = Bytes::header(tensor_count, 0);
  for (std::uint32_t i = tensor_count; i-- > 0;)
    bytes.tensor("blk." + std::to_string(i) + ".weight", {32, 1}, 2, std::uint64_t{i} * 32);
  bytes.pad().repeat(std::size_t{tensor_count} * 32);
  const double took = seconds([&] {
    const File open = File::from_bytes(bytes.data());
    EXPECT_EQ(open.tensors()[0].offset, std::uint64_t{tensor_count - 1} * 32);
  });
  EXPECT_LT(took, limit);
}

TEST(GgufScale, AStringArrayOfAMillion) {
  Bytes bytes = Bytes::header(0, 1).key("tokens", 9).u32(8).u64(1000000);
  for (std::uint32_t i = 0; i < 1000000; ++i)
    bytes.string(std::to_string(i));
  const double took = seconds([&] {
    const File open = File::from_bytes(bytes.data());
    std::size_t characters = 0;
    for (const auto& value : open.metadata().get<quern::gguf::Array>("tokens"))
      characters += value.get<std::string_view>().size();
    EXPECT_EQ(characters, 5888890u);
  });
  EXPECT_LT(took, limit);
}

TEST(GgufScale, NamesWithOneHash) {
  // The worst that hashes can do is to be all equal; a single name for all items brings that about.
  quern::gguf::detail::NameTable table;
  const auto one_name = [](std::uint64_t) { return std::string_view("the same name"); };
  const double took = seconds([&] {
    const auto duplicate = table.build(key_count, one_name);
    ASSERT_TRUE(duplicate.has_value());
    EXPECT_EQ(duplicate->first, 0u);
    EXPECT_EQ(duplicate->second, 1u);
  });
  EXPECT_LT(took, limit);
}

} // namespace
