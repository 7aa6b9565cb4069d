// floor: 3
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <quern/block_format.hpp>
#include <quern/detail/memory.hpp>
#include <quern/error.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>

namespace quern {

/// Owns the bytes of one packed weight in format `F` and block order `O`. Move-only. Built by
/// quantize(), by reading, or by prepack() from the other order.
template <class F, class O>
class PackedWeight {
  static_assert(detail::ExplainedPacking<F, O>::good);

public:
  using Format = F; ///< of the blocks
  using Order = O;  ///< in which the blocks lie

  /// A weight of `shape` whose bytes are not yet set; fill bytes(). Throws as PackedView does, and
  /// std::bad_alloc.
  explicit PackedWeight(OutIn shape)
      : PackedWeight(shape, detail::grid_of<F>(shape, "quern::PackedWeight").bytes) {}

  /// A weight that copies `bytes`, which must be exactly the size of `shape` and in order `O`.
  PackedWeight(std::span<const std::byte> bytes, OutIn shape)
      : PackedWeight(shape, checked_size(bytes.size(), shape)) {
    if (size_ != 0) std::memcpy(bytes_.get(), bytes.data(), size_);
  }

  /// Takes the bytes over; views of `other` stay valid and `other` is left with the shape [0, 0].
  PackedWeight(PackedWeight&& other) noexcept
      : shape_(std::exchange(other.shape_, OutIn{})), size_(std::exchange(other.size_, 0)),
        bytes_(std::move(other.bytes_)) {}
  /// The same; the bytes that this weight had are freed.
  PackedWeight& operator=(PackedWeight&& other) noexcept {
    shape_ = std::exchange(other.shape_, OutIn{});
    size_ = std::exchange(other.size_, 0);
    bytes_ = std::move(other.bytes_);
    return *this;
  }

  // clang-format off
  template <BlockOrder Other>
    requires(!std::same_as<Other, O>)
  PackedWeight(const PackedWeight<F, Other>&) QUERN_DELETED("quern::PackedWeight: the block order does not convert; call quern::prepack<To>(std::move(weight))");
  template <BlockFormat OtherFormat, BlockOrder Other>
    requires(!std::same_as<OtherFormat, F>)
  PackedWeight(const PackedWeight<OtherFormat, Other>&) QUERN_DELETED("quern::PackedWeight: the format does not convert; a weight is read in the format it was written in");
  [[nodiscard]] PackedView<F, O> view() const&& QUERN_DELETED("quern::PackedWeight::view: a view of a temporary would dangle; keep the weight in a variable that outlives the view");
  // clang-format on

  /// The weight as a view, valid as long as this object.
  [[nodiscard]] PackedView<F, O> view() const& {
    return PackedView<F, O>{std::span<const std::byte>{bytes_.get(), size_}, shape_};
  }

  /// `[out, in]`.
  [[nodiscard]] OutIn shape() const noexcept { return shape_; }
  /// All blocks, in order `O`, without gaps; valid as long as this object.
  [[nodiscard]] std::span<const std::byte> bytes() const& noexcept { return {bytes_.get(), size_}; }
  /// The same, to fill a weight that was made from its shape alone.
  [[nodiscard]] std::span<std::byte> bytes() & noexcept { return {bytes_.get(), size_}; }
  // clang-format off
  std::span<const std::byte> bytes() const&& QUERN_DELETED("quern::PackedWeight::bytes: bytes of a temporary would dangle; keep the weight in a variable that outlives the span");
  // clang-format on

private:
  template <class, class>
  friend class PackedWeight;

  PackedWeight(OutIn shape, std::size_t size)
      : shape_(shape), size_(size), bytes_(detail::allocate_bytes(size)) {}

  /// The size of `shape`, when `got` is that. Asked before memory is.
  static std::size_t checked_size(std::size_t got, OutIn shape) {
    const std::size_t size = detail::grid_of<F>(shape, "quern::PackedWeight").bytes;
    if (got != size)
      throw Error(ErrorCode::size_mismatch,
                  "quern::PackedWeight: " + to_string(shape) + " in " + std::string(F::name) +
                      " needs exactly " + std::to_string(size) + " bytes, got " +
                      std::to_string(got) + "; pass the bytes of this weight alone");
    return size;
  }

  struct Relabel {};
  PackedWeight(Relabel, PackedWeight<F, OtherOrder<O>>&& other) noexcept
      : shape_(std::exchange(other.shape_, OutIn{})), size_(std::exchange(other.size_, 0)),
        bytes_(std::move(other.bytes_)) {}

  OutIn shape_;
  std::size_t size_;
  detail::Bytes bytes_;

public:
  /// Moves the blocks with `permute(bytes)` and hands the same memory on under the other order.
  /// For prepack(), which knows the permutation; anything else would break the order.
  template <class Permute>
  [[nodiscard]] PackedWeight<F, OtherOrder<O>> reordered(Permute&& permute) && {
    std::forward<Permute>(permute)(std::span<std::byte>{bytes_.get(), size_});
    return PackedWeight<F, OtherOrder<O>>{typename PackedWeight<F, OtherOrder<O>>::Relabel{},
                                          std::move(*this)};
  }
};

namespace detail {
template <class T>
inline constexpr bool is_packed_weight = false;
template <BlockFormat F, BlockOrder O>
inline constexpr bool is_packed_weight<PackedWeight<F, O>> = true;
} // namespace detail

/// A PackedWeight of any format and order.
template <class T>
concept AnyPackedWeight = detail::is_packed_weight<std::remove_cvref_t<T>>;

// clang-format off
/// As for views.
template <BlockFormat F, BlockOrder O>
void transpose(const PackedWeight<F, O>&) QUERN_DELETED("quern::transpose: a packed weight has no transpose; y = x * W^T is matmul_weight_transposed(x, weight.view()), and a dense transpose starts with to_floats()");
// clang-format on

} // namespace quern
