// Every kernel that decodes, through decode(): the bits of Format::decode in both orders, for
// narrowed views, odd addresses, any memory around, any number of threads.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/decode.hpp>
#include <quern/formats.hpp>
#include <quern/isas.hpp>
#include <quern/matrix_view.hpp>
#include <quern/packed_view.hpp>
#include <quern/trace_sinks.hpp>

#include "support/errors.hpp"
#include "support/guarded.hpp"
#include "support/kernels.hpp"
#include "support/tested_formats.hpp"
#include "support/weights.hpp"

namespace {

using quern::In;
using quern::InputBlockMajor;
using quern::MatrixView;
using quern::Out;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;

/// A part of a grid, in rows and blocks.
struct Part {
  std::size_t from, rows, first, blocks;
};

/// One kernel, without its types.
struct Kernel {
  std::string isa;
  void (*decode)(std::span<const std::byte> bytes, OutIn shape, Part part, MatrixView<float> matrix,
                 quern::DecodeOptions options);
};

/// A format with an order, and the kernels that this CPU can run.
struct Case {
  std::string name;
  std::size_t block_size = 0, bytes_per_block = 0;
  bool by_rows = false;
  void (*decode_block)(const std::byte* block, float* to) = nullptr;
  std::vector<Kernel> kernels;

  [[nodiscard]] OutIn shape(std::size_t out, std::size_t blocks) const {
    return OutIn{Out{out}, In{blocks * block_size}};
  }
  [[nodiscard]] std::size_t place(std::size_t o, std::size_t b, std::size_t out,
                                  std::size_t blocks) const {
    return by_rows ? o * blocks + b : b * out + o;
  }
};

template <class F, class O>
Case make_case() {
  Case c;
  c.name = std::string(F::name) + "_" + std::string(O::name);
  c.block_size = F::block_size;
  c.bytes_per_block = F::bytes_per_block;
  c.by_rows = std::is_same_v<O, RowMajor>;
  c.decode_block = [](const std::byte* block, float* to) {
    const auto values = F::decode(typename PackedView<F, O>::Block{block, F::bytes_per_block});
    std::memcpy(to, values.data(), sizeof values);
  };
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Isas>>(
      [&](auto tag) {
        using I = typename decltype(tag)::type;
        if constexpr (quern::has_decode_kernel<F, O, I>) {
          if (!I::available()) return;
          EXPECT_EQ((quern::best_decode_key<F, O>(quern::at_most<I>()).isa), I::name);
          c.kernels.push_back(
              {std::string(I::name), [](std::span<const std::byte> bytes, OutIn shape, Part part,
                                        MatrixView<float> matrix, quern::DecodeOptions options) {
                 options.max_isa = quern::at_most<I>();
                 quern::decode(PackedView<F, O>{bytes, shape}
                                   .narrow_out(part.from, part.rows)
                                   .narrow_blocks(part.first, part.blocks),
                               matrix, options);
               }});
        }
      });
  return c;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, support::TestedFormats>>(
        [&](auto tag) {
          using F = typename decltype(tag)::type;
          list.push_back(make_case<F, RowMajor>());
          list.push_back(make_case<F, InputBlockMajor>());
        });
    return list;
  }();
  return all;
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint32_t seed) {
  support::Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random.bits() >> 24);
  return bytes;
}

/// The decoded part, row after row, by Format::decode alone.
std::vector<float> expected(const Case& c, std::span<const std::byte> bytes, std::size_t out,
                            std::size_t blocks, Part part) {
  std::vector<float> matrix(part.rows * part.blocks * c.block_size);
  for (std::size_t o = 0; o < part.rows; ++o)
    for (std::size_t b = 0; b < part.blocks; ++b)
      c.decode_block(bytes.data() +
                         c.place(part.from + o, part.first + b, out, blocks) * c.bytes_per_block,
                     matrix.data() + (o * part.blocks + b) * c.block_size);
  return matrix;
}

/// Bits to compare: in scaled formats one NaN is as good as another, single values keep theirs.
std::vector<std::uint32_t> comparable(const Case& c, std::span<const float> values) {
  auto bits = support::bits_of(values);
  if (c.block_size != 1)
    for (std::size_t i = 0; i < bits.size(); ++i)
      if (std::isnan(values[i])) bits[i] = 0x7FC00000u;
  return bits;
}

class DecodeKernels : public testing::TestWithParam<std::size_t> {
protected:
  [[nodiscard]] const Case& param() const { return cases()[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(All, DecodeKernels, testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& test) { return cases()[test.param].name; });

/// Decodes a part of random bytes with every kernel; bytes start at an odd address, rows of the
/// matrix at a stride of their own, and what lies between rows must stay.
void check_part(const Case& c, std::size_t out, std::size_t blocks, Part part) {
  const std::size_t size = out * blocks * c.bytes_per_block;
  auto storage = random_bytes(size + 1, static_cast<std::uint32_t>(31 * out + blocks));
  const auto bytes = std::span<const std::byte>(storage).subspan(1);
  const auto right = expected(c, bytes, out, blocks, part);
  const std::size_t in = part.blocks * c.block_size, stride = in + 5;
  for (const Kernel& kernel : c.kernels) {
    SCOPED_TRACE(kernel.isa + " " + std::to_string(part.rows) + " of " + std::to_string(out) +
                 " rows, " + std::to_string(part.blocks) + " of " + std::to_string(blocks) +
                 " blocks");
    std::vector<float> memory(3 + part.rows * stride, support::canary);
    const MatrixView<float> matrix{std::span<float>(memory).subspan(3), part.rows, in, stride};
    kernel.decode(bytes, c.shape(out, blocks), part, matrix, {});
    std::vector<float> found;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (i >= 3 && (i - 3) % stride < in)
        found.push_back(memory[i]);
      else
        ASSERT_EQ(memory[i], support::canary) << "written at " << i;
    }
    ASSERT_EQ(comparable(c, found), comparable(c, right));
  }
}

TEST_P(DecodeKernels, GiveTheBitsOfTheFormatsOwnDecode) {
  const Case& c = param();
  // Enough blocks for scales of every kind: NaN, infinite, subnormal, of either sign.
  for (const std::size_t out : {1u, 2u, 7u, 8u, 9u, 31u, 33u, 65u})
    for (const std::size_t blocks : {1u, 2u, 3u, 5u, 18u})
      check_part(c, out, blocks, {0, out, 0, blocks});
  // Counts around every register and every piece.
  for (std::size_t blocks = 6; blocks <= 70; blocks += c.block_size == 1 ? 1 : 16)
    check_part(c, 3, blocks, {0, 3, 0, blocks});
  if (c.block_size == 1) check_part(c, 11, 2063, {0, 11, 0, 2063});
  check_part(c, 300, 7, {0, 300, 0, 7});
}

TEST_P(DecodeKernels, NarrowedViewsKeepTheStrideOfTheWeight) {
  const Case& c = param();
  check_part(c, 29, 11, {3, 19, 2, 7});
  check_part(c, 70, 40, {1, 66, 3, 33});
  check_part(c, 9, 5, {8, 1, 4, 1});
  check_part(c, 9, 5, {0, 9, 2, 1});
  check_part(c, 9, 5, {4, 1, 0, 5});
  check_part(c, 9, 5, {4, 0, 1, 3});
  check_part(c, 9, 5, {4, 3, 1, 0});
}

TEST_P(DecodeKernels, EmptyExtents) {
  const Case& c = param();
  check_part(c, 3, 0, {0, 3, 0, 0});
  check_part(c, 0, 3, {0, 0, 0, 3});
}

void check_all_patterns(const Case& c) {
  SCOPED_TRACE(c.name);
  std::vector<std::byte> bytes;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    bytes.insert(bytes.end(), {static_cast<std::byte>(bits), static_cast<std::byte>(bits >> 8)});
  const auto right = expected(c, bytes, 16, 4096, {0, 16, 0, 4096});
  for (const Kernel& kernel : c.kernels) {
    std::vector<float> found(0x10000);
    kernel.decode(bytes, c.shape(16, 4096), {0, 16, 0, 4096},
                  MatrixView<float>{std::span<float>(found), 16, 4096}, {});
    ASSERT_EQ(support::bits_of(found), support::bits_of(right)) << kernel.isa;
  }
}

TEST(Decode, EveryPatternOfSixteenBits) {
  std::size_t tried = 0;
  for (const Case& c : cases())
    if (c.bytes_per_block == 2) {
      check_all_patterns(c);
      ++tried;
    }
  const auto tested = []<class F>(std::type_identity<F>) {
    return boost::mp11::mp_contains<support::TestedFormats, F>::value ? 2u : 0u;
  };
  EXPECT_EQ(tried,
            tested(std::type_identity<quern::F16>{}) + tested(std::type_identity<quern::BF16>{}))
      << "F16 and BF16 in both orders";
}

#if defined(SUPPORT_HAS_PAGES)
TEST_P(DecodeKernels, StayWithinTheirMemory) {
  const Case& c = param();
  for (const auto against : {support::Against::front, support::Against::back})
    for (const std::size_t out : {1u, 3u, 8u, 9u})
      for (const std::size_t blocks : {1u, 2u, 5u, 9u, 17u}) {
        const auto source = random_bytes(out * blocks * c.bytes_per_block, 5);
        support::Guarded<std::byte> bytes(std::span<const std::byte>(source), against);
        bytes.read_only();
        const std::size_t in = blocks * c.block_size;
        const Part whole{0, out, 0, blocks};
        for (const Kernel& kernel : c.kernels) {
          support::Guarded<float> matrix(out * in, against);
          kernel.decode(std::as_const(bytes).span(), c.shape(out, blocks), whole,
                        MatrixView<float>{matrix.span(), out, in}, {});
          ASSERT_EQ(comparable(c, matrix.span()),
                    comparable(c, expected(c, source, out, blocks, whole)))
              << kernel.isa;
        }
      }
}

/// Every format in RowMajor, where a row lies in one piece.
class DecodeRows : public DecodeKernels {};
INSTANTIATE_TEST_SUITE_P(All, DecodeRows, testing::Range(std::size_t{0}, cases().size(), 2),
                         [](const auto& test) { return cases()[test.param].name; });

TEST_P(DecodeRows, OneTouchesItsOwnBytesOnly) {
  const Case& c = param();
  ASSERT_TRUE(c.by_rows);
  const std::size_t page = support::page_size();
  // Rows of whole pages: every row on pages of its own.
  const std::size_t blocks = page, rows = 3;
  const std::size_t row_bytes = blocks * c.bytes_per_block;
  const auto source = random_bytes(rows * row_bytes, 6);
  support::Guarded<std::byte> bytes{std::span<const std::byte>(source)};
  bytes.hide_all_pages();
  bytes.show(row_bytes, row_bytes);
  std::vector<float> row(blocks * c.block_size);
  for (const Kernel& kernel : c.kernels) {
    kernel.decode(std::as_const(bytes).span(), c.shape(rows, blocks), {1, 1, 0, blocks},
                  MatrixView<float>{std::span<float>(row), 1, row.size()}, {});
    ASSERT_EQ(comparable(c, row),
              comparable(c, expected(c, source, rows, blocks, {1, 1, 0, blocks})))
        << kernel.isa;
  }
}
#endif

TEST_P(DecodeKernels, ThreadsWriteEachRowOnceAndChangeNoBit) {
  const Case& c = param();
  for (const std::size_t out : {1u, 31u, 100u, 333u}) {
    const auto bytes = random_bytes(out * 2 * c.bytes_per_block, 7);
    const std::size_t in = 2 * c.block_size;
    const auto right = expected(c, bytes, out, 2, {0, out, 0, 2});
    for (const Kernel& kernel : c.kernels)
      for (const std::size_t threads : {1u, 2u, 3u, 8u, 64u}) {
        const support::ShuffledExecutor executor{threads};
        std::vector<float> found(out * in, support::canary);
        kernel.decode(bytes, c.shape(out, 2), {0, out, 0, 2},
                      MatrixView<float>{std::span<float>(found), out, in}, {.executor = executor});
        ASSERT_EQ(comparable(c, found), comparable(c, right))
            << kernel.isa << " " << threads << " threads, " << out << " rows";
      }
  }
}

TEST_P(DecodeKernels, RefuseOtherExtentsAndWriteNothing) {
  const Case& c = param();
  const auto bytes = random_bytes(4 * 3 * c.bytes_per_block, 8);
  const std::size_t in = 3 * c.block_size;
  std::vector<float> values(5 * (in + 1), support::canary);
  for (const auto& [rows, cols] : {std::pair{std::size_t{3}, in},
                                   {std::size_t{5}, in},
                                   {std::size_t{4}, in - 1},
                                   {std::size_t{4}, in + 1},
                                   {std::size_t{0}, in}}) {
    const MatrixView<float> matrix{std::span<float>(values).first(rows * cols), rows, cols};
    const auto message = support::error_of(quern::ErrorCode::size_mismatch, [&] {
      c.kernels.front().decode(bytes, c.shape(4, 3), {0, 4, 0, 3}, matrix, {});
    });
    EXPECT_TRUE(support::contains(message, "quern::decode"));
    EXPECT_TRUE(support::contains(message, std::to_string(rows) + " x " + std::to_string(cols)));
  }
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == support::canary; }));
}

// What decode() runs is what Isas and the CPU allow, best first; portable code is always there.
TEST(Decode, KernelsComeBestFirst) {
  std::vector<std::string> available;
  if (quern::isa::Avx512::available()) available.emplace_back("Avx512");
  if (quern::isa::Avx2::available()) available.emplace_back("Avx2");
  available.emplace_back("Scalar");
  std::size_t complete = 0;
  for (const Case& c : cases()) {
    ASSERT_FALSE(c.kernels.empty());
    EXPECT_EQ(c.kernels.back().isa, "Scalar") << c.name;
    auto place = available.begin();
    for (const Kernel& kernel : c.kernels) {
      place = std::find(place, available.end(), kernel.isa);
      ASSERT_NE(place, available.end()) << c.name << " " << kernel.isa;
    }
    complete += c.kernels.size() == available.size() ? 1 : 0;
  }
  EXPECT_GE(complete, 2 * boost::mp11::mp_size<support::TestedFormats>::value)
      << "a format has lost a kernel";
}

TEST(Decode, ReportsTheKernelThatRan) {
  const auto bytes = support::counting_weight(2, 3);
  std::vector<float> values(2 * 96);
  quern::RingTrace trace(4);
  quern::decode(PackedView<quern::Q4_0, RowMajor>{std::span<const std::byte>(bytes), OutIn{2, 96}},
                MatrixView<float>{std::span<float>(values), 2, 96},
                {.trace = &trace, .max_isa = quern::at_most<quern::isa::Scalar>()});
  const auto events = trace.events();
  ASSERT_EQ(events.size(), 1u);
  const auto* run = std::get_if<quern::KernelRun>(&events[0].event);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->kernel, "decode<float, Q4_0, RowMajor, Scalar>");
  EXPECT_EQ(run->bytes_read, bytes.size());
  EXPECT_EQ(run->bytes_written, values.size() * sizeof(float));
}

template <class O>
constexpr std::array<float, 192> decoded_at_compile_time() {
  // Two rows of three blocks, of scale 1 to 6 and code 9, which means 1, in order O.
  constexpr std::array<std::uint16_t, 6> scales = {0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
  std::array<std::byte, 108> bytes{};
  for (std::size_t n = 0; n < 6; ++n) {
    bytes[18 * n] = static_cast<std::byte>(scales[n] & 255u);
    bytes[18 * n + 1] = static_cast<std::byte>(scales[n] >> 8);
    for (std::size_t i = 2; i < 18; ++i)
      bytes[18 * n + i] = std::byte{0x99};
  }
  std::array<float, 192> values{};
  quern::decode(PackedView<quern::Q4_0, O>{bytes, OutIn{Out{2}, In{96}}},
                MatrixView<float>{std::span<float>(values), 2, 96});
  return values;
}
static_assert(decoded_at_compile_time<RowMajor>()[64] == 3.0f);
static_assert(decoded_at_compile_time<RowMajor>()[96] == 4.0f);
static_assert(decoded_at_compile_time<InputBlockMajor>()[64] == 5.0f);
static_assert(decoded_at_compile_time<InputBlockMajor>()[96] == 2.0f);

TEST(Decode, TheWrongOrderGivesAnotherAnswer) {
  const auto bytes = support::counting_weight(2, 3);
  std::vector<float> right(192), wrong(192);
  quern::decode(PackedView<quern::Q4_0, RowMajor>{std::span<const std::byte>(bytes), OutIn{2, 96}},
                MatrixView<float>{std::span<float>(right), 2, 96});
  quern::decode(
      PackedView<quern::Q4_0, InputBlockMajor>{std::span<const std::byte>(bytes), OutIn{2, 96}},
      MatrixView<float>{std::span<float>(wrong), 2, 96});
  for (std::size_t i = 0; i < 192; ++i) {
    ASSERT_EQ(right[i], static_cast<float>(1 + i / 32));
    ASSERT_EQ(wrong[i], static_cast<float>(1 + i / 96 + i % 96 / 32 * 2));
  }
}

} // namespace
