// floor: 6.1
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
/// 1 where files are read with pread(), 0 where there is none and OpenFile reads nothing.
#define QUERN_GGUF_HAS_PREAD 1
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#else
/// 1 where files are read with pread(), 0 where there is none and OpenFile reads nothing.
#define QUERN_GGUF_HAS_PREAD 0
#endif

namespace quern::gguf {

/// A file that is open for reading; closed by the last one who refers to it.
class OpenFile {
public:
  /// Opens the file; `number()` is below zero when that fails.
  explicit OpenFile([[maybe_unused]] const std::filesystem::path& path) noexcept {
#if QUERN_GGUF_HAS_PREAD
    number_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
#endif
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  /// Closes the file.
  ~OpenFile() {
#if QUERN_GGUF_HAS_PREAD
    if (number_ >= 0) ::close(number_);
#endif
  }

  /// The file descriptor; below zero when there is none.
  [[nodiscard]] int number() const noexcept {
    return number_;
  }

  /// Fills `into` with the bytes from `position` on. False when reading fails or the file ends
  /// before. Safe from several threads at once.
  [[nodiscard]] bool read([[maybe_unused]] std::uint64_t position,
                          std::span<std::byte> into) const noexcept {
#if QUERN_GGUF_HAS_PREAD
    while (!into.empty()) {
      constexpr std::size_t most = std::size_t{1} << 30;
      const auto count =
          ::pread(number_, into.data(), std::min(into.size(), most), static_cast<off_t>(position));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      position += static_cast<std::uint64_t>(count);
      into = into.subspan(static_cast<std::size_t>(count));
    }
    return true;
#else
    return into.empty();
#endif
  }

private:
  int number_ = -1;
};

/// Reads parts of a mapped file through the file instead of the mapping. Who reads every byte once
/// is faster so, holds no page of the mapping, and gets an error, not a signal, when the file has
/// become shorter.
class MappedReader {
public:
  /// Reads nothing: there is no file.
  MappedReader() = default;
  /// `start` is the byte of the mapping that shows byte `offset` of the file.
  MappedReader(std::shared_ptr<const OpenFile> file, const std::byte* start,
               std::uint64_t offset) noexcept
      : file_(std::move(file)), start_(start), offset_(offset) {}

  /// True when there is a file to read.
  [[nodiscard]] explicit operator bool() const noexcept { return file_ != nullptr; }

  /// Fills `into` with what is at `part` of the mapping. False when the file does not give it.
  [[nodiscard]] bool read(const std::byte* part, std::span<std::byte> into) const noexcept {
    return file_ != nullptr &&
           file_->read(offset_ + static_cast<std::uint64_t>(part - start_), into);
  }

private:
  std::shared_ptr<const OpenFile> file_;
  const std::byte* start_ = nullptr;
  std::uint64_t offset_ = 0;
};

} // namespace quern::gguf
