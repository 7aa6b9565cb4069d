#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/validate.hpp>

#include "gguf_bytes.hpp"
#include "support/errors.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

// From an entry of the tensor table to a typed view. Names carry the numbers of the table in
// docs/gguf.md.

namespace {

using namespace gguf_test;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;
using support::contains;

template <class F>
class GgufWeights : public testing::Test {};
TYPED_TEST_SUITE(GgufWeights, support::EachFormat, support::Names);

/// A file with the tensor "w" of 4 rows of 3 blocks in format F.
template <class F>
Bytes matrix_file(std::span<const std::byte> blocks, const std::vector<std::uint64_t>& extents) {
  return Bytes::header(1, 0).tensor("w", extents, F::gguf_type, 0).pad().raw(blocks);
}

TYPED_TEST(GgufWeights, H70_H72_TheStoredFormatIsViewedRowMajor) {
  using F = TypeParam;
  const auto blocks = support::finite_blocks<F>(4 * 3);
  expect_opened(matrix_file<F>(blocks, {3 * F::block_size, 4}), {}, [&](const File& open) {
    const PackedView<F, RowMajor> view = open.weight<F>("w");
    EXPECT_EQ(view.shape(), (OutIn{4, 3 * F::block_size}));
    EXPECT_EQ(support::bits_of(view.to_floats()), support::bits_of(support::decoded<F>(blocks)));
  });
}

TYPED_TEST(GgufWeights, VisitFindsTheStoredFormat) {
  using F = TypeParam;
  const auto blocks = support::finite_blocks<F>(4 * 3);
  const Bytes bytes = matrix_file<F>(blocks, {3 * F::block_size, 4});
  const File open = File::from_bytes(bytes.data());
  const std::string name = open.visit_weight("w", [](const auto& view) {
    using View = std::remove_cvref_t<decltype(view)>;
    EXPECT_TRUE((std::is_same_v<View, PackedView<F, RowMajor>>));
    return std::string(View::Format::name);
  });
  EXPECT_EQ(name, F::name);
}

TYPED_TEST(GgufWeights, H70_AnotherFormatIsRefusedWithBothNames) {
  using F = TypeParam;
  using Other = std::conditional_t<std::is_same_v<F, quern::Q4_0>, quern::Q8_0, quern::Q4_0>;
  const auto blocks = support::finite_blocks<F>(4 * 3);
  const Bytes bytes = matrix_file<F>(blocks, {3 * F::block_size, 4});
  const File open = File::from_bytes(bytes.data());
  const std::string message = support::error_of(
      ErrorCode::wrong_format, [&] { static_cast<void>(open.weight<Other>("w")); });
  EXPECT_TRUE(
      contains(message, "\"w\" is " + std::string(F::name) + ", not " + std::string(Other::name)));
}

TYPED_TEST(GgufWeights, H71_OneMatrixOutOfAStack) {
  using F = TypeParam;
  const auto blocks = support::finite_blocks<F>(4 * 3 * 6);
  const std::size_t slice_bytes = 4 * 3 * F::bytes_per_block;
  expect_opened(matrix_file<F>(blocks, {3 * F::block_size, 4, 2, 3}), {}, [&](const File& open) {
    const auto stack = open.weights<F>("w");
    static_assert(std::ranges::random_access_range<decltype(stack)>);
    ASSERT_EQ(stack.size(), 6u);
    std::size_t at = 0;
    for (const auto view : stack) {
      EXPECT_EQ(view.data(), open.bytes("w").data() + at++ * slice_bytes);
      EXPECT_EQ(view.shape(), stack.shape());
    }
    EXPECT_EQ(at, 6u);
    EXPECT_EQ((stack.end() - 2)[1].data(), stack[5].data());
    EXPECT_TRUE(
        contains(support::error_of(ErrorCode::out_of_range, [&] { static_cast<void>(stack[6]); }),
                 "matrix 6 of 6"));
    using Other = std::conditional_t<std::is_same_v<F, quern::Q4_0>, quern::Q8_0, quern::Q4_0>;
    EXPECT_TRUE(contains(support::error_of(ErrorCode::wrong_format,
                                           [&] { static_cast<void>(open.weights<Other>("w")); }),
                         "not " + std::string(Other::name)));
    for (std::size_t slice = 0; slice < 6; ++slice) {
      const auto view = open.weight<F>("w", slice);
      EXPECT_EQ(view.shape(), (OutIn{4, 3 * F::block_size}));
      EXPECT_EQ(view.data(), open.bytes("w").data() + slice * slice_bytes);
      open.visit_weight("w", slice, [&](const auto& same) { EXPECT_EQ(same.data(), view.data()); });
    }
    EXPECT_TRUE(contains(support::error_of(ErrorCode::out_of_range,
                                           [&] { static_cast<void>(open.weight<F>("w", 6)); }),
                         "has 6 slices"));
    const std::string message =
        support::error_of(ErrorCode::not_a_matrix, [&] { static_cast<void>(open.weight<F>("w")); });
    EXPECT_TRUE(contains(message, "{" + std::to_string(3 * F::block_size) + ", 4, 2, 3}"));
  });
}

TYPED_TEST(GgufWeights, AStackOfOneMatrixAndOfNone) {
  using F = TypeParam;
  const auto blocks = support::finite_blocks<F>(4 * 3);
  expect_opened(matrix_file<F>(blocks, {3 * F::block_size, 4}), {}, [&](const File& open) {
    const auto stack = open.weights<F>("w");
    ASSERT_EQ(stack.size(), 1u);
    EXPECT_EQ((*stack.begin()).data(), open.weight<F>("w").data());
  });
  expect_opened(matrix_file<F>({}, {F::block_size, 4, 0}), {}, [&](const File& open) {
    const auto stack = open.weights<F>("w");
    EXPECT_TRUE(stack.empty());
    EXPECT_TRUE(stack.begin() == stack.end());
  });
  EXPECT_TRUE(contains(support::error_of(ErrorCode::size_mismatch,
                                         [&] {
                                           static_cast<void>(quern::WeightStack<F>(
                                               std::span<const std::byte>(blocks).subspan(1),
                                               OutIn{4, 3 * F::block_size}, 2));
                                         }),
                       "no 2 matrices"));
}

TYPED_TEST(GgufWeights, AWriterAndAReaderAgree) {
  using F = TypeParam;
  const auto blocks = support::finite_blocks<F>(5 * 3);
  const PackedView<F, RowMajor> weight(blocks, OutIn{5, 3 * F::block_size});
  quern::gguf::Writer writer;
  writer.add_weight("w", weight);
  writer.add_weight("rows", weight.narrow_out(1, 3));
  writer.add_weight("columns", weight.narrow_blocks(1, 2));
  const auto bytes = writer.to_bytes();
  expect_opened(bytes, strict, [&](const File& open) {
    EXPECT_EQ(support::bits_of(open.weight<F>("w").to_floats()),
              support::bits_of(weight.to_floats()));
    EXPECT_EQ(support::bits_of(open.weight<F>("rows").to_floats()),
              support::bits_of(weight.narrow_out(1, 3).to_floats()));
    EXPECT_EQ(support::bits_of(open.weight<F>("columns").to_floats()),
              support::bits_of(weight.narrow_blocks(1, 2).to_floats()));
  });
}

TEST(GgufWeight, H71_AMatrixHasTheSliceZeroAndAVectorIsOneRow) {
  const Bytes bytes =
      Bytes::header(2, 0).tensor("m", {32, 2}, 2, 0).tensor("v", {64}, 8, 64).pad().repeat(64 + 68);
  const File open = File::from_bytes(bytes.data());
  EXPECT_EQ(open.weight<quern::Q4_0>("m", 0).data(), open.weight<quern::Q4_0>("m").data());
  static_cast<void>(support::error_of(
      ErrorCode::out_of_range, [&] { static_cast<void>(open.weight<quern::Q4_0>("m", 1)); }));
  EXPECT_EQ(open.weight<quern::Q8_0>("v").shape(), (OutIn{1, 64}));
}

TEST(GgufWeight, H71_SlicesOfEmptyStacks) {
  const Bytes bytes =
      Bytes::header(3, 0)
          .tensor("none", {32, 2, 0}, 2, 0)
          .tensor("rows", {32, 0, 3}, 2, 0)
          .tensor("huge", {0, 1, std::uint64_t{1} << 62, std::uint64_t{1} << 62}, 2, 0)
          .pad();
  const File open = File::from_bytes(bytes.data());
  static_cast<void>(support::error_of(
      ErrorCode::out_of_range, [&] { static_cast<void>(open.weight<quern::Q4_0>("none", 0)); }));
  EXPECT_EQ(open.weight<quern::Q4_0>("rows", 2).shape(), (OutIn{0, 32}));
  EXPECT_EQ(open.weight<quern::Q4_0>("huge", std::size_t{1} << 40).shape(), (OutIn{1, 0}));
}

TEST(GgufWeight, H72_ExtentsAreNeverGuessed) {
  // Both extents are multiples of 32: in is the first, out the second, whatever looks likely.
  const Bytes bytes = Bytes::header(2, 0)
                          .tensor("a", {64, 32}, 2, 0)
                          .tensor("blk.0.attn_q.weight", {32, 64}, 2, 1152)
                          .pad()
                          .repeat(2304);
  const File open = File::from_bytes(bytes.data());
  EXPECT_EQ(open.weight<quern::Q4_0>("a").shape(), (OutIn{32, 64}));
  EXPECT_EQ(open.weight<quern::Q4_0>("blk.0.attn_q.weight").shape(), (OutIn{64, 32}));
}

TEST(GgufWeight, H72_RowsComeInFileOrderForEveryName) {
  const auto blocks = support::counting_weight(4, 3);
  for (const char* const name : {"w", "blk.0.attn_q.weight", "blk.0.attn_k.weight"}) {
    const Bytes bytes = Bytes::header(1, 0).tensor(name, {96, 4}, 2, 0).pad().raw(blocks);
    const File open = File::from_bytes(bytes.data());
    const auto view = open.weight<quern::Q4_0>(name);
    for (std::size_t o = 0; o < 4; ++o)
      for (std::size_t b = 0; b < 3; ++b)
        EXPECT_EQ(view.get(o, 32 * b), static_cast<float>(1 + 3 * o + b));
  }
}

TEST(GgufWeight, H73_AViewHoldsExactlyTheBytesOfItsTensor) {
  const Bytes bytes = reference_file().pad();
  const File open = File::from_bytes(bytes.data());
  EXPECT_EQ(open.bytes("w").size(), 36u);
  EXPECT_EQ(open.weight<quern::Q4_0>("w").bytes(), 36u);
  const auto data = open.bytes("w");
  static_cast<void>(support::error_of(ErrorCode::size_mismatch, [&] {
    static_cast<void>(PackedView<quern::Q4_0, RowMajor>(data.first(35), OutIn{2, 32}));
  }));
}

TEST(GgufWeight, H74_BadContentOpensAndIsFoundWhenAskedFor) {
  // Two slices of 3 rows of 2 blocks; block (1, 1) of the second has a NaN as its scale.
  std::vector<std::byte> blocks = support::encoded_blocks<quern::Q8_0>(12);
  constexpr std::size_t bad = (6 + 3) * 34;
  blocks[bad] = std::byte{0x01};
  blocks[bad + 1] = std::byte{0x7C};
  const Bytes file = matrix_file<quern::Q8_0>(blocks, {64, 3, 2});
  expect_opened(file, {}, [](const File& open) {
    open.visit_weight("w", 0, [](const auto& view) { EXPECT_TRUE(quern::validate(view).ok()); });
    open.visit_weight("w", 1, [](const auto& view) {
      const auto found = quern::validate(view);
      EXPECT_EQ(found.fault, quern::BlockFault::not_a_number);
      EXPECT_EQ(found.out, 1u);
      EXPECT_EQ(found.block, 1u);
      EXPECT_TRUE(contains(support::error_of(ErrorCode::bad_block, [&] { found.require(); }),
                           "block (1, 1)"));
    });
  });
}

TEST(GgufWeight, H75_PartsStartAtRowsAndBlocks) {
  const auto blocks = support::counting_weight(4, 3);
  const Bytes bytes = Bytes::header(1, 0).tensor("w", {96, 4}, 2, 0).pad().raw(blocks);
  const File open = File::from_bytes(bytes.data());
  const auto view = open.weight<quern::Q4_0>("w");
  EXPECT_EQ(view.narrow_out(2, 1).narrow_blocks(1, 1).get(0, 0), 8.0f);
  static_cast<void>(support::error_of(ErrorCode::out_of_range,
                                      [&] { static_cast<void>(view.narrow_blocks(1, 3)); }));
}

TEST(GgufWeight, AMissingTensorIsNamed) {
  const Bytes bytes = reference_file();
  const File open = File::from_bytes(bytes.data());
  for (const auto& call :
       {std::function<void()>([&] { static_cast<void>(open.weight<quern::Q4_0>("v")); }),
        std::function<void()>([&] { open.visit_weight("v", [](const auto&) {}); }),
        std::function<void()>([&] { static_cast<void>(open.bytes("v")); })})
    EXPECT_TRUE(contains(support::error_of(ErrorCode::no_such_tensor, call), "no tensor \"v\""));
  static_cast<void>(
      support::error_of(ErrorCode::out_of_range, [&] { static_cast<void>(open.tensors()[1]); }));
}

TEST(GgufWeight, RealWeightsOpenAndDecode) {
  const std::filesystem::path path =
      std::filesystem::path(QUERN_SHARED_DIR) / "real" / "dense_layers.gguf";
  if (std::string(QUERN_SHARED_DIR).empty() || !std::filesystem::exists(path))
    GTEST_SKIP() << "real/dense_layers.gguf is not in the folder of shared test data";
  const File mapped = File::map(path, strict);
  const File copied = File::read(path, strict);
  EXPECT_EQ(mapped.tensors().size(), 80u);
  std::size_t viewed = 0;
  for (const quern::gguf::Tensor& tensor : mapped.tensors()) {
    const auto bytes = copied.bytes(tensor.name);
    EXPECT_TRUE(std::ranges::equal(mapped.bytes(tensor), bytes)) << tensor.name;
    if (!quern::find_format(tensor.type_id)) continue;
    mapped.visit_weight(tensor.name, [&](const auto& view) {
      EXPECT_EQ(view.in(), tensor.extents[0]);
      EXPECT_EQ(view.out(), tensor.extents[1]);
      std::vector<float> row(view.in());
      view.decode_row(view.out() - 1, row);
      for (const float value : row)
        ASSERT_TRUE(std::isfinite(value)) << tensor.name;
    });
    ++viewed;
  }
  EXPECT_GT(viewed, 0u);
}

} // namespace
