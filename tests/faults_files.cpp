// Files that change while they are open.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/q4_0.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>

#include "support/temp_folder.hpp"
#include "support/weights.hpp"

#if defined(__unix__) || defined(__APPLE__)
#include <csignal>
#endif

namespace {

using quern::gguf::File;
using quern::gguf::Residency;
using quern::gguf::Writer;

constexpr std::size_t data_bytes = std::size_t{1} << 20;

/// A file with one tensor of 1 MiB that holds `value`.
void write_file(const std::filesystem::path& path, std::uint8_t value) {
  const std::vector<std::byte> data(data_bytes, std::byte{value});
  Writer writer;
  writer.add("value", value);
  writer.add_tensor("w", 24, {data.size()}, data);
  writer.write(path);
}

#if QUERN_GGUF_HAS_MMAP
TEST(FaultsFiles, H07_ReadingWhatWasCutOffAMappedFileStopsTheProgram) {
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  write_file(path, 7);
  const auto read_after_cut = [&] {
    std::signal(SIGBUS, SIG_DFL); // the sanitizers have a handler of their own
    const File file = File::map(path);
    std::filesystem::resize_file(path, file.data_position());
    volatile auto last = std::to_integer<int>(file.bytes("w").back());
    static_cast<void>(last);
  };
  EXPECT_EXIT(read_after_cut(), testing::KilledBySignal(SIGBUS), "");
}
#endif

TEST(FaultsFiles, H07_ACopiedFileMayBeCutOffOrRemoved) {
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  write_file(path, 7);
  const File file = File::read(path);
  ASSERT_EQ(file.residency(), Residency::copied);
  std::filesystem::resize_file(path, 10);
  std::filesystem::remove(path);
  for (const std::byte byte : file.bytes("w"))
    ASSERT_EQ(byte, std::byte{7});
  EXPECT_EQ(file.metadata().get<int>("value"), 7);
}

TEST(FaultsFiles, AMappedFileMayBeRemovedOrReplaced) {
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  write_file(path, 7);
  const File first = File::map(path);
  write_file(path, 8);
  const File second = File::map(path);
  std::filesystem::remove(path);
  EXPECT_EQ(first.bytes("w").back(), std::byte{7});
  EXPECT_EQ(second.bytes("w").back(), std::byte{8});
}

TEST(FaultsFiles, ASourceThatEndsWhileItIsReadIsAnError) {
  // As when a file is cut off between the index and the data.
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  write_file(path, 7);
  std::ifstream stream(path, std::ios::binary);
  const auto size = std::filesystem::file_size(path);
  bool cut = false;
  const auto read = [&](std::uint64_t position, std::span<std::byte> into) -> std::size_t {
    if (position != 0 && !cut) std::filesystem::resize_file(path, position + 1000);
    cut = position != 0;
    stream.clear();
    stream.seekg(static_cast<std::streamoff>(position));
    stream.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
    return static_cast<std::size_t>(stream.gcount());
  };
  try {
    static_cast<void>(File::from_callback(size, read));
    ADD_FAILURE() << "the file was opened";
  } catch (const quern::gguf::Error& error) {
    EXPECT_EQ(error.code(), quern::ErrorCode::file_read) << error.what();
  }
}

TEST(FaultsFiles, ReadersSeeOneFileOrTheOtherWhileItIsReplaced) {
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  write_file(path, 0);
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0, opened = 0;
  std::vector<std::thread> readers;
  for (int t = 0; t < 4; ++t)
    readers.emplace_back([&, t] {
      while (!done) {
        const File file = t % 2 == 0 ? File::map(path) : File::read(path);
        const auto value = file.metadata().get<std::uint8_t>("value");
        const auto data = file.bytes("w");
        for (std::size_t i = 0; i < data.size(); i += 4096)
          if (data[i] != std::byte{value}) ++wrong;
        ++opened;
      }
    });
  for (int round = 1; round <= 100 || opened < 20; ++round)
    write_file(path, static_cast<std::uint8_t>(round));
  done = true;
  for (std::thread& reader : readers)
    reader.join();
  EXPECT_EQ(wrong, 0);
}

} // namespace
