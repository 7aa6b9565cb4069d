#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>

#include "support/counting_new.hpp"
#include "support/guarded.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GGUF_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GGUF_TEST_SANITIZED 1
#endif

/// @file
/// GGUF files built byte by byte, apart from quern's writer, and opened through every source, with
/// the memory that opening takes counted. Include it in one file of an executable only.

namespace gguf_test {

using quern::ErrorCode;
using quern::gguf::File;
using quern::gguf::Mode;
using quern::gguf::Options;

/// Little-endian fields one after the other.
class Bytes {
public:
  Bytes() = default;

  template <class T>
  Bytes& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      data_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    return *this;
  }
  Bytes& u8(std::uint8_t v) { return number(v); }
  Bytes& i8(std::int8_t v) { return number(v); }
  Bytes& u16(std::uint16_t v) { return number(v); }
  Bytes& i16(std::int16_t v) { return number(v); }
  Bytes& u32(std::uint32_t v) { return number(v); }
  Bytes& i32(std::int32_t v) { return number(v); }
  Bytes& u64(std::uint64_t v) { return number(v); }
  Bytes& i64(std::int64_t v) { return number(v); }
  Bytes& f32(float v) { return number(std::bit_cast<std::uint32_t>(v)); }
  Bytes& f64(double v) { return number(std::bit_cast<std::uint64_t>(v)); }
  /// Characters without a length.
  Bytes& text(std::string_view v) {
    for (const char c : v)
      data_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  /// A string of versions 2 and 3.
  Bytes& string(std::string_view v) { return u64(v.size()).text(v); }
  /// A string of version 1.
  Bytes& string1(std::string_view v) { return u32(static_cast<std::uint32_t>(v.size())).text(v); }
  Bytes& raw(std::span<const std::byte> v) {
    data_.insert(data_.end(), v.begin(), v.end());
    return *this;
  }
  Bytes& repeat(std::size_t count, std::uint8_t value = 0) {
    data_.insert(data_.end(), count, static_cast<std::byte>(value));
    return *this;
  }
  Bytes& pad(std::size_t alignment = 32) {
    while (data_.size() % alignment != 0)
      data_.push_back(std::byte{0});
    return *this;
  }

  /// A header of version 2 or 3.
  static Bytes header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return Bytes().text("GGUF").u32(version).u64(tensors).u64(keys);
  }
  /// The key and type of an entry; the value comes next.
  Bytes& key(std::string_view name, std::uint32_t type) { return string(name).u32(type); }
  /// An entry of the tensor table.
  Bytes& tensor(std::string_view name, const std::vector<std::uint64_t>& extents,
                std::uint32_t type, std::uint64_t offset) {
    string(name).u32(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents)
      u64(extent);
    return u32(type).u64(offset);
  }
  /// `general.alignment`.
  Bytes& alignment(std::uint32_t value) { return key("general.alignment", 4).u32(value); }

  [[nodiscard]] std::size_t size() const { return data_.size(); }
  [[nodiscard]] std::vector<std::byte>& data() { return data_; }
  [[nodiscard]] const std::vector<std::byte>& data() const { return data_; }
  operator std::span<const std::byte>() const { return data_; } // NOLINT: implicit

private:
  std::vector<std::byte> data_;
};

/// One Q4_0 tensor `w` of two rows of 32, data at byte 96.
[[nodiscard]] inline Bytes reference_file(std::size_t data_bytes = 36) {
  return Bytes::header(1, 0).tensor("w", {32, 2}, 2, 0).pad().repeat(data_bytes, 0x11);
}

/// A file that goes away with the object.
class TemporaryFile {
public:
  explicit TemporaryFile(std::span<const std::byte> bytes = {}, const std::string& name = "") {
    static int number = 0;
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        ("quern_gguf_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
         std::to_string(reinterpret_cast<std::uintptr_t>(this)) + "_" + std::to_string(++number));
    std::filesystem::create_directories(folder_);
    path_ = folder_ / (name.empty() ? "file.gguf" : name);
    write(bytes);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void write(std::span<const std::byte> bytes) const {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out) throw std::runtime_error("can't write " + path_.string());
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

private:
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

/// A callback that hands out at most `most` bytes at a time.
[[nodiscard]] inline quern::gguf::ReadAt reader_of(std::span<const std::byte> bytes,
                                                   std::size_t most) {
  return [bytes, most](std::uint64_t position, std::span<std::byte> into) {
    const auto at = static_cast<std::size_t>(position);
    const std::size_t count = std::min({most, into.size(), bytes.size() - at});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, into.begin());
    return count;
  };
}

using Open = std::function<File()>;

/// What opening may take beside the size of the file: the index object, vectors of a few entries,
/// a path, an error message.
constexpr std::size_t memory_constant = 8192;

/// `open`, which must take no more memory than `most` bytes and the constant.
[[nodiscard]] inline Open within_memory(std::size_t most, Open open) {
  return [most, open = std::move(open)] {
    struct Check {
      std::size_t most;
      support::PeakMemory memory = {};
      ~Check() { EXPECT_LE(memory.bytes(), most + memory_constant); }
    } const check{most};
    return open();
  };
}

/// Writes a small file into the folder that the environment names, for fuzzers to start from.
inline void keep_for_fuzzing(std::span<const std::byte> bytes) {
  static const char* const folder = std::getenv("QUERN_CORPUS_DIR");
  constexpr std::size_t most = 2048;
  if (folder == nullptr || bytes.size() > most) return;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::filesystem::create_directories(folder);
  std::ofstream(std::filesystem::path(folder) / std::to_string(std::hash<std::string_view>{}(text)),
                std::ios::binary)
      << text;
}

/// Opens `bytes` through every source, and also inside a larger one, and calls `check(open)` for
/// each; `open()` opens the file anew.
inline void through_all_sources(std::span<const std::byte> bytes, const Options& options,
                                const std::function<void(const Open&)>& use) {
  keep_for_fuzzing(bytes);
  const auto check = [&](Open open) { use(within_memory(bytes.size(), std::move(open))); };
  // A copying source takes as much for the copy.
  const auto check_copying = [&](Open open) {
    use(within_memory(2 * bytes.size(), std::move(open)));
  };
  {
    SCOPED_TRACE("span before an unreadable page");
    const support::Guarded<std::byte> guarded(bytes);
    check([&] { return File::from_bytes(guarded.span(), options); });
  }
  Bytes larger = Bytes().repeat(7, 0xFF).raw(bytes);
  Options inside = options;
  inside.offset = 7;
  {
    SCOPED_TRACE("span inside a larger one, at offset 7");
    check([&] { return File::from_bytes(larger.data(), inside); });
  }
  {
    SCOPED_TRACE("callback with reads of 1 byte");
    check_copying([&] { return File::from_callback(bytes.size(), reader_of(bytes, 1), options); });
  }
  {
    SCOPED_TRACE("callback with reads of 4096 bytes, at offset 7");
    check_copying(
        [&] { return File::from_callback(larger.size(), reader_of(larger, 4096), inside); });
  }
  const TemporaryFile file(bytes);
  {
    SCOPED_TRACE("mapped file");
    check([&] { return File::map(file.path(), options); });
  }
  {
    SCOPED_TRACE("copied file");
    check_copying([&] { return File::read(file.path(), options); });
  }
  file.write(larger);
  {
    SCOPED_TRACE("mapped file, at offset 7");
    check([&] { return File::map(file.path(), inside); });
  }
  {
    SCOPED_TRACE("copied file, at offset 7");
    check_copying([&] { return File::read(file.path(), inside); });
  }
}

/// Where an error must say that it is.
struct Where {
  std::uint64_t position = 0;
  std::optional<std::uint64_t> index = std::nullopt;
  std::string name = {};
};

/// Every source refuses `bytes` with this code and place. Returns the message.
inline std::string expect_refused(std::span<const std::byte> bytes, ErrorCode code,
                                  const Where& where, const Options& options = {},
                                  int line = __builtin_LINE()) {
  testing::ScopedTrace trace("expect_refused", line, "");
  std::string message;
  through_all_sources(bytes, options, [&](const Open& open) {
    try {
      const File file = open();
      ADD_FAILURE() << "the file was opened";
    } catch (const quern::gguf::Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
      EXPECT_EQ(error.position(), where.position) << error.what();
      EXPECT_EQ(error.index(), where.index) << error.what();
      EXPECT_EQ(error.name(), where.name) << error.what();
      message = error.what();
    }
  });
  return message;
}

/// Every source opens `bytes`; calls `check(file)` for each.
inline void expect_opened(std::span<const std::byte> bytes, const Options& options,
                          const std::function<void(const File&)>& check,
                          int line = __builtin_LINE()) {
  testing::ScopedTrace trace("expect_opened", line, "");
  through_all_sources(bytes, options, [&](const Open& open) {
    try {
      const File file = open();
      check(file);
    } catch (const quern::Error& error) {
      ADD_FAILURE() << error.what();
    }
  });
}
inline void expect_opened(std::span<const std::byte> bytes, const Options& options = {},
                          int line = __builtin_LINE()) {
  expect_opened(
      bytes, options, [](const File&) {}, line);
}

/// Options with only a mode.
[[nodiscard]] inline Options in_mode(Mode mode) {
  Options options;
  options.mode = mode;
  return options;
}
inline const Options strict = in_mode(Mode::strict);
inline const Options lenient = in_mode(Mode::lenient);

} // namespace gguf_test
