// floor: 1
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <quern/detail/config.hpp>

namespace quern {

/// What went wrong, for code that must tell cases apart. The message of the Error has the values.
enum class ErrorCode : std::uint8_t {
  // Shapes, sizes and views
  size_mismatch,      ///< a byte or element count is not the one that the shape needs
  not_block_multiple, ///< a row length is not a multiple of the block size
  size_overflow,      ///< a product of extents does not fit its integer type
  out_of_range,       ///< an index or a range lies outside its extent
  negative_extent,    ///< an extent below zero
  looks_swapped,      ///< extents that look like [in, out] where [out, in] is needed
  scope_kind,         ///< memory asked of a scope that must not hold it
  use_after_reset,    ///< memory of a step was used after that step had ended
  refused,            ///< strict, and something would not be done as asked
  unsupported,        ///< no kernel, or a feature that this build does not have
  // Quantizing
  not_a_number,   ///< a NaN among the values to encode
  infinite,       ///< an infinity among the values to encode
  scale_overflow, ///< a block whose scale does not fit its field
  bad_importance, ///< a negative or NaN importance
  bad_block,      ///< a block with a NaN or infinite scale or a reserved code
  // Files
  file_open,        ///< the file can't be opened or examined
  file_read,        ///< reading failed or came up short
  file_write,       ///< writing failed
  no_such_tensor,   ///< no tensor of that name
  no_such_key,      ///< no metadata key of that name
  wrong_format,     ///< the tensor's type is not the format asked for
  wrong_value_type, ///< the metadata value is not of the type asked for
  not_a_matrix,     ///< the tensor has more than two extents and no slice was named
  // GGUF syntax (see gguf::Error for position and name)
  truncated,
  bad_magic,
  foreign_endian,
  unsupported_version,
  count_impossible,
  string_past_end,
  bad_key,
  duplicate_key,
  bad_value_type,
  bad_bool,
  nested_too_deep,
  array_past_end,
  alignment_type,
  alignment_value,
  bad_tensor_name,
  duplicate_tensor,
  too_many_dims,
  element_overflow,
  removed_type,
  unknown_type,
  row_not_blocks,
  bytes_overflow,
  offset_misaligned,
  offset_past_end,
  data_past_end,
  data_overlap,
  not_packed,
  limit_exceeded,
  split_name,
  split_keys,
  split_mismatch,
  split_missing,
  split_count,
};

/// Every run-time error of quern. The message names the call, the values and the fix.
class Error : public std::runtime_error {
public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  /// The kind of error.
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

private:
  ErrorCode code_;
};

} // namespace quern
