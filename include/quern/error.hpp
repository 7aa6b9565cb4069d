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
  truncated,           ///< the file ends inside a field, or before its GGUF starts
  bad_magic,           ///< the first four bytes are not "GGUF"
  foreign_endian,      ///< a big-endian file
  unsupported_version, ///< a version that is not read
  count_impossible,    ///< more keys or tensors than the bytes left can hold
  string_past_end,     ///< a string longer than the bytes left
  bad_key,             ///< a key that is empty, has a NUL byte or breaks the rules asked for
  duplicate_key,       ///< two metadata entries of one key
  bad_value_type,      ///< an unknown value type; strict: an array of arrays
  bad_bool,            ///< a bool that is neither 0 nor 1
  nested_too_deep,     ///< arrays of arrays deeper than is read
  array_past_end,      ///< an array longer than the bytes left
  alignment_type,      ///< general.alignment is no u32
  alignment_value,     ///< an alignment that is no power of two, or added to a Writer as a key
  bad_tensor_name,     ///< an empty or overlong tensor name, or one with a NUL byte
  duplicate_tensor,    ///< two tensors of one name
  too_many_dims,       ///< a tensor with more than 4 extents
  element_overflow,    ///< a product of extents that does not fit 63 bits
  removed_type,        ///< a tensor type that the format once had and took out
  unknown_type,        ///< a tensor type that is not known
  row_not_blocks,      ///< a stored row that is not a multiple of the block size
  bytes_overflow,      ///< a size that does not fit 64 bits or the address space
  offset_misaligned,   ///< data whose offset is no multiple of the alignment
  offset_past_end,     ///< data that would start past the end of the file
  data_past_end,       ///< data, with the padding asked for, that would end past the file
  data_overlap,        ///< two tensors whose data overlap
  not_packed,          ///< gaps between tensors or padding that is not zero, when refused
  limit_exceeded,      ///< more than the caller's limits, or memory, allow
  split_name,          ///< a file name that is not that of a part of a split set
  split_keys,          ///< a split.* key that is missing or impossible
  split_mismatch,      ///< a split.* key that contradicts the file name
  split_missing,       ///< a part of the set is not there
  split_count,         ///< the parts have not as many tensors as declared
};

/// Every run-time error of quern. The message names the call, the values and the fix.
class Error : public std::runtime_error {
public:
  /// `message` is what what() gives.
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  /// The kind of error.
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

private:
  ErrorCode code_;
};

} // namespace quern
