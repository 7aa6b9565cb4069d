// floor: 6.7
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <quern/gguf/cursor.hpp>
#include <quern/gguf/metadata.hpp>
#include <quern/gguf/options.hpp>
#include <quern/gguf/source.hpp>
#include <quern/gguf/tensor_table.hpp>

/// @file
/// The header of a GGUF, and the order in which everything is checked.

namespace quern::gguf::detail {

/// Everything a file says before its data. Stays where it is: its parts point to each other.
struct Index {
  Rules rules;
  Metadata metadata;
  TensorTable tensors;
  std::uint32_t alignment = 32;
  std::uint64_t data_position = 0; ///< start of the data section in the GGUF
  std::uint64_t data_bytes = 0;    ///< from there to the end of the last tensor

  Index() = default;
  /// Reads and checks the index of `source`, and no tensor data. Throws gguf::Error.
  Index(Source& source, const Options& options);
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

private:
  void check_padding(Source& source, std::uint64_t table_end) const;
};

/// The next multiple of `alignment`, `position` itself when it is one.
[[nodiscard]] constexpr std::uint64_t padded(std::uint64_t position,
                                             std::uint64_t alignment) noexcept {
  return position + (alignment - position % alignment) % alignment;
}

/// What a file is that is no GGUF, when its first bytes tell.
[[nodiscard]] inline std::string magic_hint(std::string_view start) {
  if (start.starts_with("version https://git-lfs"))
    return "; this is a Git LFS pointer, fetch the file itself (git lfs pull)";
  if (start.starts_with("FUGG")) return "; these are the bytes of the magic in reverse";
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"})
    if (start.starts_with(old))
      return "; this is a GGML, GGMF, GGJT or GGLA file from before GGUF, convert it";
  return "";
}

inline void check_magic(Cursor& at) {
  constexpr std::string_view lfs = "version https://git-lfs";
  Cursor ahead = at;
  const std::string_view magic = at.take(4, "the magic");
  if (magic == "GGUF") return;
  const std::string_view start =
      ahead.take(std::min<std::uint64_t>(ahead.remaining(), lfs.size()), "the magic");
  at.fail(ErrorCode::bad_magic, 0,
          "the file starts with " + in_quotes(magic) + ", must be \"GGUF\"" + magic_hint(start));
}

[[nodiscard]] inline std::uint32_t read_version(Cursor& at) {
  constexpr std::uint32_t highest = 3;
  const std::uint64_t start = at.position();
  const auto version = at.number<std::uint32_t>("the version");
  const std::uint32_t swapped =
      (version >> 24) | ((version >> 8) & 0xFF00u) | ((version << 8) & 0xFF0000u) | (version << 24);
  if ((version & 0xFFFFu) == 0 && swapped >= 1 && swapped <= highest)
    at.fail(ErrorCode::foreign_endian, start,
            "a big-endian file of version " + std::to_string(swapped) +
                "; convert the file to little-endian");
  const std::uint32_t lowest = at.rules().strict() ? 2 : 1;
  if (version < lowest || version > highest)
    at.fail(ErrorCode::unsupported_version, start,
            "version " + std::to_string(version) + "; versions " + std::to_string(lowest) + " to " +
                std::to_string(highest) + " are read" + (version == 1 ? " in strict mode" : ""));
  return version;
}

struct Counts {
  std::uint64_t tensors;
  std::uint64_t keys;
};

/// Reads both counts and refuses those that the rest of the file can't hold.
[[nodiscard]] inline Counts read_counts(Cursor& at) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max(); // what NameTable holds
  const std::uint64_t tensors_at = at.position();
  const std::uint64_t tensors = at.length("the tensor count");
  const std::uint64_t keys_at = at.position();
  const std::uint64_t keys = at.length("the key count");
  const std::uint64_t length_bytes = at.rules().length_bytes();
  // A name length, two 32-bit fields and a 64-bit offset; a key length, one byte of key, the type
  // and one byte of value.
  const auto check = [&](std::string_view what, std::uint64_t count, std::uint64_t position,
                         std::uint64_t least, std::uint64_t limit) {
    if (count > at.remaining() / least)
      at.fail(ErrorCode::count_impossible, position,
              std::to_string(count) + " " + std::string(what) + " need at least " +
                  std::to_string(least) + " bytes each, " + std::to_string(at.remaining()) +
                  " are left in all");
    if (count > std::min(limit, most))
      at.fail(ErrorCode::limit_exceeded, position,
              std::to_string(count) + " " + std::string(what) + "; the limit is " +
                  std::to_string(std::min(limit, most)));
  };
  const Limits& limits = at.rules().options.limits;
  check("tensors", tensors, tensors_at, length_bytes + 16, limits.tensors);
  check("keys", keys, keys_at, length_bytes + 6, limits.keys);
  return {tensors, keys};
}

[[nodiscard]] inline std::uint32_t read_alignment(const Metadata& metadata, std::uint32_t limit) {
  constexpr std::uint32_t without_key = 32;
  const auto value = metadata.find("general.alignment");
  if (!value) return without_key;
  if (value->type() != ValueType::u32)
    value->fail(ErrorCode::alignment_type, "the alignment is of type " +
                                               std::string(to_string(value->type())) +
                                               ", must be u32");
  const auto alignment = value->get<std::uint32_t>();
  if (!std::has_single_bit(alignment))
    value->fail(ErrorCode::alignment_value,
                "the alignment is " + std::to_string(alignment) + ", must be a power of two");
  if (alignment > limit)
    value->fail(ErrorCode::limit_exceeded, "the alignment is " + std::to_string(alignment) +
                                               "; the limit set is " + std::to_string(limit));
  return alignment;
}

inline void Index::check_padding(Source& source, std::uint64_t table_end) const {
  const std::uint64_t end = std::min(source.size(), padded(data_position + data_bytes, alignment));
  source.load(end);
  const auto check = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i)
      if (source.data()[i] != std::byte{0})
        throw Error(ErrorCode::not_packed, {i, Subject::file, std::nullopt, {}, rules.origin},
                    "a padding byte is " + std::to_string(std::to_integer<int>(source.data()[i])) +
                        ", must be 0");
  };
  check(table_end, data_position);
  for (const std::uint32_t i : tensors.by_offset()) {
    const Tensor tensor = tensors[i];
    const std::uint64_t data_end = data_position + tensor.offset + tensor.bytes;
    check(data_end, std::min(end, padded(data_end, alignment)));
  }
}

inline Index::Index(Source& source, const Options& options) : rules{options, 0, source.origin()} {
  Cursor at(rules, source);
  check_magic(at);
  rules.version = read_version(at);
  const Counts counts = read_counts(at);
  metadata.parse(at, counts.keys);
  alignment = read_alignment(metadata, options.limits.alignment);
  tensors.parse(at, counts.tensors);
  // No wrap: a position lies below 2^63, see Source, and the alignment below 2^32.
  data_position = padded(at.position(), alignment);
  if (tensors.empty()) return;
  if (data_position > source.size())
    at.fail(ErrorCode::data_past_end, at.position(),
            "the data section starts at byte " + std::to_string(data_position) + ", the file has " +
                std::to_string(source.size()));
  data_bytes = tensors.check_data(source.size() - data_position, alignment);
  if (options.zero_padding) check_padding(source, at.position());
}

} // namespace quern::gguf::detail
