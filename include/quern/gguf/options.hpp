// floor: 6.1
#pragma once

#include <cstdint>
#include <limits>

#include <quern/detail/config.hpp>

namespace quern::gguf {

/// How much of what writers do is accepted. docs/gguf.md has the table.
enum class Mode : std::uint8_t {
  standard, ///< everything the format allows and real files contain
  strict,   ///< also refuse what the reference reader refuses
  lenient,  ///< keep the index usable beside unknown tensor types; a bool is any byte
};

/// The most that the caller is willing to read. Exceeding a limit is Error(limit_exceeded), except
/// for a long tensor name, which is Error(bad_tensor_name).
struct Limits {
  std::uint64_t keys = std::numeric_limits<std::uint32_t>::max();    ///< never more than 2^32-1
  std::uint64_t tensors = std::numeric_limits<std::uint32_t>::max(); ///< never more than 2^32-1
  std::uint64_t key_bytes = std::uint64_t{1} << 30;                  ///< length of one key
  std::uint64_t tensor_name_bytes = 64;                              ///< strict mode: 63 at most
  /// Length of all metadata together.
  std::uint64_t metadata_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t alignment = std::uint32_t{1} << 31; ///< the largest `general.alignment` in bytes
};

/// How a file is opened.
struct Options {
  Mode mode = Mode::standard; ///< how much is accepted
  Limits limits = {};         ///< how much is read
  /// Refuse keys that break the naming rules of the format text: at most 65535 bytes, lower-case
  /// segments of [a-z0-9_] joined by dots. Real files break them.
  bool spec_keys = false;
  /// Refuse padding that is not zero. Reads the padding between tensors.
  bool zero_padding = false;
  /// Where the GGUF starts inside the source, in bytes. Everything in it is relative to that place.
  std::uint64_t offset = 0;
};

} // namespace quern::gguf
