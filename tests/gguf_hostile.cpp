#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>

#include "gguf_bytes.hpp"
#include "support/guarded.hpp"
#include "support/weights.hpp"

// Files that were cut, altered, or made to exhaust memory. Memory is counted by an operator new of
// this executable.

namespace {

using namespace gguf_test;

/// Runs `call` and returns how many bytes were allocated at most beyond those before it.
template <class Call>
std::size_t peak_of(Call&& call) {
  const support::PeakMemory memory;
  call();
  const std::size_t peak = memory.bytes();
  EXPECT_TRUE(memory.nothing_left()) << "something was leaked";
  return peak;
}

/// Uses everything that an open file offers.
void walk(const File& open) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : open.metadata()) {
    EXPECT_TRUE(open.metadata().contains(key));
    sum += key.size();
    std::vector<quern::gguf::Value> todo{value};
    for (std::size_t seen = 0; !todo.empty() && seen < 1000; ++seen) {
      const quern::gguf::Value next = todo.back();
      todo.pop_back();
      if (next.type() == quern::gguf::ValueType::array)
        for (const auto& element : next.get<quern::gguf::Array>())
          todo.push_back(element);
      else if (next.type() == quern::gguf::ValueType::string)
        sum += next.get<std::string_view>().size();
    }
  }
  for (const quern::gguf::Tensor& tensor : open.tensors()) {
    EXPECT_EQ(open.tensors().at(tensor.name).index, tensor.index);
    if (tensor.type == nullptr) continue;
    for (const std::byte byte : open.bytes(tensor))
      sum += std::to_integer<unsigned>(byte);
    if (tensor.is_matrix() && quern::find_format(tensor.type_id))
      open.visit_weight(tensor.name, [&](const auto& view) { sum += view.bytes(); });
  }
  volatile std::uint64_t keep = sum;
  static_cast<void>(keep);
}

/// Opens `bytes` in every mode, from memory and by callback, and uses what opens. Nothing but a
/// gguf::Error may come out, nothing may leak, and memory stays below the size of the file.
void survive(std::span<const std::byte> bytes) {
  for (const Mode mode : {Mode::standard, Mode::strict, Mode::lenient}) {
    Options options = in_mode(mode);
    options.zero_padding = mode == Mode::strict;
    const auto attempt = [&](const Open& open) {
      return [open] {
        try {
          static_cast<void>(open());
        } catch (const quern::gguf::Error&) {
        }
      };
    };
    const Open from_bytes = [&] { return File::from_bytes(bytes, options); };
    const Open from_callback = [&] {
      return File::from_callback(bytes.size(), reader_of(bytes, 5), options);
    };
    EXPECT_LE(peak_of(attempt(from_bytes)), bytes.size() + memory_constant);
    EXPECT_LE(peak_of(attempt(from_callback)), 2 * bytes.size() + memory_constant);
    try {
      walk(from_bytes());
    } catch (const quern::gguf::Error&) {
    }
  }
}

/// Two keys and two tensors of every kind of field.
Bytes rich_file() {
  return Bytes::header(2, 4)
      .alignment(8)
      .key("s", 8)
      .string("text")
      .key("a", 9)
      .u32(8)
      .u64(2)
      .string("x")
      .string("")
      .key("n", 9)
      .u32(9)
      .u64(1)
      .u32(7)
      .u64(2)
      .u8(0)
      .u8(1)
      .tensor("v", {3}, 0, 40)
      .tensor("w", {32, 2}, 2, 0)
      .pad(8)
      .repeat(40, 0x11)
      .f32(1)
      .f32(2)
      .f32(3);
}

TEST(GgufHostile, EveryPrefixWithEveryValueOfEveryByte) {
  for (const Bytes& file : {reference_file().pad(), rich_file()}) {
    const std::size_t index_bytes = file.size() - 36;
    // Each prefix of the unaltered file, then the whole file with each byte set to each value.
    for (std::size_t size = 0; size <= file.size(); ++size)
      survive(std::span(file.data()).first(size));
    for (std::size_t at = 0; at < index_bytes; ++at) {
      std::vector<std::byte> altered = file.data();
      for (int value = 0; value < 256; ++value) {
        altered[at] = static_cast<std::byte>(value);
        survive(altered);
      }
    }
  }
}

TEST(GgufHostile, PrefixesOfAlteredFiles) {
  // Every prefix with a few telling values of each byte that it has.
  const Bytes file = reference_file().pad();
  for (std::size_t size = 1; size <= file.size(); ++size)
    for (std::size_t at = 0; at < std::min<std::size_t>(size, 96); ++at)
      for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
        support::Guarded<std::byte> altered(std::span(file.data()).first(size));
        altered.span()[at] = static_cast<std::byte>(value);
        try {
          walk(File::from_bytes(altered.span()));
        } catch (const quern::gguf::Error&) {
        }
      }
}

TEST(GgufHostile, RandomlyAlteredFiles) {
  const Bytes files[] = {reference_file().pad(), rich_file()};
  support::Random random(7);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> altered = files[round % 2].data();
    for (std::uint32_t changes = 1 + random.bits() % 6; changes > 0; --changes) {
      const std::size_t at = random.bits() % altered.size();
      switch (random.bits() % 4) {
      case 0:
        altered[at] = static_cast<std::byte>(random.bits());
        break;
      case 1:
        altered[at] = static_cast<std::byte>(random.bits() % 2 == 0 ? 0xFF : 0x00);
        break;
      case 2:
        altered.insert(altered.begin() + static_cast<std::ptrdiff_t>(at), random.bits() % 9,
                       static_cast<std::byte>(random.bits()));
        break;
      default:
        altered.erase(altered.begin() + static_cast<std::ptrdiff_t>(at),
                      altered.begin() + static_cast<std::ptrdiff_t>(
                                            std::min(altered.size(), at + random.bits() % 9)));
      }
      if (altered.empty()) altered.push_back(std::byte{0});
    }
    survive(altered);
  }
}

TEST(GgufHostile, H67_DeclaredSizesAllocateNothing) {
  constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t one = 1;
  std::vector<Bytes> files;
  for (const std::uint64_t count : {one << 40, one << 62, all_ones}) {
    files.push_back(Bytes::header(count, 0));
    files.push_back(Bytes::header(0, count));
    files.push_back(Bytes::header(0, 1).u64(count).repeat(64, 'k'));
    files.push_back(Bytes::header(1, 0).u64(count).repeat(64, 'n'));
    files.push_back(Bytes::header(0, 1).key("s", 8).u64(count).repeat(64));
    for (std::uint32_t type = 0; type <= 12; ++type)
      files.push_back(Bytes::header(0, 1).key("a", 9).u32(type).u64(count).repeat(64));
    files.push_back(Bytes::header(1, 0).tensor("w", {count}, 24, 0).pad().repeat(64));
    files.push_back(
        Bytes::header(1, 0).tensor("w", {1}, 0, count & ~std::uint64_t{31}).pad().repeat(64));
  }
  for (const Bytes& file : files) {
    const std::size_t used = peak_of([&] {
      EXPECT_THROW(static_cast<void>(File::from_bytes(file.data())), quern::gguf::Error);
    });
    EXPECT_LE(used, memory_constant);
  }
}

TEST(GgufHostile, AFalseCountInALargeFileAllocatesNothing) {
  // The counts fit the size of the file, but the first entry is bad.
  const std::size_t size = std::size_t{16} << 20;
  for (const Bytes& file :
       {Bytes::header(size / 25, 0).repeat(size), Bytes::header(0, size / 15).repeat(size)}) {
    const std::size_t used = peak_of([&] {
      EXPECT_THROW(static_cast<void>(File::from_bytes(file.data())), quern::gguf::Error);
    });
    EXPECT_LE(used, memory_constant);
  }
}

TEST(GgufHostile, ManySmallEntriesTakeLessMemoryThanTheirFile) {
  constexpr std::uint32_t count = 60000;
  const auto name = [](std::uint32_t i) { // three bytes
    const auto digit = [](std::uint32_t d) { return static_cast<char>('0' + d); };
    return std::string{digit(i / 2500), digit(i / 50 % 50), digit(i % 50)};
  };
  Bytes keys = Bytes::header(0, count);
  for (std::uint32_t i = 0; i < count; ++i)
    keys.key(name(i), 0).u8(1);
  Bytes tensors = Bytes::header(count, 1).alignment(1);
  for (std::uint32_t i = count; i-- > 0;) // against the order of their data
    tensors.tensor(name(i), {}, 24, i);
  tensors.repeat(count);
  for (const Bytes& file : {keys, tensors}) {
    const std::size_t used = peak_of([&] { walk(File::from_bytes(file.data())); });
    EXPECT_LE(used, file.size() + memory_constant);
  }
}

TEST(GgufHostile, AFailedAllocationLeaksNothing) {
  const Bytes file = rich_file();
  const TemporaryFile on_disk(file);
  const Open opens[] = {
      [&] { return File::from_bytes(file.data()); },
      [&] { return File::from_callback(file.size(), reader_of(file, 9)); },
      [&] { return File::map(on_disk.path()); },
      [&] { return File::read(on_disk.path()); },
  };
  for (const Open& open : opens) {
    bool opened = false;
    for (long nth = 0; !opened && nth < 1000; ++nth) {
      const support::PeakMemory memory;
      try {
        const support::FailingAllocation failing(nth);
        const File complete = open();
        opened = true;
      } catch (const std::bad_alloc&) {
      } catch (const quern::Error& error) {
        // No memory for the copy of the file; or the library's file stream swallowed the failure.
        EXPECT_TRUE(error.code() == ErrorCode::limit_exceeded ||
                    error.code() == ErrorCode::file_open)
            << error.what();
      }
      EXPECT_TRUE(memory.nothing_left());
    }
    EXPECT_TRUE(opened);
  }
}

} // namespace
