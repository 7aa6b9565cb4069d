// floor: 6.1
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/formats.hpp>

/// @file
/// The tensor types of GGUF files. A type id from a file is looked up, never used as an index.

namespace quern::gguf {

/// A tensor type: `block_size` values along the first extent are stored in `bytes_per_block`.
struct Type {
  std::uint32_t id = 0;              ///< as files have it
  std::string_view name = {};        ///< "Q4_K", "I32", ...
  std::uint32_t block_size = 0;      ///< values in a block; 1 for single numbers
  std::uint32_t bytes_per_block = 0; ///< of a block
};

namespace detail {

/// Types that files may hold and that are no weight formats: tensors of these have bytes but no
/// weight view. Q8_1 and Q8_K are for activations.
inline constexpr std::array other_types{
    Type{9, "Q8_1", 32, 36}, Type{15, "Q8_K", 256, 292}, Type{24, "I8", 1, 1},
    Type{25, "I16", 1, 2},   Type{26, "I32", 1, 4},      Type{27, "I64", 1, 8},
    Type{28, "F64", 1, 8},
};

[[nodiscard]] consteval auto all_types() {
  std::array<Type, other_types.size() + format_count> all{};
  auto* const formats = std::ranges::copy(other_types, all.begin()).out;
  boost::mp11::mp_for_each<boost::mp11::mp_iota_c<format_count>>([&](auto i) {
    using F = boost::mp11::mp_at_c<Formats, i>;
    formats[i] = {F::gguf_type, F::name, F::block_size, F::bytes_per_block};
  });
  std::ranges::sort(all, {}, &Type::id);
  return all;
}

} // namespace detail

/// Every type that files may hold, by id: the block formats, and those that are none.
inline constexpr auto types = detail::all_types();
static_assert(std::ranges::adjacent_find(types, {}, &Type::id) == types.end(),
              "quern::gguf::types: two types of one id");

/// The type with this id, or null for an id that no file should hold.
[[nodiscard]] constexpr const Type* find_type(std::uint32_t id) noexcept {
  const auto found = std::ranges::lower_bound(types, id, {}, &Type::id);
  return found != types.end() && found->id == id ? &*found : nullptr;
}

/// Ids that the format once had and took out: two early formats, and layouts in kernel order, which
/// are not stored any more. Other projects reuse some of them.
[[nodiscard]] constexpr bool is_removed_type(std::uint32_t id) noexcept {
  constexpr std::array<std::uint32_t, 8> removed{4, 5, 31, 32, 33, 36, 37, 38};
  return std::ranges::binary_search(removed, id);
}

/// The name of a type for messages: "Q4_0", "removed type 4", "unknown type 43".
[[nodiscard]] inline std::string type_name(std::uint32_t id) {
  if (const Type* const type = find_type(id)) return std::string(type->name);
  return (is_removed_type(id) ? "removed type " : "unknown type ") + std::to_string(id);
}

} // namespace quern::gguf
