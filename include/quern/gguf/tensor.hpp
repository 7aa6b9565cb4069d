// floor: 6.4
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <quern/detail/checked.hpp>
#include <quern/gguf/cursor.hpp>
#include <quern/gguf/type.hpp>

namespace quern::gguf {

/// One entry of the tensor table. `name` borrows from the file.
struct Tensor {
  std::string_view name;   ///< borrows from the file
  std::uint64_t index = 0; ///< place in the table, from 0
  /// Extents as the file writes them, fastest first; those it leaves out are 1. Of a matrix they
  /// are {in, out, 1, 1}.
  std::array<std::uint64_t, 4> extents{1, 1, 1, 1};
  std::uint32_t type_id = 0; ///< the type as the file has it
  /// The type, or null for an unknown id, which only lenient mode lets pass.
  const Type* type = nullptr;
  std::uint64_t elements = 0; ///< product of the extents
  std::uint64_t bytes = 0;    ///< size of the data; 0 when the type is unknown
  std::uint64_t offset = 0;   ///< of the data, from the start of the data section

  /// True when the tensor has at most two extents other than 1.
  [[nodiscard]] bool is_matrix() const noexcept { return extents[2] == 1 && extents[3] == 1; }
};

/// "{in, out, e2, e3}" for messages.
[[nodiscard]] inline std::string to_string(const std::array<std::uint64_t, 4>& extents) {
  return std::string("{") + std::to_string(extents[0]) + ", " + std::to_string(extents[1]) + ", " +
         std::to_string(extents[2]) + ", " + std::to_string(extents[3]) + "}";
}

namespace detail {

[[nodiscard]] inline std::string_view tensor_name(Cursor& at) {
  const std::uint64_t start = at.position();
  const std::string_view name = at.string("a tensor name");
  const std::uint64_t limit = at.rules().options.limits.tensor_name_bytes;
  const std::uint64_t most = at.rules().strict() && limit > 63 ? 63 : limit;
  if (name.empty()) at.fail(ErrorCode::bad_tensor_name, start, "an empty tensor name");
  if (name.size() > most)
    at.fail(ErrorCode::bad_tensor_name, start,
            "the name " + in_quotes(name) + " has " + std::to_string(name.size()) +
                " bytes, at most " + std::to_string(most) + " are allowed");
  if (name.find('\0') != std::string_view::npos)
    at.fail(ErrorCode::bad_tensor_name, start, "a NUL byte in the name " + in_quotes(name));
  return name;
}

[[nodiscard]] inline std::uint32_t read_extents(Cursor& at, std::array<std::uint64_t, 4>& extents) {
  const std::uint64_t count_at = at.position();
  const auto count = at.number<std::uint32_t>("the number of extents");
  if (count > extents.size())
    at.fail(ErrorCode::too_many_dims, count_at,
            std::to_string(count) + " extents, at most 4 are allowed");
  for (std::uint32_t d = 0; d < count; ++d)
    extents[d] = at.length("an extent");
  return count;
}

/// The product of the extents, taken in order, so that a zero hides no overflow before it.
[[nodiscard]] inline std::uint64_t element_count(const Cursor& at, std::uint64_t extents_at,
                                                 const std::array<std::uint64_t, 4>& extents) {
  // Below the largest signed number, as the reference reader has it.
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max() - 1;
  std::uint64_t product = 1;
  for (const std::uint64_t extent : extents) {
    const auto next = quern::detail::checked_mul(product, extent);
    if (!next || *next > most || extent > most)
      at.fail(ErrorCode::element_overflow, extents_at,
              "element count overflow: the extents " + gguf::to_string(extents) +
                  " have a product that does not fit 63 bits");
    product = *next;
  }
  return product;
}

/// Reads and checks one entry of the tensor table, as far as it can be checked without the data
/// section.
[[nodiscard]] inline Tensor read_tensor(Cursor& at, std::uint64_t index) {
  at.about(Subject::tensor, index);
  Tensor tensor;
  tensor.index = index;
  tensor.name = tensor_name(at);
  at.named(tensor.name);
  const std::uint64_t extents_at = at.position() + 4;
  const std::uint32_t extent_count = read_extents(at, tensor.extents);
  tensor.elements = element_count(at, extents_at, tensor.extents);
  const std::uint64_t type_at = at.position();
  tensor.type_id = at.number<std::uint32_t>("the tensor type");
  tensor.offset = at.number<std::uint64_t>("the data offset");
  tensor.type = find_type(tensor.type_id);
  if (tensor.type == nullptr) {
    if (at.rules().lenient()) return tensor;
    if (is_removed_type(tensor.type_id))
      at.fail(ErrorCode::removed_type, type_at,
              "removed type " + std::to_string(tensor.type_id) +
                  ": layouts in kernel order are not stored any more, and other projects reuse "
                  "some of these ids; lenient mode keeps the other tensors readable");
    at.fail(ErrorCode::unknown_type, type_at,
            "unknown type " + std::to_string(tensor.type_id) + ", the highest known is " +
                std::to_string(types.back().id) +
                "; lenient mode keeps the other tensors readable");
  }
  const Type& type = *tensor.type;
  if (tensor.extents[0] % type.block_size != 0)
    at.fail(ErrorCode::row_not_blocks, extents_at,
            "row length " + std::to_string(tensor.extents[0]) + " is not a multiple of " +
                std::to_string(type.block_size) + ", the block of " + std::string(type.name) +
                " (" + std::to_string(extent_count) + " extents)");
  const auto bytes = quern::detail::checked_mul(tensor.elements / type.block_size,
                                                std::uint64_t{type.bytes_per_block});
  if (!bytes)
    at.fail(ErrorCode::bytes_overflow, extents_at,
            std::to_string(tensor.elements) + " elements of " + std::string(type.name) +
                " take more than 2^64 bytes");
  tensor.bytes = *bytes;
  return tensor;
}

} // namespace detail

} // namespace quern::gguf
