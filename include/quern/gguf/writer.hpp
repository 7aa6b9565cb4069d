// floor: 6.7
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <quern/block_format.hpp>
#include <quern/detail/checked.hpp>
#include <quern/detail/config.hpp>
#include <quern/error.hpp>
#include <quern/gguf/cursor.hpp>
#include <quern/gguf/encode_value.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/file_sink.hpp>
#include <quern/gguf/metadata.hpp>
#include <quern/gguf/options.hpp>
#include <quern/gguf/tensor.hpp>
#include <quern/gguf/value.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>

namespace quern::gguf {

/// Writes GGUF version 3, little-endian, so that strict readers take it: unique names, tensors
/// packed in the order of the calls, zeros as padding, also after the last tensor. Collects
/// metadata by value and tensor data by reference: the data must live until the file is written. A
/// call that throws, also std::bad_alloc, leaves the writer as it was.
class Writer {
public:
  /// `alignment` of tensor data in bytes, a power of two; written as `general.alignment` unless it
  /// is 32, which readers assume. Throws Error(alignment_value).
  explicit Writer(std::uint32_t alignment = default_alignment) : alignment_(alignment) {
    if (!std::has_single_bit(alignment))
      throw quern::Error(ErrorCode::alignment_value, "quern::gguf::Writer: alignment " +
                                                         std::to_string(alignment) +
                                                         " is not a power of two");
    if (alignment != default_alignment) store(alignment_key, alignment);
  }

  /// Adds metadata: an integer (stored in its own width and sign), float, double, bool, string, or
  /// a range of these, up to four levels deep. Throws Error(bad_key) and Error(duplicate_key).
  template <class T>
  requires(detail::is_storable<T>) void add(std::string_view key, const T& value) {
    refuse_alignment(key);
    store(key, value);
  }

  /// Adds a value of an open file, as it is there.
  void add(std::string_view key, const Value& value) {
    refuse_alignment(key);
    std::vector<std::byte> encoded;
    detail::append_copy(encoded, value);
    store(key, value.type(), encoded);
  }

  /// Adds all metadata of an open file but the alignment, which this writer has its own of. When it
  /// throws, the keys before the one at fault have been added.
  void add_all(const Metadata& metadata) {
    for (const Entry& entry : metadata)
      if (entry.key != alignment_key) add(entry.key, entry.value);
  }

  /// Adds a tensor of any type of the format. `extents`: one to four, fastest first, so {in, out}
  /// for a matrix. `bytes` is its data, row after row. Throws gguf::Error for a name, shape or type
  /// that a strict reader would refuse, and Error(size_mismatch) when `bytes` is not what the shape
  /// takes.
  void add_tensor(std::string_view name, std::uint32_t type_id,
                  std::span<const std::uint64_t> extents, std::span<const std::byte> bytes) {
    const Tensor tensor = check(name, type_id, extents);
    if (tensor.bytes != bytes.size())
      throw quern::Error(ErrorCode::size_mismatch,
                         "quern::gguf::Writer: tensor " + detail::in_quotes(name) + " of " +
                             type_name(type_id) + " " + to_string(tensor.extents) + " takes " +
                             std::to_string(tensor.bytes) + " bytes, got " +
                             std::to_string(bytes.size()));
    append(name, type_id, extents, {bytes.data(), bytes.size(), 1, bytes.size()});
  }
  /// The same with the extents in braces: `{in, out}`.
  void add_tensor(std::string_view name, std::uint32_t type_id,
                  std::initializer_list<std::uint64_t> extents, std::span<const std::byte> bytes) {
    add_tensor(name, type_id, std::span(extents.begin(), extents.size()), bytes);
  }

  /// Adds a weight. A narrowed view is written as the matrix that it shows.
  template <BlockFormat F>
  void add_weight(std::string_view name, const PackedView<F, RowMajor>& weight) {
    const std::array<std::uint64_t, 2> extents{weight.in(), weight.out()};
    static_cast<void>(check(name, F::gguf_type, extents));
    append(name, F::gguf_type, extents,
           {weight.data(), weight.blocks_per_row() * F::bytes_per_block, weight.out(),
            weight.stride() * F::bytes_per_block});
  }

  // clang-format off
  template <BlockFormat F>
  void add_weight(std::string_view, const PackedView<F, InputBlockMajor>&) QUERN_DELETED("quern::gguf::Writer: a GGUF file holds RowMajor; call quern::prepack<RowMajor>(view, scope) first");
  template <std::ranges::range Owner>
    requires(!std::is_lvalue_reference_v<Owner> && !std::ranges::borrowed_range<Owner>)
  void add_tensor(std::string_view, std::uint32_t, std::initializer_list<std::uint64_t>, Owner&&) QUERN_DELETED("quern::gguf::Writer: tensor data is not copied; keep the bytes in a variable until the file is written");
  // clang-format on

  /// The size of the file in bytes.
  [[nodiscard]] std::uint64_t size() const {
    return header_bytes() + (tensors_.empty() ? 0 : data_bytes_);
  }

  /// The file as bytes.
  [[nodiscard]] std::vector<std::byte> to_bytes() const {
    std::vector<std::byte> bytes;
    bytes.reserve(static_cast<std::size_t>(size()));
    write_to([&](std::span<const std::byte> part) {
      bytes.insert(bytes.end(), part.begin(), part.end());
    });
    return bytes;
  }

  /// Writes the file aside and renames it when it is complete, so `path` either is the new file or
  /// stays as it was. Throws Error(file_write), also when the disk is full. Writing over a file
  /// that is open through File::map is safe: the mapping keeps the old one.
  void write(const std::filesystem::path& path) const {
    detail::FileSink sink(path);
    write_to(sink);
    sink.commit();
  }

  /// Calls `sink(std::span<const std::byte>)` with the parts of the file, from first to last.
  template <class Sink>
  void write_to(Sink&& sink) const {
    sink(header());
    for (const Record& record : tensors_) {
      if (record.data.row_bytes == record.data.stride_bytes)
        sink(std::span(record.data.first, record.data.row_bytes * record.data.rows));
      else
        for (std::size_t row = 0; row < record.data.rows; ++row)
          sink(
              std::span(record.data.first + row * record.data.stride_bytes, record.data.row_bytes));
      const std::vector<std::byte> padding(padding_after(record.data.size()));
      sink(std::span<const std::byte>(padding));
    }
  }

private:
  static constexpr std::uint32_t default_alignment = 32;
  static constexpr std::string_view alignment_key = "general.alignment";

  /// Where a tensor's data lies in memory: rows of the same size, each so far from the next.
  struct Data {
    const std::byte* first;
    std::size_t row_bytes;
    std::size_t rows;
    std::size_t stride_bytes;

    [[nodiscard]] std::uint64_t size() const noexcept { return std::uint64_t{row_bytes} * rows; }
  };

  struct Record {
    std::vector<std::byte> entry; // of the tensor table, without the offset
    std::uint64_t offset;
    Data data;
  };

  static void refuse_alignment(std::string_view key) {
    if (key == alignment_key)
      throw quern::Error(ErrorCode::alignment_value,
                         "quern::gguf::Writer: general.alignment is set by the constructor");
  }

  template <class T>
  void store(std::string_view key, const T& value) {
    std::vector<std::byte> encoded;
    detail::append_value(encoded, value);
    store(key, detail::value_type_of<T>(), encoded);
  }

  void store(std::string_view key, ValueType type, const std::vector<std::byte>& encoded) {
    constexpr std::size_t most = 65535;
    if (key.empty() || key.size() > most || key.find('\0') != std::string_view::npos)
      throw quern::Error(ErrorCode::bad_key, "quern::gguf::Writer: the key " +
                                                 detail::in_quotes(key) +
                                                 " must have 1 to 65535 bytes, none of them NUL");
    std::vector<std::byte> entry;
    detail::append_string(entry, key);
    detail::append_number(entry, static_cast<std::uint32_t>(type));
    entry.insert(entry.end(), encoded.begin(), encoded.end());
    // Whatever may fail comes first, so that a failure changes nothing.
    make_room(metadata_, entry.size());
    if (!keys_.emplace(key).second)
      throw quern::Error(ErrorCode::duplicate_key,
                         "quern::gguf::Writer: the key " + detail::in_quotes(key) + " exists");
    metadata_.insert(metadata_.end(), entry.begin(), entry.end());
  }

  /// Makes the next `more` elements fit without allocating.
  template <class T>
  static void make_room(std::vector<T>& all, std::size_t more) {
    if (all.capacity() - all.size() < more)
      all.reserve(std::max(2 * all.capacity(), all.size() + more));
  }

  static std::vector<std::byte> entry_of(std::string_view name, std::uint32_t type_id,
                                         std::span<const std::uint64_t> extents) {
    std::vector<std::byte> entry;
    detail::append_string(entry, name);
    detail::append_number(entry, static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents)
      detail::append_number(entry, extent);
    detail::append_number(entry, type_id);
    return entry;
  }

  /// What a strict reader makes of the entry; throws what it would throw.
  [[nodiscard]] Tensor check(std::string_view name, std::uint32_t type_id,
                             std::span<const std::uint64_t> extents) const {
    if (names_.contains(name))
      throw quern::Error(ErrorCode::duplicate_tensor,
                         "quern::gguf::Writer: the tensor " + detail::in_quotes(name) + " exists");
    std::vector<std::byte> entry = entry_of(name, type_id, extents);
    detail::append_number<std::uint64_t>(entry, 0); // the offset
    const detail::Rules strict{Options{Mode::strict}, 3};
    detail::Cursor at(strict, entry.data(), 0, entry.size());
    Tensor tensor = detail::read_tensor(at, tensors_.size());
    tensor.name = name; // not the copy, which goes away
    return tensor;
  }

  void append(std::string_view name, std::uint32_t type_id, std::span<const std::uint64_t> extents,
              const Data& data) {
    const auto end = quern::detail::checked_add(data_bytes_, data.size());
    const auto padded =
        end ? quern::detail::checked_add(*end, std::uint64_t{padding_after(*end)}) : std::nullopt;
    if (!padded)
      throw quern::Error(ErrorCode::bytes_overflow,
                         "quern::gguf::Writer: the tensors take more than 2^64 bytes together");
    Record record{entry_of(name, type_id, extents), data_bytes_, data};
    make_room(tensors_, 1);
    names_.emplace(name);
    tensors_.push_back(std::move(record));
    table_bytes_ += tensors_.back().entry.size() + sizeof(std::uint64_t);
    data_bytes_ = *padded;
  }

  [[nodiscard]] std::size_t padding_after(std::uint64_t end) const noexcept {
    return static_cast<std::size_t>((alignment_ - end % alignment_) % alignment_);
  }

  /// Bytes before the data section, its padding included when there are tensors.
  [[nodiscard]] std::uint64_t header_bytes() const noexcept {
    constexpr std::uint64_t fixed = 24;
    const std::uint64_t end = fixed + metadata_.size() + table_bytes_;
    return end + (tensors_.empty() ? 0 : padding_after(end));
  }

  [[nodiscard]] std::vector<std::byte> header() const {
    std::vector<std::byte> bytes;
    bytes.reserve(static_cast<std::size_t>(header_bytes()));
    for (const char c : std::string_view("GGUF"))
      bytes.push_back(static_cast<std::byte>(c));
    detail::append_number<std::uint32_t>(bytes, 3);
    detail::append_number<std::uint64_t>(bytes, tensors_.size());
    detail::append_number<std::uint64_t>(bytes, keys_.size());
    bytes.insert(bytes.end(), metadata_.begin(), metadata_.end());
    for (const Record& record : tensors_) {
      bytes.insert(bytes.end(), record.entry.begin(), record.entry.end());
      detail::append_number(bytes, record.offset);
    }
    bytes.resize(static_cast<std::size_t>(header_bytes()));
    return bytes;
  }

  std::uint32_t alignment_;
  std::vector<std::byte> metadata_;
  std::set<std::string, std::less<>> keys_;
  std::vector<Record> tensors_;
  std::set<std::string, std::less<>> names_;
  std::uint64_t table_bytes_ = 0;
  std::uint64_t data_bytes_ = 0; // of all tensors, each padded
};

} // namespace quern::gguf
