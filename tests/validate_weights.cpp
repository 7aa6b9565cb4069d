// validate(): the first block that is invalid, in every format and both orders.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/packed_view.hpp>
#include <quern/validate.hpp>

#include "support/errors.hpp"
#include "support/tested_formats.hpp"
#include "support/weights.hpp"

namespace {

using quern::BlockFault;
using quern::ErrorCode;
using quern::In;
using quern::InputBlockMajor;
using quern::Out;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;
using quern::Validation;

template <class F>
using Block = std::array<std::byte, F::bytes_per_block>;

/// A change that makes a block invalid: bits `set` of the bytes from `at` on become those of
/// `value`.
struct Damage {
  std::string what;
  std::size_t at;
  std::vector<std::uint8_t> value;
  BlockFault fault;
  std::uint8_t mask = 0xFF;
};

void damage_half(std::vector<Damage>& list, std::size_t at) {
  list.push_back({"infinity", at, {0x00, 0x7C}, BlockFault::infinite});
  list.push_back({"minus infinity", at, {0x00, 0xFC}, BlockFault::infinite});
  list.push_back({"NaN", at, {0x00, 0x7E}, BlockFault::not_a_number});
  list.push_back({"signalling NaN", at, {0x01, 0x7C}, BlockFault::not_a_number});
  list.push_back({"minus NaN", at, {0xFF, 0xFF}, BlockFault::not_a_number});
}

/// Where each format keeps its binary16 scales: facts of the formats, apart from their headers.
std::vector<std::size_t> halves_of(std::string_view format) {
  if (format == "Q4_1" || format == "Q5_1" || format == "Q4_K" || format == "Q5_K") return {0, 2};
  if (format == "Q2_K") return {80, 82};
  if (format == "Q3_K") return {108};
  if (format == "Q6_K") return {208};
  if (format == "TQ1_0") return {52};
  if (format == "TQ2_0") return {64};
  if (format == "F32" || format == "BF16" || format == "IQ1_M" || format == "MXFP4" ||
      format == "NVFP4")
    return {};
  return {0};
}

template <class F>
std::vector<Damage> damages() {
  std::vector<Damage> list;
  for (const std::size_t at : halves_of(F::name))
    damage_half(list, at);
  if constexpr (std::is_same_v<F, quern::F32>) {
    list.push_back({"infinity", 0, {0, 0, 0x80, 0x7F}, BlockFault::infinite});
    list.push_back({"minus infinity", 0, {0, 0, 0x80, 0xFF}, BlockFault::infinite});
    list.push_back({"NaN", 0, {0, 0, 0xC0, 0x7F}, BlockFault::not_a_number});
    list.push_back({"least NaN", 0, {1, 0, 0x80, 0xFF}, BlockFault::not_a_number});
  } else if constexpr (std::is_same_v<F, quern::BF16>) {
    list.push_back({"infinity", 0, {0x80, 0x7F}, BlockFault::infinite});
    list.push_back({"minus infinity", 0, {0x80, 0xFF}, BlockFault::infinite});
    list.push_back({"NaN", 0, {0x81, 0x7F}, BlockFault::not_a_number});
  } else if constexpr (std::is_same_v<F, quern::IQ1_M>) {
    // The nibbles of the scale are the upper ones of bytes 49, 51, 53 and 55.
    list.push_back({"infinity", 49, {0, 0, 0, 0, 0xC0, 0, 0x70}, BlockFault::infinite, 0xF0});
    list.push_back({"NaN", 49, {0x10, 0, 0, 0, 0xC0, 0, 0xF0}, BlockFault::not_a_number, 0xF0});
  } else if constexpr (std::is_same_v<F, quern::MXFP4>) {
    list.push_back({"exponent 255", 0, {255}, BlockFault::reserved_code});
    list.push_back({"2^127 times 2", 0, {254, 0x04}, BlockFault::infinite});
    list.push_back({"2^127 times -6", 0, {254, 0xF0}, BlockFault::infinite});
    list.push_back({"2^126 times 4", 0, {253, 0x60}, BlockFault::infinite});
  }
  return list;
}

void apply(const Damage& damage, std::span<std::byte> block) {
  for (std::size_t i = 0; i < damage.value.size(); ++i)
    block[damage.at + i] = (block[damage.at + i] & static_cast<std::byte>(~damage.mask)) |
                           static_cast<std::byte>(damage.value[i] & damage.mask);
}

/// A format with an order, without their types.
struct Case {
  std::string name;
  std::string format;
  std::size_t block_size, bytes_per_block;
  bool by_rows;
  std::vector<Damage> damages;
  std::vector<std::byte> good; ///< 77 valid blocks
  std::vector<std::byte> (*any)(std::size_t count);
  Validation (*validate)(std::span<const std::byte> bytes, OutIn shape, std::size_t from,
                         std::size_t rows, std::size_t first, std::size_t blocks);
  BlockFault (*check)(const std::byte* block);
  bool (*finite)(const std::byte* block);

  [[nodiscard]] std::size_t place(std::size_t o, std::size_t b, std::size_t out,
                                  std::size_t blocks) const {
    return by_rows ? o * blocks + b : b * out + o;
  }
  [[nodiscard]] OutIn shape(std::size_t out, std::size_t blocks) const {
    return OutIn{Out{out}, In{blocks * block_size}};
  }
};

/// Random blocks, of which those that decode to a NaN or an infinity are drawn again.
template <class F>
std::vector<std::byte> good_blocks(std::size_t count) {
  auto bytes = support::finite_blocks<F>(count, 3);
  if constexpr (std::is_same_v<F, quern::MXFP4>)
    for (std::size_t i = 0; i < bytes.size(); i += F::bytes_per_block)
      if (bytes[i] == std::byte{255}) bytes[i] = std::byte{252};
  return bytes;
}

template <class F, class O>
Case make_case() {
  return {std::string(F::name) + "_" + std::string(O::name),
          std::string(F::name),
          F::block_size,
          F::bytes_per_block,
          std::is_same_v<O, RowMajor>,
          damages<F>(),
          good_blocks<F>(77),
          [](std::size_t count) {
            support::Random random(9);
            std::vector<std::byte> bytes(count * F::bytes_per_block);
            for (std::byte& byte : bytes)
              byte = static_cast<std::byte>(random.bits() >> 24);
            return bytes;
          },
          [](std::span<const std::byte> bytes, OutIn shape, std::size_t from, std::size_t rows,
             std::size_t first, std::size_t blocks) {
            return quern::validate(
                PackedView<F, O>{bytes, shape}.narrow_out(from, rows).narrow_blocks(first, blocks));
          },
          [](const std::byte* block) {
            return F::check(typename PackedView<F, O>::Block{block, F::bytes_per_block});
          },
          [](const std::byte* block) {
            for (const float value :
                 F::decode(typename PackedView<F, O>::Block{block, F::bytes_per_block}))
              if (!std::isfinite(value)) return false;
            return true;
          }};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, support::TestedFormats>>(
        [&](auto tag) {
          using F = typename decltype(tag)::type;
          static_assert(quern::CheckedFormat<F>);
          list.push_back(make_case<F, RowMajor>());
          list.push_back(make_case<F, InputBlockMajor>());
        });
    return list;
  }();
  return all;
}

class Validate : public testing::TestWithParam<std::size_t> {
protected:
  static constexpr std::size_t out = 11, blocks = 7;
  [[nodiscard]] const Case& param() const { return cases()[GetParam()]; }
  [[nodiscard]] Validation whole(std::span<const std::byte> bytes) const {
    return param().validate(bytes, param().shape(out, blocks), 0, out, 0, blocks);
  }
  [[nodiscard]] std::span<std::byte> block(std::span<std::byte> bytes, std::size_t o,
                                           std::size_t b) const {
    return bytes.subspan(param().place(o, b, out, blocks) * param().bytes_per_block,
                         param().bytes_per_block);
  }
};
INSTANTIATE_TEST_SUITE_P(All, Validate, testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& test) { return cases()[test.param].name; });

TEST_P(Validate, AcceptsWhatIsFinite) {
  const auto result = whole(param().good);
  EXPECT_TRUE(result.ok()) << result.message();
  EXPECT_NO_THROW(result.require());
  EXPECT_EQ(result.format, param().format);
}

TEST_P(Validate, FindsEveryDamageInEveryBlock) {
  const Case& c = param();
  EXPECT_EQ(c.damages.empty(), c.format == "NVFP4") << "only NVFP4 allows every block";
  for (const Damage& damage : c.damages)
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t b = 0; b < blocks; ++b) {
        auto bytes = c.good;
        apply(damage, block(bytes, o, b));
        const auto result = whole(bytes);
        ASSERT_EQ(result.fault, damage.fault) << damage.what << " at byte " << damage.at;
        ASSERT_EQ(result.out, o);
        ASSERT_EQ(result.block, b);
      }
}

TEST_P(Validate, TheFirstByRowsIsReportedInEitherOrder) {
  const Case& c = param();
  if (c.damages.empty()) {
    EXPECT_EQ(c.format, "NVFP4");
    return;
  }
  const Damage& damage = c.damages.front();
  const std::array<std::array<std::size_t, 4>, 4> pairs{
      {{2, 6, 3, 0}, {4, 1, 4, 5}, {0, 6, 10, 0}, {9, 3, 10, 3}}};
  for (const auto& [o, b, later_o, later_b] : pairs) {
    auto bytes = c.good;
    apply(damage, block(bytes, later_o, later_b));
    apply(damage, block(bytes, o, b));
    const auto result = whole(bytes);
    EXPECT_EQ(result.out, o);
    EXPECT_EQ(result.block, b);
    const auto message = support::error_of(ErrorCode::bad_block, [&] { result.require(); });
    EXPECT_TRUE(support::contains(message, "quern::validate"));
    EXPECT_TRUE(support::contains(message, c.format));
    EXPECT_TRUE(
        support::contains(message, "block (" + std::to_string(o) + ", " + std::to_string(b) + ")"));
    EXPECT_TRUE(support::contains(message, quern::to_string(damage.fault)));
  }
}

TEST_P(Validate, NarrowedViewsCountFromTheirOwnCorner) {
  const Case& c = param();
  for (const Damage& damage : c.damages) {
    auto bytes = c.good;
    apply(damage, block(bytes, 5, 3));
    apply(damage, block(bytes, 1, 1)); // outside the parts below
    const auto part = [&](std::size_t from, std::size_t rows, std::size_t first,
                          std::size_t count) {
      return c.validate(bytes, c.shape(out, blocks), from, rows, first, count);
    };
    const auto inside = part(2, 7, 2, 4);
    EXPECT_EQ(inside.fault, damage.fault) << damage.what;
    EXPECT_EQ(inside.out, 3u);
    EXPECT_EQ(inside.block, 1u);
    EXPECT_TRUE(part(2, 7, 4, 3).ok());
    EXPECT_TRUE(part(6, 5, 0, 7).ok());
    EXPECT_TRUE(part(2, 3, 0, 7).ok());
    EXPECT_FALSE(part(5, 1, 3, 1).ok());
    EXPECT_TRUE(part(5, 0, 0, 7).ok());
    EXPECT_TRUE(part(5, 2, 3, 0).ok());
  }
}

TEST_P(Validate, OddAddressesAndEmptyWeights) {
  const Case& c = param();
  std::vector<std::byte> shifted(c.good.size() + 1);
  std::copy(c.good.begin(), c.good.end(), shifted.begin() + 1);
  EXPECT_TRUE(whole(std::span<const std::byte>(shifted).subspan(1)).ok());
  EXPECT_TRUE(c.validate({}, c.shape(0, 3), 0, 0, 0, 3).ok());
  EXPECT_TRUE(c.validate({}, c.shape(3, 0), 0, 3, 0, 0).ok());
}

// Whatever the bytes: what is accepted decodes to numbers. The other way round, a scale that is no
// number need not show, as where the integers that it multiplies belong to other scales.
TEST_P(Validate, AgreesWithWhatBlocksDecodeTo) {
  const Case& c = param();
  const std::size_t count = 3000;
  const auto bytes = c.any(count);
  std::size_t refused = 0;
  for (std::size_t n = 0; n < count; ++n) {
    const std::byte* at = bytes.data() + n * c.bytes_per_block;
    const BlockFault fault = c.check(at);
    if (fault == BlockFault::reserved_code) {
      ASSERT_EQ(c.format, "MXFP4");
      ASSERT_EQ(*at, std::byte{255});
      continue;
    }
    if (fault == BlockFault::none)
      ASSERT_TRUE(c.finite(at)) << n;
    else
      ++refused;
  }
  EXPECT_EQ(refused == 0, c.format == "NVFP4");
}

// The greatest values that float holds are valid: 2^127 * 1.5 and 2^126 * 3.
TEST(ValidateCases, GreatScalesOfMXFP4AreValidWhereTheValuesAre) {
  for (const auto& [exponent, code, fault] :
       {std::tuple{254, 3, BlockFault::none}, std::tuple{254, 4, BlockFault::infinite},
        std::tuple{253, 5, BlockFault::none}, std::tuple{253, 6, BlockFault::infinite},
        std::tuple{252, 7, BlockFault::none}})
    for (const int sign : {0, 8})
      for (const std::size_t place :
           {std::size_t{0}, std::size_t{15}, std::size_t{16}, std::size_t{31}}) {
        std::array<std::byte, quern::MXFP4::bytes_per_block> block{};
        block[0] = static_cast<std::byte>(exponent);
        block[1 + place % 16] = static_cast<std::byte>((code | sign) << (place < 16 ? 0 : 4));
        EXPECT_EQ(quern::MXFP4::check(block), fault) << exponent << ' ' << code;
        EXPECT_EQ(std::isfinite(quern::MXFP4::decode(block)[place]), fault == BlockFault::none);
      }
}

// A NaN or an infinity in one block is in the values of that block and nowhere else.
TEST(ValidateCases, OneBadScaleOfQ8_0SpoilsItsBlockAlone) {
  const auto good = support::encoded_blocks<quern::Q8_0>(4 * 3);
  for (const int low : {0x00, 0x01})
    for (std::size_t bad = 0; bad < 12; ++bad) {
      auto bytes = good;
      bytes[bad * 34] = static_cast<std::byte>(low);
      bytes[bad * 34 + 1] = std::byte{0x7C};
      const PackedView<quern::Q8_0, RowMajor> view{std::span<const std::byte>(bytes), OutIn{4, 96}};
      const auto result = quern::validate(view);
      EXPECT_EQ(result.fault, low == 0 ? BlockFault::infinite : BlockFault::not_a_number);
      EXPECT_EQ(result.out, bad / 3);
      EXPECT_EQ(result.block, bad % 3);
      const auto values = view.to_floats();
      const auto right = support::decoded<quern::Q8_0>(good);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i / 32 == bad)
          ASSERT_FALSE(std::isfinite(values[i])) << i; // an infinity times zero is NaN
        else
          ASSERT_EQ(values[i], right[i]) << i;
      }
    }
}

// Exponent byte e and code c of MXFP4: {0, 1, 2, 3, 4, 6, 8, 12} * 2^(e - 128), negative from code
// 8 on.
TEST(ValidateCases, CornersOfMXFP4) {
  constexpr std::array<float, 8> doubled = {0, 1, 2, 3, 4, 6, 8, 12};
  Block<quern::MXFP4> block{};
  for (std::size_t j = 0; j < 16; ++j)
    block[1 + j] = static_cast<std::byte>(j | ((15 - j) << 4));
  for (int e = 0; e < 256; ++e) {
    block[0] = static_cast<std::byte>(e);
    const auto values = quern::MXFP4::decode(block);
    for (std::size_t j = 0; j < 16; ++j) {
      const float size = std::ldexp(doubled[j % 8], e - 128); // infinite from 2^128 on
      ASSERT_EQ(values[j], j < 8 ? size : -size) << e << " " << j;
      ASSERT_EQ(values[16 + j], values[15 - j]);
    }
    EXPECT_EQ(quern::MXFP4::check(block), e == 255   ? BlockFault::reserved_code
                                          : e >= 253 ? BlockFault::infinite
                                                     : BlockFault::none);
  }
  block[0] = std::byte{127};
  EXPECT_EQ(quern::MXFP4::decode(block)[2], 1.0f);
  block[0] = std::byte{0};
  EXPECT_EQ(quern::MXFP4::decode(block)[1], 0x1p-128f);
  EXPECT_EQ(quern::MXFP4::decode(block)[2], 0x1p-127f);
  block[0] = std::byte{255};
  EXPECT_EQ(quern::MXFP4::decode(block)[1], 0x1p127f);
}

TEST(ValidateCases, CornersOfNVFP4) {
  Block<quern::NVFP4> block{};
  for (std::size_t j = 4; j < 36; ++j)
    block[j] = std::byte{0x22}; // code 2 everywhere: 1
  const auto value_at = [&](int scale) {
    block[0] = static_cast<std::byte>(scale);
    EXPECT_EQ(quern::NVFP4::check(block), BlockFault::none) << scale;
    return quern::NVFP4::decode(block)[0];
  };
  EXPECT_EQ(value_at(0x38), 1.0f);
  EXPECT_EQ(value_at(0xB8), 1.0f); // the upper bit is ignored
  EXPECT_EQ(value_at(0x7E), 448.0f);
  EXPECT_EQ(value_at(0x7F), 0.0f); // NaN in E4M3
  EXPECT_EQ(value_at(0x00), 0.0f);
  EXPECT_EQ(value_at(0x01), 0x1p-9f);
  EXPECT_EQ(value_at(0x08), 0x1p-6f);
}

template <class O>
constexpr Validation at_compile_time() {
  std::array<std::byte, 6 * 18> bytes{};
  bytes[4 * 18 + 1] = std::byte{0x7C};
  return quern::validate(PackedView<quern::Q4_0, O>{bytes, OutIn{Out{2}, In{96}}});
}
static_assert(at_compile_time<RowMajor>().fault == BlockFault::infinite);
static_assert(at_compile_time<RowMajor>().out == 1 && at_compile_time<RowMajor>().block == 1);
static_assert(at_compile_time<InputBlockMajor>().out == 0 &&
              at_compile_time<InputBlockMajor>().block == 2);

} // namespace
