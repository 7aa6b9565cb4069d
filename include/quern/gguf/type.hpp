// floor: 6.1
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <quern/detail/config.hpp>

/// @file
/// The tensor types of GGUF files. A type id from a file is looked up, never used as an index.

namespace quern::gguf {

/// A tensor type: `block_size` values along the first extent are stored in `bytes_per_block`.
struct Type {
  std::uint32_t id;
  std::string_view name;
  std::uint32_t block_size;
  std::uint32_t bytes_per_block;
};

/// Every type that files may hold, by id. Q8_1 and Q8_K are activation formats and I8 to F64 are
/// plain numbers: tensors of these have bytes but no weight view.
inline constexpr std::array types{
    Type{0, "F32", 1, 4},         Type{1, "F16", 1, 2},         Type{2, "Q4_0", 32, 18},
    Type{3, "Q4_1", 32, 20},      Type{6, "Q5_0", 32, 22},      Type{7, "Q5_1", 32, 24},
    Type{8, "Q8_0", 32, 34},      Type{9, "Q8_1", 32, 36},      Type{10, "Q2_K", 256, 84},
    Type{11, "Q3_K", 256, 110},   Type{12, "Q4_K", 256, 144},   Type{13, "Q5_K", 256, 176},
    Type{14, "Q6_K", 256, 210},   Type{15, "Q8_K", 256, 292},   Type{16, "IQ2_XXS", 256, 66},
    Type{17, "IQ2_XS", 256, 74},  Type{18, "IQ3_XXS", 256, 98}, Type{19, "IQ1_S", 256, 50},
    Type{20, "IQ4_NL", 32, 18},   Type{21, "IQ3_S", 256, 110},  Type{22, "IQ2_S", 256, 82},
    Type{23, "IQ4_XS", 256, 136}, Type{24, "I8", 1, 1},         Type{25, "I16", 1, 2},
    Type{26, "I32", 1, 4},        Type{27, "I64", 1, 8},        Type{28, "F64", 1, 8},
    Type{29, "IQ1_M", 256, 56},   Type{30, "BF16", 1, 2},       Type{34, "TQ1_0", 256, 54},
    Type{35, "TQ2_0", 256, 66},   Type{39, "MXFP4", 32, 17},    Type{40, "NVFP4", 64, 36},
    Type{41, "Q1_0", 128, 18},    Type{42, "Q2_0", 64, 18},
};
static_assert(std::ranges::adjacent_find(types, std::ranges::greater_equal{}, &Type::id) ==
                  types.end(),
              "quern::gguf::types: ids must ascend, each once");

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
