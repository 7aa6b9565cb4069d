// floor: 6.5
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <quern/gguf/cursor.hpp>
#include <quern/gguf/record_table.hpp>
#include <quern/gguf/tensor.hpp>

namespace quern::gguf {

/// The tensor table of a file: a range of Tensor in file order, and a lookup by name.
class TensorTable {
public:
  /// No tensors; parse() fills it.
  TensorTable() = default;
  TensorTable(const TensorTable&) = delete;
  TensorTable& operator=(const TensorTable&) = delete;

  /// The number of tensors.
  [[nodiscard]] std::size_t size() const noexcept { return records_.size(); }
  /// True when there is no tensor.
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// Tensor i in file order. Throws Error(out_of_range).
  [[nodiscard]] Tensor operator[](std::size_t i) const {
    if (i >= size())
      throw quern::Error(ErrorCode::out_of_range, "quern::gguf::TensorTable: tensor " +
                                                      std::to_string(i) + " of " +
                                                      std::to_string(size()));
    detail::Cursor at = records_.cursor(i);
    return detail::read_tensor(at, i);
  }

  /// Goes through the tensors in file order, and decodes each when it is dereferenced.
  [[nodiscard]] auto begin() const noexcept {
    return detail::IndexIterator<TensorTable, Tensor>(*this, 0);
  }
  /// Behind the last tensor.
  [[nodiscard]] auto end() const noexcept {
    return detail::IndexIterator<TensorTable, Tensor>(*this, size());
  }

  /// The tensor of this name, or nothing. Names are compared byte by byte.
  [[nodiscard]] std::optional<Tensor> find(std::string_view name) const {
    const auto i = records_.find(name);
    return i ? std::optional((*this)[*i]) : std::nullopt;
  }
  /// True when find() finds the name.
  [[nodiscard]] bool contains(std::string_view name) const { return find(name).has_value(); }

  /// The tensor of this name. Throws Error(no_such_tensor).
  [[nodiscard]] Tensor at(std::string_view name) const {
    if (const auto tensor = find(name)) return *tensor;
    throw quern::Error(ErrorCode::no_such_tensor, "quern::gguf: no tensor " +
                                                      detail::in_quotes(name) + " among the " +
                                                      std::to_string(size()) + " of the file");
  }

  /// Reads `count` entries and leaves the cursor after them. The rules of the cursor must outlive
  /// this object.
  void parse(detail::Cursor& at, std::uint64_t count) {
    records_.parse(at, count,
                   [&](std::uint64_t i) { static_cast<void>(detail::read_tensor(at, i)); });
    if (const auto duplicate = records_.index_names()) {
      const auto [first, second] = *duplicate;
      at.about(Subject::tensor, second);
      at.named(records_.name(second));
      at.fail(ErrorCode::duplicate_tensor, records_.position(static_cast<std::size_t>(second)),
              "the same name as tensor " + std::to_string(first));
    }
  }

  /// Checks that the data of each tensor lies aligned, complete and by itself within the
  /// `available` bytes of the data section. Returns the end of the last tensor, from the start of
  /// the section.
  [[nodiscard]] std::uint64_t check_data(std::uint64_t available, std::uint64_t alignment) const {
    std::uint64_t end = 0;
    std::uint64_t packed_end = 0;
    bool ascending = true;
    for (std::size_t i = 0; i < size(); ++i) {
      const Tensor tensor = (*this)[i];
      check_place(tensor, available, alignment);
      if (records_.cursor(i).rules().strict())
        packed_end = check_packed(tensor, packed_end, available, alignment);
      if (tensor.bytes == 0) continue;
      ascending = ascending && tensor.offset >= end;
      end = std::max(end, tensor.offset + tensor.bytes);
    }
    if (!ascending) check_disjoint();
    return end;
  }

  /// The tensors that have data, by offset.
  [[nodiscard]] std::vector<std::uint32_t> by_offset() const {
    std::vector<std::uint32_t> order;
    for (std::size_t i = 0; i < size(); ++i)
      if ((*this)[i].bytes != 0) order.push_back(static_cast<std::uint32_t>(i));
    std::ranges::sort(order, {}, [this](std::uint32_t i) { return (*this)[i].offset; });
    return order;
  }

private:
  [[noreturn]] void fail(const Tensor& tensor, ErrorCode code, const std::string& what) const {
    const auto i = static_cast<std::size_t>(tensor.index);
    detail::Cursor at = records_.cursor(i);
    at.about(Subject::tensor, tensor.index);
    at.named(tensor.name);
    at.fail(code, records_.end_position(i) - sizeof(tensor.offset), what); // the offset comes last
  }

  void check_place(const Tensor& tensor, std::uint64_t available, std::uint64_t alignment) const {
    if (tensor.offset % alignment != 0)
      fail(tensor, ErrorCode::offset_misaligned,
           "the data offset " + std::to_string(tensor.offset) +
               " is not a multiple of the alignment, " + std::to_string(alignment));
    if (tensor.offset > available)
      fail(tensor, ErrorCode::offset_past_end,
           "the data offset " + std::to_string(tensor.offset) + " lies beyond the " +
               std::to_string(available) + " bytes of the data section");
    if (tensor.bytes > available - tensor.offset)
      fail(tensor, ErrorCode::data_past_end,
           "the data needs " + std::to_string(tensor.bytes) + " bytes, the file has " +
               std::to_string(available - tensor.offset) + " from its offset on");
  }

  // Strict mode: each tensor starts where the one before it, padded, ends; also the last is padded.
  std::uint64_t check_packed(const Tensor& tensor, std::uint64_t expected, std::uint64_t available,
                             std::uint64_t alignment) const {
    if (tensor.offset != expected)
      fail(tensor, ErrorCode::not_packed,
           "the data offset is " + std::to_string(tensor.offset) + ", packed it would be " +
               std::to_string(expected));
    const std::uint64_t padding = (alignment - tensor.bytes % alignment) % alignment;
    const std::uint64_t left = available - tensor.offset - tensor.bytes;
    if (padding > left)
      fail(tensor, ErrorCode::data_past_end,
           "strict mode wants " + std::to_string(padding) + " bytes of padding after the data, " +
               std::to_string(left) + " are there");
    return tensor.offset + tensor.bytes + padding;
  }

  void check_disjoint() const {
    const std::vector<std::uint32_t> order = by_offset();
    for (std::size_t k = 1; k < order.size(); ++k) {
      const Tensor before = (*this)[order[k - 1]];
      const Tensor after = (*this)[order[k]];
      if (after.offset - before.offset < before.bytes)
        fail(after, ErrorCode::data_overlap,
             "the data starts at offset " + std::to_string(after.offset) +
                 ", inside that of tensor " + std::to_string(before.index) + " " +
                 detail::in_quotes(before.name) + ", which is " + std::to_string(before.bytes) +
                 " bytes at offset " + std::to_string(before.offset));
    }
  }

  detail::RecordTable records_;
};

} // namespace quern::gguf
