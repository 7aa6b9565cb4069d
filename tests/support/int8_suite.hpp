#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/activation.hpp>
#include <quern/formats.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels/int8_scalar.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>

#include "guarded.hpp"
#include "kernel_sizes.hpp"
#include "tested_formats.hpp"
#include "weights.hpp"

/// @file
/// Tests of the kernels for int8 activations of one instruction set, which a file names before it
/// includes this: `using TestedIsa = quern::isa::...`. Their bits are compared with those of the
/// portable kernel. Kernels are reached by function pointers, so that each test is compiled once.

namespace {

using quern::MatrixView;
using quern::OutIn;
using support::canary;
using support::Size;

using Int8 = std::variant<quern::Int8Blocks<32>, quern::Int8Blocks<256>>;

/// Part of a weight: outputs and blocks of each row.
struct Part {
  std::size_t from;
  std::size_t count;
  std::size_t first;
  std::size_t kept;
};

/// A kernel of TestedIsa, for one format in one order.
struct Int8Kernel {
  std::string name;
  bool by_rows;
  std::size_t block_size;
  std::size_t block_bytes;
  std::size_t width;
  std::uint32_t gguf_type;
  std::vector<std::byte> (*blocks)(std::size_t count, std::uint32_t seed);
  std::vector<std::byte> (*lay_out)(std::span<const std::byte>, std::size_t out,
                                    std::size_t blocks);
  void (*run)(std::span<const std::byte> bytes, std::size_t out, std::size_t blocks, Part part,
              const Int8& x, MatrixView<float> y);
  std::vector<float> (*portable)(std::span<const std::byte> row_major, std::size_t out,
                                 std::size_t blocks, const Int8& x);
};

void PrintTo(const Int8Kernel& kernel, std::ostream* out) {
  *out << kernel.name;
}

template <class F, class O, class I>
void run_kernel(std::span<const std::byte> bytes, std::size_t out, std::size_t blocks, Part part,
                const Int8& x, MatrixView<float> y) {
  const auto w = quern::PackedView<F, O>{bytes, OutIn{out, blocks * F::block_size}}
                     .narrow_out(part.from, part.count)
                     .narrow_blocks(part.first, part.kept);
  quern::kernels::Matmul<quern::Int8For<F>, F, O, I>::run(std::get<quern::Int8For<F>>(x), w, y);
}

template <class F>
std::vector<float> portable_product(std::span<const std::byte> row_major, std::size_t out,
                                    std::size_t blocks, const Int8& x) {
  const auto& activations = std::get<quern::Int8For<F>>(x);
  std::vector<float> y(activations.rows() * out);
  run_kernel<F, quern::RowMajor, quern::isa::Scalar>(
      row_major, out, blocks, {0, out, 0, blocks}, x,
      MatrixView<float>{std::span<float>(y), activations.rows(), out});
  return y;
}

const std::vector<Int8Kernel>& int8_kernels() {
  static const std::vector<Int8Kernel> all = [] {
    std::vector<Int8Kernel> list;
    using Kinds =
        boost::mp11::mp_product<boost::mp11::mp_list, support::TestedFormats, quern::Orders>;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Kinds>>(
        [&]<class F, class O>(std::type_identity<boost::mp11::mp_list<F, O>>) {
          if constexpr (quern::int8_width<F> != 0)
            list.push_back({std::string(F::name) + "_" + std::string(O::name),
                            std::is_same_v<O, quern::RowMajor>, F::block_size, F::bytes_per_block,
                            quern::int8_width<F>, F::gguf_type, &support::finite_blocks<F>,
                            &support::laid_out<F, O>, &run_kernel<F, O, TestedIsa>,
                            &portable_product<F>});
        });
    return list;
  }();
  return all;
}

/// Activations whose bytes end where memory ends.
struct Quantized {
  support::Guarded<std::byte> bytes;
  Int8 view;

  Quantized(std::size_t width, std::span<const float> x, std::size_t rows, std::size_t cols)
      : bytes(width == 32 ? quern::Int8Blocks<32>::bytes_for(rows, cols)
                          : quern::Int8Blocks<256>::bytes_for(rows, cols)),
        view(width == 32 ? Int8(quern::quantize_activations<32>({x, rows, cols}, bytes.span()))
                         : Int8(quern::quantize_activations<256>({x, rows, cols}, bytes.span()))) {}
};

Int8 rows_of(const Int8& x, std::size_t from, std::size_t count) {
  return std::visit([&](const auto& blocks) { return Int8(blocks.narrow_rows(from, count)); }, x);
}

class Int8Suite : public testing::TestWithParam<Int8Kernel> {
protected:
  void SetUp() override {
    if (!TestedIsa::available()) GTEST_SKIP() << "this CPU has no " << TestedIsa::name;
    std::cout << "kernel: matmul<Int8Blocks<" << kernel.width << ">, " << kernel.name << ", "
              << TestedIsa::name << ">\n";
  }
  const Int8Kernel& kernel = GetParam();
};

TEST_P(Int8Suite, EverySizeHasTheBitsOfThePortableKernelAndTouchesNothingElse) {
  for (const Size size : support::sizes()) {
    const std::size_t in = size.blocks * kernel.block_size;
    const auto seed = static_cast<std::uint32_t>(size.out * 100 + size.blocks);
    // Bytes of all kinds: scales and minimums of any sign and size.
    const auto row_major = kernel.blocks(size.out * size.blocks, seed);
    const auto laid_out = kernel.lay_out(row_major, size.out, size.blocks);
    const support::Guarded<std::byte> bytes{std::span<const std::byte>(laid_out)};
    const Quantized x(kernel.width, support::random_values(size.rows * in, seed), size.rows, in);
    const auto expected = kernel.portable(row_major, size.out, size.blocks, x.view);
    const std::size_t stride = size.out + 3;
    support::Guarded<float> y((size.rows - 1) * stride + size.out);
    std::ranges::fill(y.span(), canary);
    kernel.run(bytes.span(), size.out, size.blocks, {0, size.out, 0, size.blocks}, x.view,
               MatrixView<float>{y.span(), size.rows, size.out, stride});
    for (std::size_t r = 0; r < size.rows; ++r) {
      const auto row = y.span().subspan(r * stride, size.out);
      ASSERT_EQ(support::bits_of(row),
                support::bits_of(std::span<const float>(expected).subspan(r * size.out, size.out)))
          << "out " << size.out << " blocks " << size.blocks << " rows " << size.rows << " row "
          << r;
      for (std::size_t gap = size.out; r + 1 != size.rows && gap < stride; ++gap)
        ASSERT_EQ(y.span()[r * stride + gap], canary) << "row " << r;
    }
  }
}

TEST_P(Int8Suite, ExtremeCodesDoNotSaturate) {
  constexpr std::size_t out = 9, blocks = 2;
  const std::size_t in = blocks * kernel.block_size;
  for (const int byte : {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0xAA, 0x55}) {
    // The same byte everywhere, apart from where that would make a NaN or infinity.
    auto row_major = kernel.blocks(1, 1);
    for (std::byte& here : row_major) {
      const std::byte before = std::exchange(here, static_cast<std::byte>(byte));
      const auto values = support::decode_blocks(kernel.gguf_type, row_major);
      if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) here = before;
    }
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < out * blocks; ++i)
      all.insert(all.end(), row_major.begin(), row_major.end());
    for (const auto& [even, odd] : {std::pair{-128, -128}, {127, 127}, {-128, 127}, {127, -128}})
      for (const std::size_t rows : {1u, 2u, 5u}) {
        std::vector<std::int8_t> codes(rows * in);
        for (std::size_t i = 0; i < codes.size(); ++i)
          codes[i] = static_cast<std::int8_t>(i % 2 == 0 ? even : odd);
        const std::vector<float> scales(rows * in / kernel.width, 1.0f);
        quern::ModelScope scope;
        const Int8 x = kernel.width == 32
                           ? Int8(quern::int8_activations<32>(codes, scales, rows, in, scope))
                           : Int8(quern::int8_activations<256>(codes, scales, rows, in, scope));
        std::vector<float> y(rows * out);
        kernel.run(all, out, blocks, {0, out, 0, blocks}, x,
                   MatrixView<float>{std::span<float>(y), rows, out});
        ASSERT_EQ(support::bits_of(y), support::bits_of(kernel.portable(all, out, blocks, x)))
            << "weight byte " << byte << " activations " << even << ' ' << odd << " rows " << rows;
      }
  }
}

TEST_P(Int8Suite, BatchAndSharesOfOutputsChangeNoBit) {
  constexpr std::size_t out = 77, rows = 201;
  const std::size_t blocks = kernel.block_size == 256 ? 3 : 672 / kernel.block_size;
  const std::size_t in = blocks * kernel.block_size;
  const auto row_major = kernel.blocks(out * blocks, 9);
  const auto bytes = kernel.lay_out(row_major, out, blocks);
  const Quantized x(kernel.width, support::random_values(rows * in), rows, in);
  const auto expected = kernel.portable(row_major, out, blocks, x.view);
  for (const auto& [batch, share] : {std::pair<std::size_t, std::size_t>{201, 77},
                                     {1, 77},
                                     {7, 32},
                                     {200, 16},
                                     {4, 1},
                                     {13, 45}}) {
    std::vector<float> y(rows * out, std::numeric_limits<float>::quiet_NaN());
    const MatrixView<float> all{std::span<float>(y), rows, out};
    for (std::size_t r = 0; r < rows; r += batch)
      for (std::size_t o = 0; o < out; o += share) {
        const std::size_t some = std::min(batch, rows - r), outputs = std::min(share, out - o);
        kernel.run(bytes, out, blocks, {o, outputs, 0, blocks}, rows_of(x.view, r, some),
                   all.narrow_rows(r, some).narrow_cols(o, outputs));
      }
    ASSERT_EQ(support::bits_of(y), support::bits_of(expected))
        << batch << " rows and " << share << " outputs at a time";
  }
}

TEST_P(Int8Suite, NarrowedViewsAtOddAddresses) {
  constexpr Part part{3, 19, 2, 7};
  const auto row_major = kernel.blocks(29 * 11, 4);
  const auto laid_out = kernel.lay_out(row_major, 29, 11);
  std::vector<std::byte> shifted(laid_out.size() + 1);
  std::ranges::copy(laid_out, shifted.begin() + 1);
  std::vector<std::byte> cut;
  for (std::size_t o = part.from; o < part.from + part.count; ++o) {
    const auto at =
        row_major.begin() + static_cast<std::ptrdiff_t>((o * 11 + part.first) * kernel.block_bytes);
    cut.insert(cut.end(), at, at + static_cast<std::ptrdiff_t>(part.kept * kernel.block_bytes));
  }
  const std::size_t in = part.kept * kernel.block_size;
  for (const std::size_t rows : {1u, 3u}) {
    const Quantized x(kernel.width, support::random_values(rows * in), rows, in);
    std::vector<float> y(1 + rows * part.count);
    kernel.run(std::span<const std::byte>(shifted).subspan(1), 29, 11, part, x.view,
               MatrixView<float>{std::span<float>(y).subspan(1), rows, part.count});
    ASSERT_EQ(support::bits_of(std::span<const float>(y).subspan(1)),
              support::bits_of(kernel.portable(cut, part.count, part.kept, x.view)));
  }
}

TEST_P(Int8Suite, NanAndInfinityStayInTheirRow) {
  constexpr std::size_t out = 11;
  const std::size_t in = 3 * kernel.block_size;
  const auto row_major = kernel.blocks(out * 3, 2);
  const auto bytes = kernel.lay_out(row_major, out, 3);
  for (const std::size_t rows : {1u, 3u, 8u})
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      auto values = support::random_values(rows * in);
      const Quantized good(kernel.width, values, rows, in);
      values[rows / 2 * in + in / 2] = odd;
      const Quantized bad(kernel.width, values, rows, in);
      const auto expected = kernel.portable(row_major, out, 3, good.view);
      std::vector<float> y(rows * out);
      kernel.run(bytes, out, 3, {0, out, 0, 3}, bad.view,
                 MatrixView<float>{std::span<float>(y), rows, out});
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (i / out == rows / 2)
          ASSERT_FALSE(std::isfinite(y[i])) << i;
        else
          ASSERT_EQ(y[i], expected[i]) << i;
      }
    }
}

TEST_P(Int8Suite, ZeroActivationsGiveZeroAndEmptyExtentsNothing) {
  const auto bytes = kernel.blocks(11, 1);
  const Quantized zeros(kernel.width, std::vector<float>(2 * kernel.block_size, 0.0f), 2,
                        kernel.block_size);
  const Quantized nothing(kernel.width, {}, 2, 0);
  for (const std::size_t rows : {1u, 2u}) {
    std::vector<float> y(rows * 11, canary);
    kernel.run(bytes, 11, 1, {0, 11, 0, 1}, rows_of(zeros.view, 0, rows),
               MatrixView<float>{std::span<float>(y), rows, 11});
    EXPECT_EQ(support::bits_of(y), std::vector<std::uint32_t>(rows * 11, 0u));
  }
  std::vector<float> y(6, canary);
  kernel.run({}, 3, 0, {0, 3, 0, 0}, nothing.view, MatrixView<float>{std::span<float>(y), 2, 3});
  EXPECT_EQ(y, std::vector<float>(6, 0.0f));
  kernel.run({}, 0, 1, {0, 0, 0, 1}, zeros.view, MatrixView<float>{{}, 2, 0});
  kernel.run(bytes, 11, 1, {0, 11, 0, 1}, rows_of(zeros.view, 0, 0), MatrixView<float>{{}, 0, 11});
}

INSTANTIATE_TEST_SUITE_P(Each, Int8Suite, testing::ValuesIn(int8_kernels()),
                         [](const auto& test) { return test.param.name; });

} // namespace
