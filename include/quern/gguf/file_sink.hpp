// floor: 6.2
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <system_error>

#include <quern/error.hpp>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace quern::gguf::detail {

/// Writes a file aside, under a name of its own in the same folder, and gives it the wanted name
/// when it is complete. Until then a file of that name stays as it was; after an error, the
/// destructor removes what was written. Every failure is Error(file_write).
class FileSink {
public:
  explicit FileSink(const std::filesystem::path& path) : path_(path), aside_(path) {
    std::random_device random;
    aside_ += std::string(".") + std::to_string(random()) + ".part";
    file_ = std::fopen(aside_.string().c_str(), "wbx"); // x: never somebody else's file
    if (file_ == nullptr) fail("can't create", errno);
  }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  ~FileSink() {
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    if (!done_) std::filesystem::remove(aside_, ignored);
  }

  void operator()(std::span<const std::byte> bytes) {
    if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
      fail("can't write", errno);
  }

  /// Puts the complete file in its place.
  void commit() {
    if (std::fflush(file_) != 0) fail("can't write", errno);
#if defined(__unix__) || defined(__APPLE__)
    // Else a crash after the rename could leave the name with no data behind it.
    if (::fsync(::fileno(file_)) != 0) fail("can't write", errno);
#endif
    std::FILE* const file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0) fail("can't write", errno);
    std::error_code failure;
    std::filesystem::rename(aside_, path_, failure);
    if (failure) fail("can't rename", failure.value());
    done_ = true;
  }

private:
  [[noreturn]] void fail(const char* what, int number) const {
    throw quern::Error(ErrorCode::file_write, std::string("quern::gguf::Writer: ") + what + " " +
                                                  aside_.string() + ": " +
                                                  std::generic_category().message(number) + "; " +
                                                  path_.string() + " is as it was before");
  }

  std::filesystem::path path_;
  std::filesystem::path aside_;
  std::FILE* file_ = nullptr;
  bool done_ = false;
};

} // namespace quern::gguf::detail
