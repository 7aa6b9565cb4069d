// floor: 6.8
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/block_format.hpp>
#include <quern/detail/checked.hpp>
#include <quern/detail/config.hpp>
#include <quern/error.hpp>
#include <quern/formats.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/mapped_reader.hpp>
#include <quern/gguf/metadata.hpp>
#include <quern/gguf/options.hpp>
#include <quern/gguf/parse.hpp>
#include <quern/gguf/source.hpp>
#include <quern/gguf/tensor.hpp>
#include <quern/gguf/tensor_table.hpp>
#include <quern/gguf/type.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>
#include <quern/weight_stack.hpp>

namespace quern::gguf {

/// An open GGUF file, versions 1 to 3. Opening checks the whole index, so a File either is complete
/// or does not exist; it reads no tensor data from a mapped file. Everything that a File returns
/// borrows from it: it stays valid while the File lives, also when the File is moved, and can't be
/// taken from a temporary File. Const calls are safe from several threads at once.
///
/// Opening throws gguf::Error for what is wrong in the bytes and quern::Error when the file can't
/// be opened.
class File {
public:
  /// Maps the file: tensor data is read from disk when it is first touched. Where the platform has
  /// no mapping the file is read; residency() tells. If another process truncates the file while it
  /// is mapped, touching what is gone stops the program (SIGBUS); read() is immune to that.
  [[nodiscard]] static File map(const std::filesystem::path& path, const Options& options = {}) {
    return File(Source::map(path, options.offset), options);
  }

  /// Copies the file into memory, and lets go of it.
  [[nodiscard]] static File read(const std::filesystem::path& path, const Options& options = {}) {
    return File(Source::read(path, options.offset), options);
  }

  /// Borrows the caller's bytes, which must outlive the File and everything taken from it.
  [[nodiscard]] static File from_bytes(std::span<const std::byte> bytes,
                                       const Options& options = {}) {
    return File(Source::borrow(bytes, options.offset), options);
  }

  /// Copies the bytes that `read` delivers, from a source of `size` bytes, into memory: the index
  /// first, the rest once the index has been found good.
  [[nodiscard]] static File from_callback(std::uint64_t size, ReadAt read,
                                          const Options& options = {}) {
    return File(Source::from_callback(size, std::move(read), options.offset), options);
  }

  /// Takes the bytes and the index over; what was taken from `other` stays valid. `other` is left a
  /// file without metadata and tensors.
  File(File&& other) noexcept
      : source_(std::exchange(other.source_, Source())), index_(std::move(other.index_)) {}
  /// The same; what was taken from this File before is invalid.
  File& operator=(File&& other) noexcept {
    source_ = std::exchange(other.source_, Source());
    index_ = std::move(other.index_);
    return *this;
  }
  /// Gives up the mapping or the copy, and all that was taken from it.
  ~File() = default;

  /// Metadata by key, in file order.
  [[nodiscard]] const Metadata& metadata() const& noexcept { return index().metadata; }
  /// The tensor table, in file order.
  [[nodiscard]] const TensorTable& tensors() const& noexcept { return index().tensors; }

  /// The tensor's data as it is in the file. Throws Error(no_such_tensor), and Error(unknown_type)
  /// when only lenient mode let the tensor pass.
  [[nodiscard]] std::span<const std::byte> bytes(std::string_view name) const& {
    return bytes(tensors().at(name));
  }
  /// The data of a tensor of this file.
  [[nodiscard]] std::span<const std::byte> bytes(const Tensor& tensor) const&;

  /// The matrix `name` as a weight in format F: `out` is the file's second extent, `in` its first.
  /// Throws Error(no_such_tensor), Error(wrong_format) when the tensor is stored in another format,
  /// and Error(not_a_matrix) when it has more than two extents.
  template <BlockFormat F>
  [[nodiscard]] PackedView<F, RowMajor> weight(std::string_view name) const& {
    return view<F>("quern::gguf::File::weight", tensors().at(name), std::nullopt);
  }
  /// Matrix `slice` of a tensor with more than two extents, as of a stack of experts; slices count
  /// along the third extent, then the fourth. Throws Error(out_of_range) too.
  template <BlockFormat F>
  [[nodiscard]] PackedView<F, RowMajor> weight(std::string_view name, std::size_t slice) const& {
    return view<F>("quern::gguf::File::weight", tensors().at(name), slice);
  }

  /// All matrices of a tensor as a range of views: those of a stack of experts, in the order in
  /// which weight(name, slice) counts them, or a single one. Throws as weight() does.
  template <BlockFormat F>
  [[nodiscard]] WeightStack<F> weights(std::string_view name) const& {
    const Tensor tensor = tensors().at(name);
    require_format<F>("quern::gguf::File::weights", tensor);
    return {bytes(tensor), out_in(NeShape{tensor.extents[0], tensor.extents[1]}),
            static_cast<std::size_t>(slices_of(tensor))};
  }

  /// Calls `f` with the PackedView of the format in which the matrix `name` is stored, and returns
  /// what it returns, which must be of one type for all formats. Throws as weight() does;
  /// Error(wrong_format) for types that are no weight formats: integers, F64, Q8_1, Q8_K.
  template <class Visitor>
  decltype(auto) visit_weight(std::string_view name, Visitor&& f) const& {
    return visit(tensors().at(name), std::nullopt, std::forward<Visitor>(f));
  }
  /// The same with one matrix of a tensor with more than two extents.
  template <class Visitor>
  decltype(auto) visit_weight(std::string_view name, std::size_t slice, Visitor&& f) const& {
    return visit(tensors().at(name), slice, std::forward<Visitor>(f));
  }

  // clang-format off
  template <std::ranges::range Owner>
    requires(!std::is_lvalue_reference_v<Owner> && !std::ranges::borrowed_range<Owner>)
  static File from_bytes(Owner&&, const Options& = {}) QUERN_DELETED("quern::gguf::File: from_bytes borrows; keep the bytes in a variable that outlives the File");
  const Metadata& metadata() const&& QUERN_DELETED("quern::gguf::File: metadata of a temporary File would dangle; keep the File in a variable");
  const TensorTable& tensors() const&& QUERN_DELETED("quern::gguf::File: the tensor table of a temporary File would dangle; keep the File in a variable");
  std::span<const std::byte> bytes(std::string_view) const&& QUERN_DELETED("quern::gguf::File: bytes of a temporary File would dangle; keep the File in a variable");
  std::span<const std::byte> bytes(const Tensor&) const&& QUERN_DELETED("quern::gguf::File: bytes of a temporary File would dangle; keep the File in a variable");
  template <BlockFormat F>
  PackedView<F, RowMajor> weight(std::string_view) const&& QUERN_DELETED("quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable");
  template <BlockFormat F>
  PackedView<F, RowMajor> weight(std::string_view, std::size_t) const&& QUERN_DELETED("quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable");
  template <BlockFormat F>
  WeightStack<F> weights(std::string_view) const&& QUERN_DELETED("quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable");
  template <class Visitor>
  void visit_weight(std::string_view, Visitor&&) const&& QUERN_DELETED("quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable");
  template <class Visitor>
  void visit_weight(std::string_view, std::size_t, Visitor&&) const&& QUERN_DELETED("quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable");
  // clang-format on

  /// The version of the format that the file is written in: 1, 2 or 3.
  [[nodiscard]] std::uint32_t version() const noexcept { return index().rules.version; }
  /// Each tensor starts at a multiple of this many bytes from data_position().
  [[nodiscard]] std::uint32_t alignment() const noexcept { return index().alignment; }
  /// Start of the data section, in bytes from the start of the GGUF.
  [[nodiscard]] std::uint64_t data_position() const noexcept { return index().data_position; }
  /// Bytes from the start of the GGUF to the end of its source.
  [[nodiscard]] std::uint64_t size() const noexcept { return source_.size(); }
  /// Where the bytes of the file live.
  [[nodiscard]] Residency residency() const noexcept { return source_.residency(); }
  /// Reads parts of a mapped file through the file; for other sources it reads nothing.
  [[nodiscard]] const MappedReader& reader() const noexcept { return source_.reader(); }

private:
  File(Source source, const Options& options)
      : source_(std::move(source)),
        index_(std::make_unique<const detail::Index>(source_, options)) {
    source_.load(std::min(source_.size(), index_->data_position + index_->data_bytes));
    source_.finish();
  }

  // A moved-from File is one without keys and tensors.
  [[nodiscard]] const detail::Index& index() const noexcept {
    static const detail::Index none;
    return index_ ? *index_ : none;
  }

  template <BlockFormat F>
  static void require_format(const char* call, const Tensor& tensor) {
    if (tensor.type_id != F::gguf_type)
      throw quern::Error(ErrorCode::wrong_format,
                         std::string(call) + ": tensor " + detail::in_quotes(tensor.name) + " is " +
                             type_name(tensor.type_id) + ", not " + std::string(F::name) +
                             "; ask for the stored format, or use visit_weight");
  }

  /// Matrices of a tensor.
  [[nodiscard]] static std::uint64_t slices_of(const Tensor& tensor) noexcept {
    return quern::detail::checked_mul(tensor.extents[2], tensor.extents[3])
        .value_or(std::numeric_limits<std::uint64_t>::max()); // possible beside a zero extent
  }

  template <BlockFormat F>
  [[nodiscard]] PackedView<F, RowMajor> view(const char* call, const Tensor& tensor,
                                             std::optional<std::size_t> slice) const {
    require_format<F>(call, tensor);
    return {matrix(call, tensor, slice), out_in(NeShape{tensor.extents[0], tensor.extents[1]})};
  }

  /// The bytes of the matrix, or of one matrix out of a stack.
  [[nodiscard]] std::span<const std::byte> matrix(const char* call, const Tensor& tensor,
                                                  std::optional<std::size_t> slice) const;

  template <class Visitor>
  decltype(auto) visit(const Tensor& tensor, std::optional<std::size_t> slice, Visitor&& f) const {
    const char* const call = "quern::gguf::File::visit_weight";
    const auto index = find_format(tensor.type_id);
    if (!index)
      throw quern::Error(ErrorCode::wrong_format,
                         std::string(call) + ": tensor " + detail::in_quotes(tensor.name) + " is " +
                             type_name(tensor.type_id) +
                             ", which is no weight format; bytes() gives its data");
    return boost::mp11::mp_with_index<format_count>(*index, [&](auto i) -> decltype(auto) {
      using F = boost::mp11::mp_at_c<Formats, i>;
      return std::forward<Visitor>(f)(view<F>(call, tensor, slice));
    });
  }

  Source source_;
  std::unique_ptr<const detail::Index> index_;
};

inline std::span<const std::byte> File::bytes(const Tensor& tensor) const& {
  if (tensor.type == nullptr)
    throw quern::Error(ErrorCode::unknown_type,
                       "quern::gguf::File::bytes: tensor " + detail::in_quotes(tensor.name) +
                           " is of " + type_name(tensor.type_id) + ", so its size is not known");
  if (tensor.bytes == 0) return {};
  // Checked when the file was opened; a mapped file may have changed since then.
  const std::span<const std::byte> all = source_.bytes();
  const std::uint64_t start = std::min<std::uint64_t>(data_position(), all.size());
  const std::uint64_t available = all.size() - start;
  if (tensor.offset > available || tensor.bytes > available - tensor.offset)
    throw quern::Error(ErrorCode::data_past_end,
                       "quern::gguf::File::bytes: tensor " + detail::in_quotes(tensor.name) +
                           " does not lie in this file; it is of another file, or this one was "
                           "changed while it was open");
  return all.subspan(static_cast<std::size_t>(start + tensor.offset),
                     static_cast<std::size_t>(tensor.bytes));
}

inline std::span<const std::byte> File::matrix(const char* call, const Tensor& tensor,
                                               std::optional<std::size_t> slice) const {
  const std::span<const std::byte> all = bytes(tensor);
  if (!slice) {
    if (tensor.is_matrix()) return all;
    throw quern::Error(ErrorCode::not_a_matrix,
                       std::string(call) + ": tensor " + detail::in_quotes(tensor.name) +
                           " has the extents " + to_string(tensor.extents) +
                           "; name the slice that you want");
  }
  const std::uint64_t slices = slices_of(tensor);
  if (*slice >= slices)
    throw quern::Error(ErrorCode::out_of_range,
                       std::string(call) + ": slice " + std::to_string(*slice) + " of tensor " +
                           detail::in_quotes(tensor.name) + ", which has " +
                           std::to_string(slices) + " slices by its extents " +
                           to_string(tensor.extents));
  const std::size_t slice_bytes = all.size() / static_cast<std::size_t>(slices);
  return all.subspan(*slice * slice_bytes, slice_bytes);
}

} // namespace quern::gguf
