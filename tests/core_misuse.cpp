#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>
#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/kernels.hpp>
#include <quern/matmul.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/packed_weights.hpp>
#include <quern/prepack.hpp>
#include <quern/quantize.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/trace.hpp>

#include "support/errors.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

/// @file
/// What does not compile, as facts that code can ask for. The sentences that the compilers print
/// are in compile_fail/.

namespace {

using namespace quern;

template <class From, class To>
constexpr bool unrelated = !std::is_convertible_v<From, To> && !std::is_constructible_v<To, From> &&
                           !std::is_assignable_v<To&, From>;

// Order and format.

/// True when no view or weight of `Packed` converts to or from one of format F in either order,
/// itself excepted.
template <template <class, class> class Packed, class F, class O, class Other>
constexpr bool stands_alone_against =
    (std::is_same_v<F, Other> ||
     (unrelated<Packed<F, O>, Packed<Other, O>> && unrelated<Packed<Other, O>, Packed<F, O>>)) &&
    unrelated<Packed<F, O>, Packed<Other, OtherOrder<O>>>&& unrelated<Packed<Other, OtherOrder<O>>,
                                                                      Packed<F, O>>;

template <template <class, class> class Packed, class F, class O, class... Others>
consteval bool stands_alone(std::type_identity<boost::mp11::mp_list<Others...>>) {
  return (stands_alone_against<Packed, F, O, Others> && ...);
}

template <class P>
using StandsAlone =
    std::bool_constant<stands_alone<PackedView, typename P::Format, typename P::Order>(
                           std::type_identity<Formats>{}) &&
                       stands_alone<PackedWeight, typename P::Format, typename P::Order>(
                           std::type_identity<Formats>{})>;

template <class Kernel, class View>
concept RunsOn = requires(MatrixView<const float> x, View weight, MatrixView<float> y) {
  Kernel::run(x, weight, y);
};

template <class F, class O, class Kernel = kernels::Matmul<float, F, O, isa::Scalar>,
          class OtherFormat = std::conditional_t<std::is_same_v<F, Q4_0>, Q2_0, Q4_0>>
constexpr bool runs_on_its_own_pair_only =
    RunsOn<Kernel, PackedView<F, O>> && !RunsOn<Kernel, PackedView<F, OtherOrder<O>>> &&
    !RunsOn<Kernel, PackedView<OtherFormat, O>> &&
    !RunsOn<Kernel, PackedView<OtherFormat, OtherOrder<O>>> &&
    !RunsOn<Kernel, PackedWeight<F, O>&> && !RunsOn<Kernel, std::span<const std::byte>>;

template <class P>
using HasAChoosyKernel =
    std::bool_constant<runs_on_its_own_pair_only<typename P::Format, typename P::Order>>;

using All = boost::mp11::mp_product<support::Packed, Formats, Orders>;
static_assert(boost::mp11::mp_all_of<All, StandsAlone>::value);
static_assert(boost::mp11::mp_all_of<All, HasAChoosyKernel>::value);

using Stored = PackedView<Q4_0, RowMajor>;
using Prepacked = PackedView<Q4_0, InputBlockMajor>;
using Weight = PackedWeight<Q4_0, RowMajor>;
using Bytes = std::vector<std::byte>;

// A view is made from bytes and a shape that is known to be [out, in], nothing else. A stride can't
// be given, so it can't contradict the order.
static_assert(std::is_constructible_v<Stored, std::span<const std::byte>, OutIn>);
static_assert(std::is_constructible_v<Stored, std::span<std::byte>, OutIn>);
static_assert(std::is_constructible_v<Stored, Bytes&, OutIn>);
static_assert(std::is_constructible_v<Stored, const Bytes&, OutIn>);
static_assert(std::is_constructible_v<Stored, std::array<std::byte, 18>&, OutIn>);
static_assert(!std::is_constructible_v<Stored, std::span<const std::byte>>);
static_assert(!std::is_constructible_v<Stored, std::span<const std::byte>, OutIn, std::size_t>);
static_assert(
    !std::is_constructible_v<Stored, std::span<const std::byte>, std::size_t, std::size_t>);
static_assert(!std::is_constructible_v<Stored, std::span<const std::byte>, NeShape>);
static_assert(!std::is_constructible_v<Stored, Bytes&, NeShape>);
static_assert(!std::is_default_constructible_v<Stored>);
static_assert(!std::is_convertible_v<std::span<const std::byte>, Stored>);

// Not from memory that is about to go away.
static_assert(!std::is_constructible_v<Stored, Bytes, OutIn>);
static_assert(!std::is_constructible_v<Stored, const Bytes, OutIn>);
static_assert(!std::is_constructible_v<Stored, std::array<std::byte, 18>, OutIn>);
static_assert(!std::is_constructible_v<Stored, Bytes, NeShape>);
template <class W>
concept HasView = requires(W weight) {
  std::forward<W>(weight).view();
};
template <class W>
concept HasBytes = requires(W weight) {
  std::forward<W>(weight).bytes();
};
static_assert(HasView<Weight&> && HasView<const Weight&>);
static_assert(!HasView<Weight&&> && !HasView<const Weight&&>);
static_assert(HasBytes<Weight&> && HasBytes<const Weight&>);
static_assert(!HasBytes<Weight&&> && !HasBytes<const Weight&&>);

// Not from other kinds of bytes and numbers.
static_assert(!std::is_constructible_v<Stored, std::vector<float>&, OutIn>);
static_assert(!std::is_constructible_v<Stored, std::vector<std::uint8_t>&, OutIn>);
static_assert(!std::is_constructible_v<Stored, const std::byte*, OutIn>);

// A weight has one owner.
static_assert(!std::is_copy_constructible_v<Weight> && !std::is_copy_assignable_v<Weight>);
static_assert(std::is_nothrow_move_constructible_v<Weight>);
static_assert(std::is_nothrow_move_assignable_v<Weight>);
static_assert(!std::is_constructible_v<Weight, NeShape>);
static_assert(!std::is_constructible_v<Weight, std::span<const std::byte>, NeShape>);
static_assert(!std::is_convertible_v<OutIn, Weight>);

// A view can't be written through, and gives floats only when asked to.
static_assert(std::is_same_v<Stored::Block, std::span<const std::byte, 18>>);
static_assert(!std::is_convertible_v<Stored::Block, std::span<std::byte, 18>>);
static_assert(!std::is_convertible_v<Stored::Block, std::span<std::byte>>);
static_assert(std::is_same_v<decltype(std::declval<Stored>().data()), const std::byte*>);
static_assert(std::is_same_v<decltype(std::declval<Stored>().block_data(0, 0)), const std::byte*>);
static_assert(
    std::is_same_v<decltype(std::declval<const Weight&>().bytes()), std::span<const std::byte>>);
template <class V>
concept Settable = requires(V view) {
  view.set(std::size_t{}, std::size_t{}, 1.0f);
};
static_assert(!Settable<Stored>);
static_assert(unrelated<Stored, float*> && unrelated<Stored, const float*>);
static_assert(unrelated<Stored, const void*> && unrelated<Stored, const std::byte*>);
static_assert(unrelated<Stored, std::vector<float>> && unrelated<Stored, std::span<const float>>);
static_assert(unrelated<Stored, std::span<const std::byte>> && unrelated<Stored, bool>);
template <class From, class... Shape>
concept Quantizable = requires(From from, Shape... shape) {
  quantize<Q4_0>(from, shape...);
};
static_assert(Quantizable<std::span<const float>, OutIn>);
static_assert(Quantizable<MatrixView<const float>> && Quantizable<MatrixView<float>>);
static_assert(!Quantizable<std::span<const float>, NeShape> && !Quantizable<Stored>);

// No transpose.
template <class W>
concept Transposable = requires(W weight) {
  transpose(weight);
};
template <class W>
concept HasTranspose = requires(W weight) {
  weight.transpose();
};
template <class W>
concept HasT = requires(W weight) {
  weight.T();
};
static_assert(!Transposable<Stored> && !Transposable<Prepacked> && !Transposable<Weight&>);
static_assert(!HasTranspose<Stored> && !HasTranspose<Prepacked> && !HasTranspose<Weight&>);
static_assert(!HasT<Stored> && !HasT<Weight&>);

// Relayout.
template <class To, class... Arguments>
concept Prepackable = requires(Arguments&&... arguments) {
  prepack<To>(std::forward<Arguments>(arguments)...);
};
static_assert(Prepackable<InputBlockMajor, Stored, ModelScope&>);
static_assert(Prepackable<InputBlockMajor, Stored, Scope&, Trace&>); // asked at run time
static_assert(Prepackable<InputBlockMajor, Weight>);
static_assert(Prepackable<InputBlockMajor, Weight, Trace&>);
static_assert(Prepackable<RowMajor, Stored>); // nothing to do needs no memory
static_assert(Prepackable<RowMajor, Stored, ForwardScope&>);
static_assert(!Prepackable<InputBlockMajor, Stored>);
static_assert(!Prepackable<RowMajor, Prepacked>);
static_assert(!Prepackable<InputBlockMajor, Stored, ForwardScope&>);
static_assert(!Prepackable<InputBlockMajor, Stored, ForwardScope&, Trace&>);
static_assert(!Prepackable<InputBlockMajor, Weight&>);
static_assert(!Prepackable<InputBlockMajor, const Weight&>);
static_assert(!Prepackable<InputBlockMajor, Weight&, ModelScope&>);
static_assert(!Prepackable<InputBlockMajor, std::vector<float>&, ModelScope&>);
static_assert(!Prepackable<InputBlockMajor, MatrixView<const float>, ModelScope&>);
static_assert(!Prepackable<InputBlockMajor, std::span<const std::byte>, ModelScope&>);
static_assert(!Prepackable<int, Stored, ModelScope&>);

// Byte-level functions take the same shapes as the types.
template <class Shape>
concept Relayoutable = requires(Bytes bytes, Shape shape) {
  to_kernel_order<Q4_0>(bytes, shape);
};
static_assert(Relayoutable<OutIn> && !Relayoutable<NeShape>);
template <class Extent>
concept GivesBlocksPerRow = requires(Extent extent) {
  blocks_per_row<Q4_0>(extent);
};
static_assert(GivesBlocksPerRow<In> && GivesBlocksPerRow<int> && !GivesBlocksPerRow<Out>);

// Formats.
struct NoTypeId {
  static constexpr std::string_view name = "NO_TYPE_ID";
  static constexpr std::size_t block_size = 1;
  static constexpr std::size_t bytes_per_block = 1;
  static constexpr double bits_per_weight = 8.0;
  static std::array<float, 1> decode(std::span<const std::byte, 1>) noexcept { return {0.0f}; }
  static Encoded<1> encode(std::span<const float, 1>) noexcept {
    return std::array<std::byte, 1>{};
  }
};
struct WithTypeId : NoTypeId {
  static constexpr std::uint32_t gguf_type = 1000;
};
struct EmptyBlock : WithTypeId {
  static constexpr std::size_t block_size = 0;
};
struct OtherSize : WithTypeId {
  static constexpr std::size_t bytes_per_block = 2;
  static constexpr double bits_per_weight = 16.0;
};
struct OtherRate : WithTypeId {
  static constexpr double bits_per_weight = 8.5;
};
struct MayThrow : WithTypeId {
  static std::array<float, 1> decode(std::span<const std::byte, 1>) { return {0.0f}; }
};
static_assert(BlockFormat<WithTypeId> && BlockFormat<Q4_0>);
static_assert(!BlockFormat<NoTypeId> && !BlockFormat<EmptyBlock> && !BlockFormat<OtherSize>);
static_assert(!BlockFormat<OtherRate> && !BlockFormat<MayThrow> && !BlockFormat<int>);

TEST(PrepackAtRunTime, RefusesAScopeThatHoldsNoWeights) {
  // Behind a base class reference the compiler can't see the kind of scope.
  const auto bytes = support::counting_weight(4, 3);
  const Stored view{bytes, OutIn{4, 96}};
  ForwardScope forward{1024};
  Scope& scope = forward;
  const std::string text = support::error_of(ErrorCode::scope_kind,
                                             [&] { (void)prepack<InputBlockMajor>(view, scope); });
  EXPECT_TRUE(support::contains(text, "forward scope"));
  EXPECT_TRUE(support::contains(text, "ModelScope"));
  EXPECT_EQ(forward.live_bytes(), 0u);
  EXPECT_EQ(prepack<RowMajor>(view, scope).data(), view.data());
}

} // namespace
