// floor: 6.2
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <quern/error.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/mapped_reader.hpp>

#if defined(__unix__) || defined(__APPLE__)
/// 1 where files can be mapped, 0 where they are read instead.
#define QUERN_GGUF_HAS_MMAP 1
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
/// 1 where files can be mapped, 0 where they are read instead.
#define QUERN_GGUF_HAS_MMAP 0
#endif

/// @file
/// Where the bytes of a GGUF come from, and who owns them.

namespace quern::gguf {

/// Where the bytes of an open file live.
enum class Residency : std::uint8_t {
  borrowed, ///< in memory of the caller
  mapped,   ///< in the page cache, through a read-only mapping
  copied,   ///< in memory of the file object
};

/// Copies bytes from `position` on, counted from the start of the source, into the span and returns
/// how many it copied. Fewer than asked is no error; 0 means that reading failed. May throw.
using ReadAt = std::function<std::size_t(std::uint64_t position, std::span<std::byte> into)>;

/// The bytes of one GGUF. Their address stays the same when the object is moved. Bytes that come
/// from a reader are fetched when load() first asks for them.
class Source {
public:
  /// No bytes.
  Source() = default;

  /// Bytes of the caller, from `offset` on.
  [[nodiscard]] static Source borrow(std::span<const std::byte> bytes, std::uint64_t offset = 0) {
    const std::uint64_t size = rest(bytes.size(), offset);
    Source source(size, Residency::borrowed);
    source.data_ = bytes.data() + (bytes.size() - static_cast<std::size_t>(size));
    source.loaded_ = size;
    return source;
  }

  /// `size` bytes that `read` delivers, copied into memory of the source. Throws
  /// Error(limit_exceeded) when there is not that much memory.
  [[nodiscard]] static Source from_callback(std::uint64_t size, ReadAt read,
                                            std::uint64_t offset = 0) {
    Source source(rest(size, offset), Residency::copied);
    try {
      source.copy_.reset(static_cast<std::byte*>(::operator new(source.length(), copy_alignment)));
    } catch (const std::bad_alloc&) {
      throw quern::Error(ErrorCode::limit_exceeded,
                         "quern::gguf: no memory for a copy of " + std::to_string(source.size_) +
                             " bytes; map the file instead of reading it");
    }
    source.data_ = source.copy_.get();
    source.read_ = [read = std::move(read), offset](std::uint64_t at, std::span<std::byte> into) {
      return read(offset + at, into);
    };
    return source;
  }

  /// The file, copied into memory of the source. Throws Error(file_open).
  [[nodiscard]] static Source read(const std::filesystem::path& path, std::uint64_t offset = 0) {
    require_regular("quern::gguf::File::read", path);
    auto stream = std::make_shared<std::ifstream>();
    stream->rdbuf()->pubsetbuf(nullptr, 0); // the reads are large: a second buffer would only copy
    stream->open(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = stream->is_open() ? std::streamoff{stream->tellg()} : -1;
    if (size < 0) cannot_open("quern::gguf::File::read", path, "");
    Source source = from_callback(
        static_cast<std::uint64_t>(size),
        [stream](std::uint64_t position, std::span<std::byte> into) -> std::size_t {
          // A bounded piece: a failed read of the whole would not tell how far it came.
          constexpr std::size_t most = std::size_t{1} << 30;
          stream->clear();
          stream->seekg(static_cast<std::streamoff>(position));
          stream->read(reinterpret_cast<char*>(into.data()),
                       static_cast<std::streamsize>(std::min(into.size(), most)));
          return static_cast<std::size_t>(stream->gcount());
        },
        offset);
    source.origin_ = path.string();
    return source;
  }

  /// The file through a read-only mapping; where the platform has none, as read(). Throws
  /// Error(file_open). Not safe against a file that another process truncates while it is mapped:
  /// touching a page past the new end stops the process (SIGBUS).
  [[nodiscard]] static Source map(const std::filesystem::path& path, std::uint64_t offset = 0) {
#if QUERN_GGUF_HAS_MMAP
    require_regular("quern::gguf::File::map", path);
    auto file = std::make_shared<const OpenFile>(path);
    struct stat status {};
    if (file->number() < 0 || ::fstat(file->number(), &status) != 0)
      cannot_open("quern::gguf::File::map", path, std::strerror(errno));
    const std::uint64_t size = rest(static_cast<std::uint64_t>(status.st_size), offset);
    Source source(size, Residency::mapped);
    source.loaded_ = size;
    source.origin_ = path.string();
    if (size == 0) return source;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t before = offset % page; // a mapping starts at a page
    const std::size_t length = source.length() + static_cast<std::size_t>(before);
    void* const start = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file->number(),
                               static_cast<off_t>(offset - before));
    if (start == MAP_FAILED) cannot_open("quern::gguf::File::map", path, std::strerror(errno));
    source.mapping_ = std::unique_ptr<void, Unmap>(start, Unmap{length});
    source.data_ = static_cast<const std::byte*>(start) + before;
    source.reader_ = MappedReader(std::move(file), source.data_, offset);
    return source;
#else
    return read(path, offset);
#endif
  }

  /// Path of the file; empty for bytes and callbacks.
  [[nodiscard]] const std::string& origin() const noexcept {
    return origin_;
  }
  /// Where the bytes live.
  [[nodiscard]] Residency residency() const noexcept {
    return residency_;
  }
  /// Bytes from the start of the GGUF to the end of the source.
  [[nodiscard]] std::uint64_t size() const noexcept {
    return size_;
  }
  /// How many of them, from the start, are in memory.
  [[nodiscard]] std::uint64_t loaded() const noexcept {
    return loaded_;
  }
  /// Address of the first byte of the GGUF; the first loaded() may be read.
  [[nodiscard]] const std::byte* data() const noexcept {
    return data_;
  }
  /// Reads parts of a mapped file; nothing for other sources.
  [[nodiscard]] const MappedReader& reader() const noexcept {
    return reader_;
  }
  /// The bytes in memory.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {data_, static_cast<std::size_t>(loaded_)};
  }

  /// Makes bytes [0, end) readable, end <= size(). Throws gguf::Error(file_read) when the reader
  /// ends early, and whatever the reader throws.
  void load(std::uint64_t end) {
    while (loaded_ < end) {
      const std::uint64_t most = std::min(size_, std::max(end, loaded_ + read_ahead));
      const std::span<std::byte> into(copy_.get() + loaded_,
                                      static_cast<std::size_t>(most - loaded_));
      const std::size_t got = read_(loaded_, into);
      if (got == 0 || got > into.size())
        throw Error(ErrorCode::file_read, {loaded_, Subject::file, std::nullopt, {}, origin_},
                    "reading came up short: byte " + std::to_string(end) + " of " +
                        std::to_string(size_) + " is needed, the reader returned " +
                        std::to_string(got));
      loaded_ += got;
    }
  }

  /// Lets go of the reader: nothing more will be loaded.
  void finish() noexcept {
    read_ = nullptr;
  }

private:
  static constexpr std::align_val_t copy_alignment{64}; // what the widest vector loads like best
  static constexpr std::uint64_t read_ahead = std::uint64_t{256} << 10;

  struct FreeCopy {
    void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, copy_alignment); }
  };
#if QUERN_GGUF_HAS_MMAP
  struct Unmap {
    std::size_t length;
    void operator()(void* start) const noexcept { ::munmap(start, length); }
  };
#endif

  Source(std::uint64_t size, Residency residency) : size_(size), residency_(residency) {
    if (size > std::numeric_limits<std::size_t>::max() / 2)
      throw Error(ErrorCode::bytes_overflow, {},
                  "a GGUF of " + std::to_string(size) + " bytes does not fit the address space");
  }

  [[nodiscard]] std::size_t length() const noexcept {
    return static_cast<std::size_t>(size_);
  }

  static std::uint64_t rest(std::uint64_t size, std::uint64_t offset) {
    if (offset > size)
      throw Error(ErrorCode::truncated, {},
                  "the GGUF is said to start at byte " + std::to_string(offset) +
                      " of a source of " + std::to_string(size) + " bytes");
    return size - offset;
  }

  static void require_regular(const char* call, const std::filesystem::path& path) {
    std::error_code failure;
    const auto status = std::filesystem::status(path, failure);
    if (!std::filesystem::exists(status)) cannot_open(call, path, "no such file");
    if (!std::filesystem::is_regular_file(status)) cannot_open(call, path, "not a regular file");
  }

  [[noreturn]] static void cannot_open(const char* call, const std::filesystem::path& path,
                                       const std::string& why) {
    throw quern::Error(ErrorCode::file_open, std::string(call) + ": can't open " + path.string() +
                                                 (why.empty() ? "" : ": " + why));
  }

  std::unique_ptr<std::byte, FreeCopy> copy_;
#if QUERN_GGUF_HAS_MMAP
  std::unique_ptr<void, Unmap> mapping_;
#endif
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t loaded_ = 0;
  Residency residency_ = Residency::borrowed;
  ReadAt read_;
  MappedReader reader_;
  std::string origin_;
};

} // namespace quern::gguf
