// floor: 1.1
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <quern/detail/config.hpp>
#include <quern/error.hpp>

/// @file
/// What a block format is: a fixed number of values packed into a fixed number of bytes, which
/// decode and encode without any other context.

namespace quern {

/// Why a block could not be encoded.
enum class EncodeFault : std::uint8_t {
  none,           ///< encoded
  not_a_number,   ///< a NaN among the values
  infinite,       ///< an infinity among the values
  scale_overflow, ///< a scale or minimum that its field can't hold
};

/// The result of encoding one block: its bytes, or the fault and the lane that caused it.
template <std::size_t BytesPerBlock>
class [[nodiscard]] Encoded {
public:
  /// A block that was encoded.
  constexpr Encoded(const std::array<std::byte, BytesPerBlock>& bytes) noexcept // NOLINT: implicit
      : bytes_(bytes) {}

  /// A failure caused by the value in `lane`, counted from the start of the block.
  [[nodiscard]] static constexpr Encoded failure(EncodeFault fault, std::size_t lane) noexcept {
    Encoded result{std::array<std::byte, BytesPerBlock>{}};
    result.fault_ = fault;
    result.lane_ = lane;
    return result;
  }

  /// True when there is a block, false after a failure.
  [[nodiscard]] constexpr bool ok() const noexcept { return fault_ == EncodeFault::none; }
  /// Why there is no block; EncodeFault::none when ok().
  [[nodiscard]] constexpr EncodeFault fault() const noexcept { return fault_; }
  /// The lane at fault; 0 when ok().
  [[nodiscard]] constexpr std::size_t lane() const noexcept { return lane_; }

  /// The encoded block. Throws Error with the lane when encoding failed.
  [[nodiscard]] constexpr const std::array<std::byte, BytesPerBlock>& bytes() const {
    if (!ok()) throw_fault();
    return bytes_;
  }

private:
  [[noreturn]] void throw_fault() const {
    const std::string where = " in lane " + std::to_string(lane_) + " of the block";
    if (fault_ == EncodeFault::not_a_number)
      throw Error(ErrorCode::not_a_number, "quern::encode: NaN" + where + "; remove it first");
    if (fault_ == EncodeFault::infinite)
      throw Error(ErrorCode::infinite, "quern::encode: infinity" + where + "; clamp it first");
    throw Error(ErrorCode::scale_overflow,
                "quern::encode: the value" + where +
                    " needs a scale that the format can't hold; rescale the weight");
  }

  std::array<std::byte, BytesPerBlock> bytes_;
  EncodeFault fault_ = EncodeFault::none;
  std::size_t lane_ = 0;
};

namespace detail {

// clang-format off
template <class F>
concept HasName = requires { { F::name } -> std::convertible_to<std::string_view>; };
template <class F>
concept HasBlockSize = requires {
  { F::block_size } -> std::convertible_to<std::size_t>;
  requires (F::block_size > 0);
};
template <class F>
concept HasBytesPerBlock = requires {
  { F::bytes_per_block } -> std::convertible_to<std::size_t>;
  requires (F::bytes_per_block > 0);
};
template <class F>
concept HasTypeId = requires { { F::gguf_type } -> std::convertible_to<std::uint32_t>; };
template <class F>
concept HasBitsPerWeight = HasBlockSize<F> && HasBytesPerBlock<F> && requires {
  { F::bits_per_weight } -> std::convertible_to<double>;
  requires (F::bits_per_weight * static_cast<double>(F::block_size) == 8.0 * static_cast<double>(F::bytes_per_block));
};
template <class F>
concept HasDecode = HasBlockSize<F> && HasBytesPerBlock<F> && requires(std::span<const std::byte, F::bytes_per_block> block) {
  { F::decode(block) } noexcept -> std::same_as<std::array<float, F::block_size>>;
};
template <class F>
concept HasEncode = HasBlockSize<F> && HasBytesPerBlock<F> && requires(std::span<const float, F::block_size> values) {
  { F::encode(values) } noexcept -> std::same_as<Encoded<F::bytes_per_block>>;
};
// clang-format on

} // namespace detail

/// A block format. `name` is the usual upper-case name, `gguf_type` the type id in GGUF files,
/// `bits_per_weight` counts scales too. `decode` never fails; bytes that no quantizer writes decode
/// to whatever the format's arithmetic gives. `decode` and `encode` are constexpr.
template <class F>
concept BlockFormat = detail::HasName<F> && detail::HasBlockSize<F> &&
    detail::HasBytesPerBlock<F> && detail::HasTypeId<F> && detail::HasBitsPerWeight<F> &&
    detail::HasDecode<F> && detail::HasEncode<F>;

namespace detail {

/// An encoding that is no BlockFormat, and says so: activations, or one scale for a whole tensor.
template <class F>
concept HasNoBlockGrid = requires {
  typename F::NoBlockGrid;
};

/// Says in words what a type lacks to be a BlockFormat.
template <class F>
struct ExplainedFormat {
  static_assert(!HasNoBlockGrid<F>,
                "quern::BlockFormat: this encoding holds activations, or has one scale for a whole "
                "tensor, so it has no grid of blocks and no packed view or weight; use its own "
                "functions");
  static_assert(HasName<F>, "quern::BlockFormat: the format has no name; add `static constexpr "
                            "std::string_view name`");
  static_assert(HasBlockSize<F>,
                "quern::BlockFormat: the format has no block_size or it is 0; add `static "
                "constexpr std::size_t block_size`, the values in one block");
  static_assert(HasBytesPerBlock<F>,
                "quern::BlockFormat: the format has no bytes_per_block or it is 0; add `static "
                "constexpr std::size_t bytes_per_block`");
  static_assert(HasTypeId<F>,
                "quern::BlockFormat: the format has no type id; add `static constexpr "
                "std::uint32_t gguf_type`");
  static_assert(HasBitsPerWeight<F>,
                "quern::BlockFormat: bits_per_weight is missing or is not 8 * bytes_per_block / "
                "block_size; compute it from the two");
  static_assert(HasDecode<F>,
                "quern::BlockFormat: the format has no decode of its own block; add `static "
                "constexpr std::array<float, block_size> decode(std::span<const std::byte, "
                "bytes_per_block>) noexcept`");
  static_assert(HasEncode<F>,
                "quern::BlockFormat: the format has no encode to its own block; add `static "
                "constexpr Encoded<bytes_per_block> encode(std::span<const float, block_size>) "
                "noexcept`");
  static constexpr bool good = BlockFormat<F>;
};

/// Bits per weight of a block, scales included.
[[nodiscard]] constexpr double bits_per_weight(std::size_t bytes_per_block,
                                               std::size_t block_size) noexcept {
  return 8.0 * static_cast<double>(bytes_per_block) / static_cast<double>(block_size);
}

} // namespace detail

} // namespace quern
