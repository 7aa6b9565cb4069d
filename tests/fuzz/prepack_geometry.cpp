// A libFuzzer target: weights of any extents, narrowed in any way, are relaid, decoded and relaid
// back by every call that does so, and compared with the permutation spelled out.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <quern/formats.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/packed_weights.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>

#include "input.hpp"

namespace {

using fuzz::Input;
using fuzz::require;
using quern::InputBlockMajor;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;

/// A part of a grid of `out x blocks`.
struct Part {
  std::size_t out, blocks, from_out, from_block, part_out, part_blocks;

  static Part of(Input& input, std::size_t bytes_per_block) {
    Part part{};
    // Mostly small; now and then beyond the tiles of the relayout.
    const auto extent = [&] {
      const std::size_t small = input.below(41);
      return input.below(8) == 0 ? small * 17 : small;
    };
    part.out = extent();
    part.blocks = extent();
    constexpr std::size_t most = 200000;
    if (part.out * part.blocks * bytes_per_block > most) part.out %= 41;
    if (part.out * part.blocks * bytes_per_block > most) part.blocks %= 41;
    part.from_out = input.number<std::uint16_t>() % (part.out + 1);
    part.from_block = input.number<std::uint16_t>() % (part.blocks + 1);
    part.part_out = input.number<std::uint16_t>() % (part.out - part.from_out + 1);
    part.part_blocks = input.number<std::uint16_t>() % (part.blocks - part.from_block + 1);
    return part;
  }
};

template <class O>
std::size_t place(std::size_t o, std::size_t b, std::size_t out, std::size_t blocks) {
  return std::is_same_v<O, RowMajor> ? o * blocks + b : b * out + o;
}

/// The blocks of the part, in order To, copied one by one out of a whole weight in order From.
template <class F, class From, class To>
std::vector<std::byte> expected(std::span<const std::byte> whole, const Part& part) {
  constexpr std::size_t size = F::bytes_per_block;
  std::vector<std::byte> result(part.part_out * part.part_blocks * size);
  for (std::size_t o = 0; o < part.part_out; ++o)
    for (std::size_t b = 0; b < part.part_blocks; ++b) {
      const std::size_t from =
          place<From>(part.from_out + o, part.from_block + b, part.out, part.blocks);
      const std::size_t to = place<To>(o, b, part.part_out, part.part_blocks);
      std::memcpy(result.data() + to * size, whole.data() + from * size, size);
    }
  return result;
}

template <class F, class From>
void relay(const Part& part, std::span<const std::byte> whole) {
  using To = quern::OtherOrder<From>;
  const PackedView<F, From> view =
      PackedView<F, From>{whole,
                          OutIn{quern::Out{part.out}, quern::In{part.blocks * F::block_size}}}
          .narrow_out(part.from_out, part.part_out)
          .narrow_blocks(part.from_block, part.part_blocks);
  const auto same = expected<F, From, From>(whole, part);
  const auto other = expected<F, From, To>(whole, part);
  const auto equal = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::ranges::equal(a, b);
  };

  quern::ModelScope scope;
  const auto packed = quern::prepack<To>(view, scope);
  require(packed.contiguous() && packed.shape() == view.shape(), "the shape of a relaid view");
  require(equal({packed.data(), packed.bytes()}, other), "prepack of a view");
  const auto back = quern::prepack<From>(packed, scope);
  require(equal({back.data(), back.bytes()}, same), "prepack and back");

  quern::PackedWeight<F, From> owned{view.shape()};
  std::ranges::copy(same, owned.bytes().begin());
  const auto moved = quern::prepack<To>(std::move(owned));
  require(equal(moved.bytes(), other), "prepack of an owned weight");

  if constexpr (std::is_same_v<From, RowMajor>)
    require(equal(quern::to_kernel_order<F>(same, view.shape()), other), "to_kernel_order");
  else
    require(equal(quern::to_canonical_order<F>(same, view.shape()), other), "to_canonical_order");

  // The decoded matrix does not depend on the order.
  if (view.out() != 0 && view.in() != 0) {
    std::vector<float> a(view.in()), b(view.in());
    view.decode_row(view.out() - 1, a);
    packed.decode_row(view.out() - 1, b);
    require(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0, "decode_row");
  }
}

template <class F>
void run(Input& input) {
  const bool by_rows = input.below(2) == 0;
  const std::size_t shift = input.below(4); // any address
  const Part part = Part::of(input, F::bytes_per_block);
  const std::size_t count = part.out * part.blocks * F::bytes_per_block;
  const std::vector<std::byte> pattern = input.bytes(std::max<std::size_t>(input.size(), 1));
  std::vector<std::byte> memory(shift + count);
  for (std::size_t i = 0; i < count; ++i) // no two blocks alike
    memory[shift + i] =
        pattern[i % pattern.size()] ^ static_cast<std::byte>(i / F::bytes_per_block * 37 >> i % 5);
  const auto whole = std::span<const std::byte>(memory).subspan(shift);
  if (by_rows)
    relay<F, RowMajor>(part, whole);
  else
    relay<F, InputBlockMajor>(part, whole);
}

// One format for each kind of move: squares, less than a register, and registers that meet.
constexpr std::array formats{&run<quern::F32>,  &run<quern::F16>,  &run<quern::MXFP4>,
                             &run<quern::Q4_0>, &run<quern::Q4_K>, &run<quern::Q6_K>};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  formats[input.below(formats.size())](input);
  return 0;
}
