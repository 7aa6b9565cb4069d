#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"

#if defined(__linux__)
#include <sys/resource.h>
#endif

// Where the bytes come from. Names carry the numbers of the table in docs/gguf.md.

namespace {

using namespace gguf_test;
using quern::gguf::Residency;
using support::contains;

/// Metadata with an array, then two tensors.
Bytes sample() {
  return Bytes::header(2, 2)
      .key("k", 4)
      .u32(5)
      .key("a", 9)
      .u32(8)
      .u64(3)
      .string("x")
      .string("")
      .string("yz")
      .tensor("v", {3}, 0, 0)
      .tensor("w", {32, 2}, 2, 32)
      .pad()
      .f32(1)
      .f32(2)
      .f32(3)
      .pad()
      .repeat(36, 0x11);
}

TEST(GgufSources, AllSourcesGiveTheSameFile) {
  const Bytes bytes = sample();
  expect_opened(bytes, {}, [](const File& open) {
    EXPECT_EQ(open.metadata().get<int>("k"), 5);
    EXPECT_EQ(open.metadata().get<quern::gguf::Array>("a").to_vector<std::string>(),
              (std::vector<std::string>{"x", "", "yz"}));
    EXPECT_EQ(open.bytes("v").size(), 12u);
    EXPECT_EQ(open.weight<quern::Q4_0>("w").shape(), (quern::OutIn{2, 32}));
    const auto data = open.bytes("w");
    EXPECT_TRUE(std::ranges::all_of(data, [](std::byte b) { return b == std::byte{0x11}; }));
  });
}

TEST(GgufSources, ResidencyTellsWhereTheBytesLive) {
  const Bytes bytes = sample();
  const TemporaryFile file(bytes);
  EXPECT_EQ(File::from_bytes(bytes.data()).residency(), Residency::borrowed);
  EXPECT_EQ(File::read(file.path()).residency(), Residency::copied);
  EXPECT_EQ(File::from_callback(bytes.size(), reader_of(bytes, 99)).residency(), Residency::copied);
  EXPECT_EQ(File::map(file.path()).residency(),
            QUERN_GGUF_HAS_MMAP ? Residency::mapped : Residency::copied);
}

TEST(GgufSources, BorrowedBytesAreNotCopied) {
  const Bytes bytes = sample();
  const File open = File::from_bytes(bytes.data());
  const std::byte* const first = bytes.data().data();
  EXPECT_GE(open.bytes("w").data(), first);
  EXPECT_LE(open.bytes("w").data() + 36, first + bytes.size());
}

TEST(GgufSources, CopiesStartAtACacheLine) {
  const Bytes bytes = sample();
  const File open = File::from_callback(bytes.size(), reader_of(bytes, 99));
  const auto address = reinterpret_cast<std::uintptr_t>(open.bytes("v").data());
  EXPECT_EQ((address - open.data_position()) % 64, 0u);
}

TEST(GgufSources, H04_ACallbackThatEndsAtAnyByteIsAnError) {
  const Bytes bytes = sample();
  for (std::size_t end = 0; end < bytes.size(); ++end) {
    for (const std::size_t most : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
      const auto until_end = [&](std::uint64_t position, std::span<std::byte> into) {
        const auto at = static_cast<std::size_t>(position);
        const std::size_t left = at < end ? end - at : 0;
        return reader_of(bytes, std::min(most, left))(position, into);
      };
      try {
        const File open = File::from_callback(bytes.size(), until_end);
        ADD_FAILURE() << "opened though the callback ended at byte " << end;
      } catch (const quern::gguf::Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::file_read) << error.what();
        EXPECT_EQ(error.position(), end);
      }
    }
  }
}

TEST(GgufSources, H04_ACallbackThatThrowsAtAnyByteGetsItsExceptionBack) {
  const Bytes bytes = sample();
  for (std::size_t end = 0; end < bytes.size(); ++end) {
    const auto throws = [&](std::uint64_t position, std::span<std::byte> into) {
      if (position >= end) throw std::range_error("byte " + std::to_string(end));
      return reader_of(bytes, end - static_cast<std::size_t>(position))(position, into);
    };
    EXPECT_THROW(static_cast<void>(File::from_callback(bytes.size(), throws)), std::range_error);
  }
}

TEST(GgufSources, H04_ACallbackThatReturnsMoreThanAskedIsAnError) {
  const auto more = [](std::uint64_t, std::span<std::byte> into) { return into.size() + 1; };
  EXPECT_TRUE(
      contains(support::error_of(ErrorCode::file_read,
                                 [&] { static_cast<void>(File::from_callback(100, more)); }),
               "came up short"));
}

TEST(GgufSources, H04_BytesThatNobodyNeedsMayFail) {
  const Bytes bytes = sample();
  // The source claims 1000 bytes more than the callback can deliver.
  const File open =
      File::from_callback(bytes.size() + 1000, [&](std::uint64_t position, auto into) {
        return reader_of(bytes, into.size())(position, into);
      });
  EXPECT_EQ(open.bytes("w").size(), 36u);
}

TEST(GgufSources, ABadIndexIsRefusedBeforeTheDataIsRead) {
  Bytes bytes = Bytes::header(1, 0).tensor("w", {4}, 4, 0).pad().repeat(16 << 20);
  std::uint64_t furthest = 0;
  const auto counting = [&](std::uint64_t position, std::span<std::byte> into) {
    furthest = std::max(furthest, position + into.size());
    return reader_of(bytes, into.size())(position, into);
  };
  static_cast<void>(support::error_of(ErrorCode::removed_type, [&] {
    static_cast<void>(File::from_callback(bytes.size(), counting));
  }));
  EXPECT_LE(furthest, 1u << 20);
}

TEST(GgufSources, FilesThatCannotBeOpenedSaySo) {
  const TemporaryFile file(sample());
  for (const auto open : {&File::map, &File::read}) {
    const std::string missing = support::error_of(ErrorCode::file_open, [&] {
      static_cast<void>(open(file.folder() / "missing.gguf", Options{}));
    });
    EXPECT_TRUE(contains(missing, "missing.gguf: no such file"));
    EXPECT_TRUE(contains(support::error_of(ErrorCode::file_open,
                                           [&] { static_cast<void>(open(file.folder(), {})); }),
                         "not a regular file"));
  }
}

TEST(GgufSources, ErrorsNameTheFile) {
  const TemporaryFile file(Bytes().text("NOPE").repeat(20), "model.gguf");
  for (const auto open : {&File::map, &File::read}) {
    try {
      static_cast<void>(open(file.path(), {}));
      ADD_FAILURE();
    } catch (const quern::gguf::Error& error) {
      EXPECT_TRUE(contains(error.what(), "model.gguf"));
      EXPECT_EQ(error.origin(), file.path().string());
    }
  }
}

TEST(GgufSources, AnEmptyFileIsTruncated) {
  const TemporaryFile file;
  for (const auto open : {&File::map, &File::read})
    static_cast<void>(
        support::error_of(ErrorCode::truncated, [&] { static_cast<void>(open(file.path(), {})); }));
}

TEST(GgufSources, H07_ACopyIsImmuneToWhatHappensToTheFile) {
  const TemporaryFile file(sample());
  const File open = File::read(file.path());
  file.write({});
  EXPECT_EQ(std::to_integer<int>(open.bytes("w").back()), 0x11);
  EXPECT_EQ(open.metadata().get<int>("k"), 5);
}

TEST(GgufSources, H07_AMappedIndexIsCheckedAnewWhenItIsUsed) {
#if QUERN_GGUF_HAS_MMAP
  Bytes bytes = sample();
  const TemporaryFile file(bytes);
  const File open = File::map(file.path());
  ASSERT_EQ(open.residency(), Residency::mapped);
  // Another process writes nonsense over the table, at the same size.
  std::fill(bytes.data().begin() + 24, bytes.data().begin() + 160, std::byte{0xFF});
  {
    std::fstream out(file.path(), std::ios::binary | std::ios::in | std::ios::out);
    out.write(reinterpret_cast<const char*>(bytes.data().data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  EXPECT_THROW(static_cast<void>(open.metadata()[0]), quern::gguf::Error);
  EXPECT_THROW(static_cast<void>(open.tensors()[1]), quern::gguf::Error);
  EXPECT_THROW(static_cast<void>(open.bytes("w")), quern::Error);
#else
  GTEST_SKIP() << "this platform maps no files";
#endif
}

TEST(GgufSources, ATensorOfAnotherFileIsRefused) {
  const Bytes large = Bytes::header(1, 0).tensor("w", {1000}, 0, 0).pad().repeat(4000);
  const Bytes small = reference_file();
  const File a = File::from_bytes(large.data());
  const File b = File::from_bytes(small.data());
  EXPECT_TRUE(contains(support::error_of(ErrorCode::data_past_end,
                                         [&] { static_cast<void>(b.bytes(a.tensors().at("w"))); }),
                       "does not lie in this file"));
}

TEST(GgufSources, H08_ASizeBeyondTheAddressSpaceIsRefused) {
  const auto none = [](std::uint64_t, std::span<std::byte>) { return std::size_t{0}; };
  for (const std::uint64_t size :
       {std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()})
    static_cast<void>(support::error_of(
        ErrorCode::bytes_overflow, [&] { static_cast<void>(File::from_callback(size, none)); }));
}

TEST(GgufSources, ACopyThatDoesNotFitInMemoryIsRefusedWithAHint) {
#if defined(GGUF_TEST_SANITIZED)
  GTEST_SKIP() << "the sanitizer stops the program when memory can't be had";
#else
  if (sizeof(std::size_t) < 8) GTEST_SKIP() << "a copy may have all of the address space here";
  const auto none = [](std::uint64_t, std::span<std::byte>) { return std::size_t{0}; };
  EXPECT_TRUE(
      contains(support::error_of(
                   ErrorCode::limit_exceeded,
                   [&] { static_cast<void>(File::from_callback(std::uint64_t{1} << 62, none)); }),
               "map the file"));
#endif
}

TEST(GgufSources, AViewOutlivesTheMoveOfItsFile) {
  const TemporaryFile on_disk(sample());
  for (const auto open : {&File::map, &File::read}) {
    File first = open(on_disk.path(), {});
    const auto view = first.weight<quern::Q4_0>("w");
    const auto& metadata = first.metadata();
    const auto tensor = first.tensors().at("w");
    File second = std::move(first);
    EXPECT_EQ(std::to_integer<int>(view.block(1, 0)[17]), 0x11);
    EXPECT_EQ(metadata.get<int>("k"), 5);
    EXPECT_EQ(tensor.name, "w");
    EXPECT_EQ(second.bytes("w").data(), view.data());
    // The moved-from file is an empty one.
    EXPECT_EQ(first.tensors().size(), 0u); // NOLINT: used after move on purpose
    EXPECT_EQ(first.metadata().size(), 0u);
    EXPECT_FALSE(first.tensors().find("w").has_value());
    first = std::move(second);
    EXPECT_EQ(first.bytes("w").data(), view.data());
  }
}

TEST(GgufSources, H88_OpeningLeavesTheFileAlone) {
  const Bytes bytes = sample();
  const TemporaryFile file(bytes);
  std::filesystem::permissions(file.path(), std::filesystem::perms::owner_read);
  const auto time = std::filesystem::last_write_time(file.path());
  for (const auto open : {&File::map, &File::read})
    static_cast<void>(open(file.path(), {}));
  EXPECT_EQ(std::filesystem::last_write_time(file.path()), time);
  EXPECT_EQ(std::filesystem::file_size(file.path()), bytes.size());
}

#if defined(SUPPORT_HAS_PAGES)
TEST(GgufSources, OpeningReadsNoTensorData) {
  // The data section lies on unreadable pages: touching one byte of it would stop the test.
  Bytes bytes = Bytes::header(3, 1).key("k", 4).u32(5);
  const std::size_t data = std::size_t{1} << 20;
  for (std::uint64_t i = 0; i < 3; ++i)
    bytes.tensor(std::string(1, static_cast<char>('a' + i)), {32, data / 18}, 2,
                 i * (data + 64) / 32 * 32);
  const std::size_t index_bytes = bytes.size();
  bytes.pad().repeat(4 * data);
  for (const Options& options : {Options{}, lenient}) {
    support::Guarded<std::byte> guarded{std::span<const std::byte>(bytes.data()),
                                        support::Against::front};
    guarded.hide_all_pages();
    guarded.show(0, index_bytes);
    const File open = File::from_bytes(std::as_const(guarded).span(), options);
    EXPECT_EQ(open.tensors().size(), 3u);
    EXPECT_EQ(open.bytes("c").size(), data / 18 * 18);
    EXPECT_EQ(open.weight<quern::Q4_0>("b").in(), 32u);
    EXPECT_EQ(open.metadata().get<int>("k"), 5);
  }
}
#endif

#if defined(__linux__)
/// Resident bytes of the mappings of a file, as the kernel counts them.
std::size_t resident_bytes(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  std::size_t kib = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) inside = line.find(path.string()) != std::string::npos;
    if (inside && line.rfind("Rss:", 0) == 0) kib += std::stoul(line.substr(4));
  }
  return kib * 1024;
}

TEST(GgufSources, OpeningAMappedFileLeavesItsDataOnDisk) {
  Bytes bytes = Bytes::header(1, 0).tensor("w", {std::uint64_t{64} << 20}, 24, 0).pad();
  bytes.repeat(std::size_t{64} << 20, 7);
  const TemporaryFile file(bytes);
  const File open = File::map(file.path());
  EXPECT_EQ(open.bytes("w").size(), std::size_t{64} << 20);
  // What the kernel maps around the first page that is touched.
  EXPECT_LE(resident_bytes(file.path()), std::size_t{2} << 20);
  int sum = 0;
  for (const std::byte b : open.bytes("w"))
    sum += std::to_integer<int>(b);
  EXPECT_EQ(sum, 7 * (64 << 20));
  EXPECT_GE(resident_bytes(file.path()), std::size_t{32} << 20);
}

/// Page faults of this process so far.
long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

TEST(GgufSources, OpeningAnIndexOf300TensorsTakesNoPageFaultForTheirData) {
#if defined(GGUF_TEST_SANITIZED)
  GTEST_SKIP() << "the sanitizer's own memory would be counted";
#endif
  constexpr std::uint64_t count = 300, rows = 1024, in = 4096, step = rows * in / 256 * 144;
  Bytes index = Bytes::header(count, 1).key("general.architecture", 8).string("llama");
  for (std::uint64_t i = 0; i < count; ++i)
    index.tensor("blk." + std::to_string(i) + ".attn_output.weight", {in, rows}, 12, i * step);
  index.pad();
  const TemporaryFile file(index);
  std::filesystem::resize_file(file.path(), index.size() + count * step); // sparse
  static_cast<void>(File::map(file.path()));                              // whatever is set up once
  const long before = page_faults();
  const File open = File::map(file.path());
  const long opening = page_faults() - before;
  std::size_t bytes = 0;
  for (const auto& tensor : open.tensors())
    bytes += open.weight<quern::Q4_K>(tensor.name).bytes();
  const long walking = page_faults() - before - opening;
  EXPECT_EQ(bytes, count * step);
  EXPECT_LE(opening, static_cast<long>(index.size() / 4096) + 10);
  EXPECT_LE(walking, 2);
  // Reading one byte of each tensor would have been seen.
  const long before_reading = page_faults();
  unsigned sum = 0;
  for (const auto& tensor : open.tensors())
    sum += std::to_integer<unsigned>(open.bytes(tensor).back());
  EXPECT_EQ(sum, 0u);
  EXPECT_GE(page_faults() - before_reading, static_cast<long>(count) - 5);
  RecordProperty("opening", std::to_string(opening));
}

TEST(GgufSources, TensorsBeyondFourGibibytes) {
  // A sparse file: two tensors of 2^32 + 32 bytes, then a small one.
  const std::uint64_t large = (std::uint64_t{1} << 32) + 32;
  const Bytes table = Bytes::header(3, 0)
                          .tensor("a", {large}, 24, 0)
                          .tensor("b", {large}, 24, large)
                          .tensor("w", {32, 2}, 2, 2 * large)
                          .pad();
  const TemporaryFile file(table);
  const std::uint64_t size = table.size() + 2 * large + 64;
  std::error_code failure;
  std::filesystem::resize_file(file.path(), size, failure);
  if (failure) GTEST_SKIP() << "no sparse file of 8 GiB here: " << failure.message();
  {
    std::fstream out(file.path(), std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(table.size() + 2 * large));
    for (int i = 0; i < 36; ++i)
      out.put(0x22);
    out.seekp(static_cast<std::streamoff>(table.size() + large));
    out.put(0x33);
  }
  if (sizeof(std::size_t) < 8) {
    EXPECT_THROW(static_cast<void>(File::map(file.path())), quern::Error);
    EXPECT_THROW(static_cast<void>(File::read(file.path())), quern::Error);
    return;
  }
  const File open = File::map(file.path(), strict);
  EXPECT_EQ(open.bytes("a").size(), large);
  EXPECT_EQ(std::to_integer<int>(open.bytes("b").front()), 0x33);
  EXPECT_EQ(std::to_integer<int>(open.bytes("b").back()), 0);
  EXPECT_EQ(std::to_integer<int>(open.weight<quern::Q4_0>("w").block(1, 0)[17]), 0x22);
  std::filesystem::resize_file(file.path(), size - 29);
  EXPECT_TRUE(contains(support::error_of(ErrorCode::data_past_end,
                                         [&] { static_cast<void>(File::map(file.path())); }),
                       "needs 36 bytes, the file has 35"));
}
#endif

TEST(GgufSources, ManyThreadsReadOneFile) {
  Bytes bytes = Bytes::header(200, 200);
  for (int i = 0; i < 200; ++i)
    bytes.key("key " + std::to_string(i), 4).u32(static_cast<std::uint32_t>(i));
  for (int i = 0; i < 200; ++i)
    bytes.tensor("tensor " + std::to_string(i), {1}, 26, static_cast<std::uint64_t>(i) * 32);
  bytes.pad();
  for (std::uint32_t i = 0; i < 200; ++i)
    bytes.u32(i).repeat(28);
  const TemporaryFile file(bytes);
  const File open = File::map(file.path());
  std::array<int, 8> wrong{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round)
        for (int i = 0; i < 200; ++i) {
          const std::string number = std::to_string(i);
          if (open.metadata().get<int>("key " + number) != i) ++wrong[t];
          if (std::to_integer<int>(open.bytes("tensor " + number).front()) != i) ++wrong[t];
        }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, (std::array<int, 8>{}));
}

} // namespace
