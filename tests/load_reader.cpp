#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/q4_0.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/mapped_reader.hpp>
#include <quern/gguf/writer.hpp>

#include "support/temp_folder.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;

/// A file of two weights, some bytes into another file.
class MappedReaderTest : public testing::Test {
protected:
  static constexpr std::size_t offset = 5000; // not on a page

  void SetUp() override {
    gguf::Writer writer;
    writer.add_tensor("a", Q4_0::gguf_type, {96, 4}, blocks_);
    writer.add_tensor("b", Q4_0::gguf_type, {64, 6}, blocks_);
    const auto bytes = writer.to_bytes();
    std::ofstream out(path_, std::ios::binary);
    out << std::string(offset, 'x');
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
    options_.offset = offset;
  }

  static void expect_the_bytes(const gguf::File& file) {
    for (const char* const name : {"a", "b"}) {
      const auto mapped = file.bytes(name);
      std::vector<std::byte> read(mapped.size());
      ASSERT_TRUE(file.reader().read(mapped.data(), read));
      EXPECT_TRUE(std::ranges::equal(read, mapped));
      std::vector<std::byte> middle(17);
      ASSERT_TRUE(file.reader().read(mapped.data() + 31, middle));
      EXPECT_TRUE(std::ranges::equal(middle, mapped.subspan(31, 17)));
    }
  }

  std::vector<std::byte> blocks_ = support::finite_blocks<Q4_0>(12);
  support::TempFolder folder_;
  std::filesystem::path path_ = folder_ / "model.gguf";
  gguf::Options options_;
};

TEST_F(MappedReaderTest, GivesTheBytesOfTheMappingAlsoWithinAnotherFile) {
  auto file = gguf::File::map(path_, options_);
  if (!file.reader()) GTEST_SKIP() << "files are not mapped here";
  expect_the_bytes(file);
  const gguf::File moved = std::move(file);
  expect_the_bytes(moved);
}

TEST_F(MappedReaderTest, ReadsWhatIsThereAndNoMore) {
  const auto file = gguf::File::map(path_, options_);
  if (!file.reader()) GTEST_SKIP() << "files are not mapped here";
  const auto last = file.bytes("b");
  const std::size_t rest = std::filesystem::file_size(path_) - offset -
                           static_cast<std::size_t>(file.data_position()) -
                           static_cast<std::size_t>(file.tensors().at("b").offset);
  std::vector<std::byte> into(rest);
  EXPECT_TRUE(file.reader().read(last.data(), into));
  into.resize(rest + 1);
  EXPECT_FALSE(file.reader().read(last.data(), into));
  EXPECT_TRUE(file.reader().read(last.data(), {}));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 64);
  EXPECT_FALSE(file.reader().read(last.data(), std::span(into).first(last.size())));
}

TEST_F(MappedReaderTest, OutlivesItsNameAndTheFileObject) {
  auto file = std::make_unique<const gguf::File>(gguf::File::map(path_, options_));
  const gguf::MappedReader reader = file->reader();
  if (!reader) GTEST_SKIP() << "files are not mapped here";
  const std::byte* const place = file->bytes("a").data();
  std::error_code refused;
  std::filesystem::remove(path_, refused);
  file.reset();
  std::vector<std::byte> read(blocks_.size());
  EXPECT_TRUE(reader.read(place, read));
  EXPECT_EQ(read, blocks_);
}

TEST_F(MappedReaderTest, ServesThreadsAtOnce) {
  const auto file = gguf::File::map(path_, options_);
  if (!file.reader()) GTEST_SKIP() << "files are not mapped here";
  std::vector<std::thread> threads;
  std::vector<int> good(8, 0);
  for (int& count : good)
    threads.emplace_back([&] {
      std::vector<std::byte> read(18);
      for (std::size_t i = 0; i < 200; ++i) {
        const std::span<const std::byte> block = file.bytes("b").subspan(i % 12 * 18, 18);
        if (file.reader().read(block.data(), read) && std::ranges::equal(read, block)) ++count;
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(good, std::vector<int>(8, 200));
}

TEST_F(MappedReaderTest, OtherSourcesHaveNone) {
  std::vector<std::byte> one(1);
  EXPECT_FALSE(gguf::File::read(path_, options_).reader());
  EXPECT_FALSE(gguf::MappedReader().read(one.data(), one));
  gguf::Writer writer;
  writer.add_tensor("a", Q4_0::gguf_type, {96, 4}, blocks_);
  const auto bytes = writer.to_bytes();
  EXPECT_FALSE(gguf::File::from_bytes(bytes).reader());
}

} // namespace
