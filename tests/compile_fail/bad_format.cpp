// expect 1: quern::BlockFormat: the format has no block_size or it is 0; add `static constexpr
// std::size_t block_size`, the values in one block
// expect 2: quern::BlockFormat: the format has no bytes_per_block or it is 0; add `static constexpr
// std::size_t bytes_per_block`
// expect 3: quern::BlockFormat: the format has no name; add `static constexpr std::string_view
// name`
// expect 4: quern::BlockFormat: the format has no type id; add `static constexpr std::uint32_t
// gguf_type`
// expect 5: quern::BlockFormat: the format has no type id; add `static constexpr std::uint32_t
// gguf_type`
// expect 6: quern::BlockFormat: bits_per_weight is missing or is not 8 * bytes_per_block /
// block_size; compute it from the two
// expect 7: quern::BlockFormat: the format has no decode of its own block; add `static constexpr
// std::array<float, block_size> decode(std::span<const std::byte, bytes_per_block>) noexcept`
// expect 8: quern::BlockFormat: the format has no decode of its own block; add
// expect 9: quern::BlockFormat: the format has no encode to its own block; add
// expect 10: quern::BlockFormat: the format has no block_size or it is 0
// expect 11: quern: the block order of a view or a weight is RowMajor or InputBlockMajor; there is
// no third one
// expect 12: quern: the block order of a view or a weight is RowMajor or InputBlockMajor; there is
// no third one
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <quern/block_format.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>

#ifndef QUERN_MISUSE
#define QUERN_MISUSE 0
#endif

/// A byte for each of four values, less 128. Each misuse spoils one thing in it.
struct Bytes {
#if QUERN_MISUSE == 1
  static constexpr std::size_t block_size = 0;
#else
  static constexpr std::size_t block_size = 4;
#endif
#if QUERN_MISUSE == 2
  static constexpr std::size_t bytes_per_block = 0;
#else
  static constexpr std::size_t bytes_per_block = 4;
#endif
#if QUERN_MISUSE == 3
  static constexpr int name = 1000;
#else
  static constexpr std::string_view name = "BYTES";
#endif
#if QUERN_MISUSE == 4
  static constexpr std::string_view gguf_type = "BYTES";
#elif QUERN_MISUSE == 5
  // no type id at all
#else
  static constexpr std::uint32_t gguf_type = 1000;
#endif
#if QUERN_MISUSE == 6
  static constexpr double bits_per_weight = 8.5;
#else
  static constexpr double bits_per_weight = 8.0;
#endif

#if QUERN_MISUSE == 7
  using Block = std::span<const std::byte, 5>; // not the size that it declares
#else
  using Block = std::span<const std::byte, bytes_per_block>;
#endif
#if QUERN_MISUSE == 8
  static constexpr bool never_fails = false;
#else
  static constexpr bool never_fails = true;
#endif
  static constexpr std::array<float, block_size> decode(Block block) noexcept(never_fails) {
    std::array<float, block_size> values{};
    for (std::size_t i = 0; i < block_size; ++i)
      values[i] = static_cast<float>(std::to_integer<int>(block[i])) - 128.0f;
    return values;
  }

#if QUERN_MISUSE == 9
  // no encode
#else
  static constexpr quern::Encoded<bytes_per_block>
  encode(std::span<const float, block_size> values) noexcept {
    std::array<std::byte, bytes_per_block> block{};
    for (std::size_t i = 0; i < block_size; ++i)
      block[i] = static_cast<std::byte>(static_cast<int>(values[i]) + 128);
    return block;
  }
#endif
};

struct ColumnMajor {
  static constexpr std::string_view name = "ColumnMajor";
};

void control(std::span<const std::byte> bytes) {
#if QUERN_MISUSE != 10
  quern::PackedView<Bytes, quern::RowMajor> view{bytes, quern::OutIn{2, 8}};
  (void)view;
#endif
#if QUERN_MISUSE == 10
  // The owner says the same as the view.
  quern::PackedWeight<ColumnMajor, quern::RowMajor> no_format{quern::OutIn{2, 8}};
#elif QUERN_MISUSE == 11
  quern::PackedView<Bytes, ColumnMajor> third_order{bytes, quern::OutIn{2, 8}};
#elif QUERN_MISUSE == 12
  quern::PackedWeight<Bytes, int> no_order{quern::OutIn{2, 8}};
#else
  quern::PackedWeight<Bytes, quern::InputBlockMajor> weight{quern::OutIn{2, 8}};
#endif
}
