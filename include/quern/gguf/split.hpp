// floor: 6.9
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/detail/config.hpp>
#include <quern/error.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/name_table.hpp>
#include <quern/gguf/options.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/weight_stack.hpp>

namespace quern::gguf {

/// The name of one file of a split set: `<prefix>-NNNNN-of-MMMMM.gguf`, numbers of five digits that
/// count from 1.
struct SplitName {
  std::string prefix;   ///< what stands before `-NNNNN-of-MMMMM.gguf`
  std::uint32_t number; ///< of this file, from 1
  std::uint32_t count;  ///< files in the set

  /// The parts of a file name, or nothing when it has another form.
  [[nodiscard]] static std::optional<SplitName> parse(std::string_view name) {
    constexpr std::string_view middle = "-of-";
    constexpr std::string_view suffix = ".gguf";
    constexpr std::size_t digits = 5;
    constexpr std::size_t tail = 1 + digits + middle.size() + digits + suffix.size();
    if (name.size() <= tail || !name.ends_with(suffix)) return std::nullopt;
    const std::string_view prefix = name.substr(0, name.size() - tail);
    const std::string_view rest = name.substr(prefix.size());
    const auto number = parse_number(rest.substr(1, digits));
    const auto count = parse_number(rest.substr(1 + digits + middle.size(), digits));
    if (rest.front() != '-' || rest.substr(1 + digits, middle.size()) != middle || !number ||
        !count || *number == 0 || *number > *count)
      return std::nullopt;
    return SplitName{std::string(prefix), *number, *count};
  }

  /// The file name with another number.
  [[nodiscard]] std::string name_of(std::uint32_t other) const {
    return prefix + "-" + padded(other) + "-of-" + padded(count) + ".gguf";
  }

private:
  static std::optional<std::uint32_t> parse_number(std::string_view digits) {
    std::uint32_t number = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return std::nullopt;
      number = number * 10 + static_cast<std::uint32_t>(c - '0');
    }
    return number;
  }
  static std::string padded(std::uint32_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - digits.size(), '0') + digits;
  }
};

/// All files of a split set, opened from any one of them: a lookup of tensors across the files, and
/// the metadata of the first. Borrowing is as with File. Files are only read.
///
/// Opening throws what File throws, and Error(split_name) for a path of another form,
/// Error(split_missing) for a file that is not there, Error(split_keys) for a missing or impossible
/// split.* key, Error(split_mismatch) when a key contradicts the file name, Error(split_count) when
/// the files have not the declared number of tensors, Error(duplicate_tensor) across files.
class SplitSet {
public:
  /// Maps all files of the set that `path` belongs to. See File::map.
  [[nodiscard]] static SplitSet map(const std::filesystem::path& path,
                                    const Options& options = {}) {
    return SplitSet(path, options, &File::map);
  }
  /// Copies all files of the set into memory.
  [[nodiscard]] static SplitSet read(const std::filesystem::path& path,
                                     const Options& options = {}) {
    return SplitSet(path, options, &File::read);
  }

  /// The files, by number.
  [[nodiscard]] std::span<const File> files() const& noexcept { return files_; }
  /// The metadata of the first file, which alone describes the model.
  [[nodiscard]] const Metadata& metadata() const& noexcept { return files_.front().metadata(); }
  /// The number of tensors in all files.
  [[nodiscard]] std::size_t size() const noexcept { return starts_.back(); }

  /// The file that has the tensor, or null.
  [[nodiscard]] const File* find(std::string_view name) const& {
    const auto i = names_.find(name, [this](std::uint64_t k) { return name_of(k); });
    return i ? &files_[locate(*i).first] : nullptr;
  }
  /// The file that has the tensor. Throws Error(no_such_tensor).
  [[nodiscard]] const File& file_of(std::string_view name) const& {
    if (const File* const file = find(name)) return *file;
    throw quern::Error(ErrorCode::no_such_tensor, "quern::gguf::SplitSet: no tensor " +
                                                      detail::in_quotes(name) + " among the " +
                                                      std::to_string(size()) + " of " +
                                                      std::to_string(files_.size()) + " files");
  }

  /// As File::weight and File::visit_weight, whichever file has the tensor.
  template <BlockFormat F, class... Slice>
  [[nodiscard]] PackedView<F, RowMajor> weight(std::string_view name, Slice... slice) const& {
    return file_of(name).template weight<F>(name, slice...);
  }
  /// As File::weights, whichever file has the tensor.
  template <BlockFormat F>
  [[nodiscard]] WeightStack<F> weights(std::string_view name) const& {
    return file_of(name).template weights<F>(name);
  }
  /// As File::visit_weight, whichever file has the tensor: `visit_weight(name, f)` or
  /// `visit_weight(name, slice, f)`.
  template <class... SliceAndVisitor>
  decltype(auto) visit_weight(std::string_view name, SliceAndVisitor&&... rest) const& {
    return file_of(name).visit_weight(name, std::forward<SliceAndVisitor>(rest)...);
  }

  // clang-format off
  std::span<const File> files() const&& QUERN_DELETED("quern::gguf::SplitSet: files of a temporary set would dangle; keep the set in a variable");
  const Metadata& metadata() const&& QUERN_DELETED("quern::gguf::SplitSet: metadata of a temporary set would dangle; keep the set in a variable");
  const File* find(std::string_view) const&& QUERN_DELETED("quern::gguf::SplitSet: a file of a temporary set would dangle; keep the set in a variable");
  const File& file_of(std::string_view) const&& QUERN_DELETED("quern::gguf::SplitSet: a file of a temporary set would dangle; keep the set in a variable");
  template <BlockFormat F, class... Slice>
  PackedView<F, RowMajor> weight(std::string_view, Slice...) const&& QUERN_DELETED("quern::gguf::SplitSet: a view of a temporary set would dangle; keep the set in a variable");
  template <BlockFormat F>
  WeightStack<F> weights(std::string_view) const&& QUERN_DELETED("quern::gguf::SplitSet: a view of a temporary set would dangle; keep the set in a variable");
  template <class... SliceAndVisitor>
  void visit_weight(std::string_view, SliceAndVisitor&&...) const&& QUERN_DELETED("quern::gguf::SplitSet: a view of a temporary set would dangle; keep the set in a variable");
  // clang-format on

private:
  SplitSet(const std::filesystem::path& path, const Options& options,
           File (*open)(const std::filesystem::path&, const Options&)) {
    const auto name = SplitName::parse(path.filename().string());
    if (!name)
      fail(ErrorCode::split_name, path,
           "the name is not <prefix>-NNNNN-of-MMMMM.gguf with 1 <= NNNNN <= MMMMM");
    const auto path_of = [&](std::uint32_t number) {
      return path.parent_path() / name->name_of(number);
    };
    for (std::uint32_t number = 1; number <= name->count; ++number)
      if (!std::filesystem::exists(path_of(number)))
        fail(ErrorCode::split_missing, path_of(number), "this file of the set is not there");
    for (std::uint32_t number = 1; number <= name->count; ++number) {
      files_.push_back(open(path_of(number), options));
      starts_.push_back(starts_.back() + files_.back().tensors().size());
      check_keys(path_of(number), number, name->count);
    }
    check_tensors(path_of);
  }

  [[noreturn]] static void fail(ErrorCode code, const std::filesystem::path& path,
                                const std::string& what) {
    throw quern::Error(code, "quern::gguf::SplitSet: " + path.string() + ": " + what);
  }

  void check_keys(const std::filesystem::path& path, std::uint32_t number, std::uint32_t count) {
    const Metadata& metadata = files_.back().metadata();
    const auto read = [&](std::string_view key, bool needed) -> std::optional<std::uint64_t> {
      const auto value = metadata.find(key);
      if (!value && needed) fail(ErrorCode::split_keys, path, "no key " + std::string(key));
      if (!value) return std::nullopt;
      try {
        return value->get<std::uint64_t>();
      } catch (const quern::Error& error) {
        fail(ErrorCode::split_keys, path, error.what());
      }
    };
    const bool several = count > 1; // a set of one file is complete without the keys
    const auto stored_number = read("split.no", several);
    const auto stored_count = read("split.count", several);
    const auto stored_total = read("split.tensors.count", several && number == 1);
    if (stored_number && *stored_number != number - 1)
      fail(ErrorCode::split_mismatch, path,
           "split.no is " + std::to_string(*stored_number) + ", by the name it is " +
               std::to_string(number - 1) + ", counted from 0");
    if (stored_count && *stored_count != count)
      fail(ErrorCode::split_mismatch, path,
           "split.count is " + std::to_string(*stored_count) + ", by the name it is " +
               std::to_string(count));
    if (number == 1) declared_total_ = stored_total;
    if (stored_total != declared_total_ && stored_total)
      fail(ErrorCode::split_count, path,
           "split.tensors.count is " + std::to_string(*stored_total) +
               ", not the same as in the first file");
  }

  template <class PathOf>
  void check_tensors(PathOf path_of) {
    if (declared_total_ && *declared_total_ != size())
      fail(ErrorCode::split_count, path_of(1),
           "split.tensors.count is " + std::to_string(*declared_total_) +
               ", the files together have " + std::to_string(size()) + " tensors");
    if (size() > std::numeric_limits<std::uint32_t>::max())
      fail(ErrorCode::limit_exceeded, path_of(1), "more than 2^32-1 tensors in the set");
    const auto duplicate = names_.build(size(), [this](std::uint64_t i) { return name_of(i); });
    if (duplicate)
      fail(ErrorCode::duplicate_tensor,
           path_of(static_cast<std::uint32_t>(locate(duplicate->second).first) + 1),
           "the tensor " + detail::in_quotes(name_of(duplicate->second)) +
               " is also in the file of number " +
               std::to_string(locate(duplicate->first).first + 1));
  }

  /// File and place in its table of tensor i, counted through all files.
  [[nodiscard]] std::pair<std::size_t, std::size_t> locate(std::uint64_t i) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), i);
    const auto file = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return {file, static_cast<std::size_t>(i) - starts_[file]};
  }
  [[nodiscard]] std::string_view name_of(std::uint64_t i) const {
    const auto [file, tensor] = locate(i);
    return files_[file].tensors()[tensor].name;
  }

  std::vector<File> files_;
  std::vector<std::size_t> starts_{0};          // tensors in the files before each, and in all
  std::optional<std::uint64_t> declared_total_; // split.tensors.count
  detail::NameTable names_;
};

} // namespace quern::gguf
