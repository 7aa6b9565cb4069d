#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/kernel_set.hpp>
#include <quern/load.hpp>
#include <quern/plan_model.hpp>
#include <quern/trace_sinks.hpp>

#include "support/errors.hpp"
#include "support/guarded.hpp"
#include "support/temp_folder.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using support::contains;
using support::error_of;

constexpr std::size_t no_budget = std::numeric_limits<std::size_t>::max();

/// A kernel that reads this format in this order.
KernelKey reads(std::string_view format, std::string_view order) {
  return {"matmul", "float", format, order, "Imagined"};
}

FormPolicy with_form(const WeightForm& form) {
  FormPolicy policy;
  policy.form = form;
  return policy;
}

/// A file of one [4, 3 blocks] matrix in format F, called "w".
template <BlockFormat F>
std::vector<std::byte> file_of() {
  const auto blocks = support::finite_blocks<F>(12);
  gguf::Writer writer;
  writer.add_weight("w", PackedView<F, RowMajor>(blocks, OutIn{4, 3 * F::block_size}));
  return writer.to_bytes();
}

/// Two Q4_0 matrices, a Q8_0 one, an F32 one, a norm of one row, a stack and integers.
std::vector<std::byte> model_file() {
  const auto q4 = support::finite_blocks<Q4_0>(32);
  const auto q8 = support::finite_blocks<Q8_0>(12);
  const auto f32 = support::finite_blocks<F32>(128);
  gguf::Writer writer;
  writer.add_tensor("a.weight", Q4_0::gguf_type, {96, 4}, std::span(q4).first(12 * 18));
  writer.add_tensor("b.weight", Q4_0::gguf_type, {256, 4}, std::span(q4).first(32 * 18));
  writer.add_tensor("c.weight", Q8_0::gguf_type, {96, 4}, q8);
  writer.add_tensor("d.weight", F32::gguf_type, {32, 4}, f32);
  writer.add_tensor("norm", F32::gguf_type, {128}, f32);
  writer.add_tensor("experts", Q4_0::gguf_type, {64, 2, 8}, std::span(q4).first(32 * 18));
  writer.add_tensor("ids", 26, {5}, std::span(f32).first(20));
  return writer.to_bytes();
}

const PlannedTensor& named(const ModelPlan& plan, std::string_view name) {
  return *std::ranges::find(plan.tensors(), name, &PlannedTensor::name);
}

// --- forms ---

TEST(WeightForm, TheDefaultIsTheFileWithoutACopy) {
  constexpr WeightForm form;
  static_assert(form.keeps_bytes());
  static_assert(form.encoding.kind() == Encoding::Kind::as_stored);
  static_assert(!form.encoding.gguf_type());
  EXPECT_EQ(to_string(form), "as stored, as stored, mapped");
}

TEST(WeightForm, NamesWhatItAsksFor) {
  static_assert(dequantize<float> == dequantize<F32>);
  static_assert(dequantize<F16> != dequantize<float>);
  static_assert(requantize<Q8_0>.gguf_type() == Q8_0::gguf_type);
  static_assert(requantize<F32> != dequantize<F32>);
  static_assert(!WeightForm{dequantize<float>}.keeps_bytes());
  static_assert(!WeightForm{{}, WeightOrder::kernel}.keeps_bytes());
  static_assert(WeightForm{{}, WeightOrder::row_major}.keeps_bytes());
  EXPECT_EQ(to_string(WeightForm{dequantize<BF16>, WeightOrder::kernel, WeightResidency::memory}),
            "dequantize<BF16>, kernel order, memory");
  EXPECT_EQ(to_string(WeightForm{requantize<Q8_0>, WeightOrder::input_block_major}),
            "requantize<Q8_0>, InputBlockMajor, mapped");
}

// --- the resolver ---

/// A format as a value, so that a test is compiled once and not for every format.
struct AnyFormat {
  std::string_view name;
  std::uint32_t type;
  std::size_t block_size;
  std::size_t bytes_per_block;
  std::vector<std::byte> (*file)();
};

void PrintTo(const AnyFormat& format, std::ostream* out) {
  *out << format.name;
}

std::vector<AnyFormat> all_formats() {
  std::vector<AnyFormat> all;
  boost::mp11::mp_for_each<Formats>([&](auto format) {
    using F = decltype(format);
    all.push_back({F::name, F::gguf_type, F::block_size, F::bytes_per_block, &file_of<F>});
  });
  return all;
}

class EachFormat : public testing::TestWithParam<AnyFormat> {
protected:
  const AnyFormat& format_ = GetParam();
  std::vector<std::byte> bytes_ = format_.file();
  gguf::File file_ = gguf::File::from_bytes(bytes_);
};

const auto formats = testing::ValuesIn(all_formats());
constexpr auto format_name_of = [](const testing::TestParamInfo<AnyFormat>& test) {
  return std::string(test.param.name);
};

class Resolver : public EachFormat {
protected:
  [[nodiscard]] ResolvedForm resolved(const KernelSet& kernels,
                                      WeightResidency residency = WeightResidency::mapped) const {
    return resolve_form(file_.tensors().at("w"), kernels, residency);
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, Resolver, formats, format_name_of);

TEST_P(Resolver, AFormatWithAKernelKeepsItsEncoding) {
  for (const std::string_view order : {RowMajor::name, InputBlockMajor::name}) {
    const auto result = resolved(KernelSet({reads(format_.name, order)}));
    EXPECT_EQ(result.form.encoding, Encoding{});
    EXPECT_TRUE(result.conversion.empty());
  }
}

TEST_P(Resolver, AFormatWithoutAKernelIsDecodedOnceAndOthersAreLeftAlone) {
  const auto result = resolved(KernelSet({}));
  if (format_.block_size == 1) {
    EXPECT_TRUE(result.form.keeps_bytes());
    EXPECT_TRUE(result.conversion.empty());
  } else {
    EXPECT_EQ(result.form.encoding, dequantize<float>);
    EXPECT_EQ(result.form.order, WeightOrder::as_stored);
    EXPECT_TRUE(contains(result.conversion, format_.name));
    EXPECT_TRUE(contains(result.conversion, "times the bytes"));
  }
}

TEST_P(Resolver, ResidencyIsTheCallersChoiceAlone) {
  for (const auto residency : {WeightResidency::mapped, WeightResidency::memory})
    for (const KernelSet& kernels :
         {KernelSet({}), KernelSet({reads(format_.name, RowMajor::name)})})
      EXPECT_EQ(resolved(kernels, residency).form.residency, residency);
}

TEST_P(Resolver, TheOrderIsThatOfTheBestKernel) {
  const auto order = [&](std::vector<KernelKey> keys) {
    FormPolicy policy = with_form({{}, WeightOrder::kernel});
    policy.kernels = KernelSet(std::move(keys));
    return plan_model(file_, no_budget, policy).tensors().front().order;
  };
  const auto other = reads("Other", InputBlockMajor::name);
  const auto rows = reads(format_.name, RowMajor::name);
  const auto columns = reads(format_.name, InputBlockMajor::name);
  EXPECT_EQ(order({rows, columns}), WeightOrder::row_major);
  EXPECT_EQ(order({columns, rows}), WeightOrder::input_block_major);
  EXPECT_EQ(order({other, rows}), WeightOrder::row_major);
  EXPECT_EQ(order({other, columns}), WeightOrder::input_block_major);
}

TEST_P(Resolver, ItsResultCanAlwaysBeLoaded) {
  // For this CPU, for one without kernels, and for ones with a kernel in either order.
  const auto expected =
      file_.visit_weight("w", [](const auto& weight) { return weight.to_floats(); });
  for (const KernelSet& kernels :
       {KernelSet::of_this_cpu(), KernelSet({}), KernelSet({reads(format_.name, RowMajor::name)}),
        KernelSet({reads(format_.name, InputBlockMajor::name)})}) {
    FormPolicy policy;
    policy.kernels = kernels;
    ModelScope scope;
    const auto plan = plan_model(file_, no_budget, policy);
    const auto model = load_model(plan, scope);
    EXPECT_EQ(scope.live_bytes(), plan.new_bytes());
    const auto floats = model.at("w").visit([](const auto& weight) { return weight.to_floats(); });
    EXPECT_EQ(support::bits_of(floats), support::bits_of(expected));
  }
}

TEST_P(Resolver, ThisCpuHasAKernelForEveryFormat) {
  const KernelSet kernels = KernelSet::of_this_cpu();
  ASSERT_NE(kernels.best(format_.name), nullptr);
  // Nothing is converted for an order that is no better.
  EXPECT_EQ(kernels.best(format_.name)->order, RowMajor::name);
  const KernelSet portable = KernelSet::of_this_cpu(at_most<isa::Scalar>());
  ASSERT_NE(portable.best(format_.name), nullptr);
  EXPECT_EQ(portable.best(format_.name)->isa, isa::Scalar::name);
}

TEST(KernelSetTest, ListsTheBestInstructionSetFirstAndNoneThatTheCpuLacks) {
  const KernelSet kernels = KernelSet::of_this_cpu();
  std::vector<std::string_view> order;
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Isas>>([&](auto tag) {
    using I = typename decltype(tag)::type;
    if (I::available()) order.push_back(I::name);
  });
  std::size_t last = 0;
  for (const KernelKey& key : kernels.keys()) {
    const auto place = static_cast<std::size_t>(std::ranges::find(order, key.isa) - order.begin());
    ASSERT_LT(place, order.size()) << to_string(key);
    EXPECT_GE(place, last) << to_string(key);
    last = place;
  }
}

// --- prices ---

class Price : public EachFormat {};
INSTANTIATE_TEST_SUITE_P(Formats, Price, formats, format_name_of);

TEST_P(Price, AsStoredCostsTheBytesOfTheFile) {
  const auto plan = plan_model(file_, no_budget, with_form({}));
  EXPECT_EQ(plan.bytes_before(), 12 * format_.bytes_per_block);
  EXPECT_EQ(plan.bytes(), 12 * format_.bytes_per_block);
  EXPECT_EQ(plan.new_bytes(), 0u);
  EXPECT_EQ(plan.conversions(), 0u);
}

TEST_P(Price, FloatsCostFourBytesEach) {
  const auto plan = plan_model(file_, no_budget, with_form({dequantize<float>}));
  EXPECT_EQ(plan.bytes(), 12 * format_.block_size * sizeof(float));
  EXPECT_EQ(plan.conversions(), format_.type == F32::gguf_type ? 0u : 1u);
}

TEST_P(Price, ARelayoutCostsTheSameBytesAnew) {
  const auto plan = plan_model(file_, no_budget, with_form({{}, WeightOrder::input_block_major}));
  EXPECT_EQ(plan.bytes(), plan.bytes_before());
  EXPECT_EQ(plan.new_bytes(), plan.bytes());
  EXPECT_EQ(plan.conversions(), 1u);
}

TEST(PlanModel, AddsUpAllTensors) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  const auto plan = plan_model(file, no_budget, with_form({dequantize<float>}));
  ASSERT_EQ(plan.tensors().size(), 7u);
  EXPECT_EQ(plan.bytes_before(), 12u * 18 + 32 * 18 + 12 * 34 + 512 + 512 + 32 * 18 + 20);
  // The norm and the integers stay as they are.
  EXPECT_EQ(plan.bytes(), 4u * (384 + 1024 + 384 + 128 + 128 + 1024 + 5));
  EXPECT_EQ(plan.conversions(), 4u);
  EXPECT_EQ(plan.new_bytes(), 4u * (384 + 1024 + 384 + 1024));
  EXPECT_TRUE(plan.fits());
  EXPECT_EQ(named(plan, "experts").slices, 8u);
  EXPECT_EQ(named(plan, "experts").shape, (OutIn{2, 64}));
  EXPECT_TRUE(
      std::ranges::all_of(plan.tensors(), [](const auto& t) { return t.downgrades.empty(); }));
}

TEST(PlanModel, APlanThatFitsAsStoredNeedNotFitAsFloats) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  const std::size_t stored = plan_model(file, 0).bytes();
  EXPECT_FALSE(plan_model(file, stored - 1, with_form({})).fits());
  EXPECT_TRUE(plan_model(file, stored, with_form({})).fits());
  EXPECT_FALSE(plan_model(file, stored, with_form({dequantize<float>})).fits());
}

TEST(PlanModel, SuggestsWhatToGiveUpLargestSavingFirst) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  const auto plan = plan_model(file, 4000, with_form({dequantize<float>}));
  const auto suggestions = plan.suggestions();
  ASSERT_EQ(suggestions.size(), 4u);
  EXPECT_EQ(suggestions[0].tensor, "b.weight");
  EXPECT_EQ(suggestions[0].saving, 4096u - 576);
  EXPECT_TRUE(contains(suggestions[0].text, "b.weight"));
  EXPECT_TRUE(contains(suggestions[0].text, "Q4_0 instead of F32"));
  EXPECT_TRUE(contains(suggestions[0].text, "3520 bytes"));
  EXPECT_EQ(suggestions[1].tensor, "experts");
  EXPECT_EQ(suggestions[3].tensor, "c.weight");
  EXPECT_EQ(suggestions[3].saving, 1536u - 408);
  EXPECT_TRUE(plan_model(file, 4000, with_form({})).suggestions().empty());
}

TEST(PlanModel, GivesUpConversionsUntilItFits) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  auto plan = plan_model(file, 6000, with_form({dequantize<float>}));
  EXPECT_FALSE(plan.fits());
  EXPECT_TRUE(plan.fit_to_budget());
  EXPECT_LE(plan.bytes(), 6000u);
  EXPECT_EQ(named(plan, "b.weight").type, Q4_0::gguf_type);
  EXPECT_EQ(named(plan, "a.weight").type, F32::gguf_type);
  ASSERT_EQ(named(plan, "b.weight").downgrades.size(), 1u);
  EXPECT_TRUE(contains(named(plan, "b.weight").downgrades[0], "budget of 6000"));
  EXPECT_TRUE(contains(named(plan, "b.weight").downgrades[0], "not F32"));

  auto hopeless = plan_model(file, 10, with_form({dequantize<float>}));
  EXPECT_FALSE(hopeless.fit_to_budget());
  EXPECT_EQ(hopeless.bytes(), hopeless.bytes_before());
  EXPECT_EQ(hopeless.new_bytes(), 0u);
}

TEST(PlanModel, GivesUpNoMoreThanItMustAndTheLargestFirst) {
  // Against the rule itself, for every budget at which something changes.
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  const auto plan = plan_model(file, no_budget, with_form({dequantize<float>}));
  const auto suggestions = plan.suggestions();
  std::size_t needed = plan.bytes();
  for (std::size_t given_up = 0; given_up <= suggestions.size(); ++given_up) {
    for (const std::size_t budget : {needed, needed - 1}) {
      auto fitted = plan_model(file, budget, with_form({dequantize<float>}));
      const std::size_t expected = std::min(given_up + (budget < needed), suggestions.size());
      EXPECT_EQ(fitted.fit_to_budget(), given_up + (budget < needed) <= suggestions.size());
      for (std::size_t i = 0; i < suggestions.size(); ++i)
        EXPECT_EQ(named(fitted, suggestions[i].tensor).converts(), i >= expected)
            << budget << " bytes, suggestion " << i;
    }
    if (given_up < suggestions.size()) needed -= suggestions[given_up].saving;
  }
}

TEST(PlanModel, AHundredThousandTensorsAreNoTrouble) {
  // Work that grew with the square of their number would take minutes.
  constexpr std::size_t count = 100'000;
  const auto blocks = support::finite_blocks<Q4_0>(2);
  gguf::Writer writer;
  for (std::size_t i = 0; i < count; ++i)
    writer.add_tensor("blk." + std::to_string(i) + ".weight", Q4_0::gguf_type, {32, 2}, blocks);
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);
  auto plan = plan_model(file, count * 100, with_form({dequantize<float>}));
  EXPECT_EQ(plan.suggestions().size(), count);
  EXPECT_TRUE(plan.fit_to_budget());
  // 256 bytes as floats, 36 as stored: 70910 have to stay.
  EXPECT_EQ(plan.conversions(), 29'090u);
  ModelScope scope;
  const auto model = load_model(plan, scope);
  EXPECT_EQ(scope.live_bytes(), 29'090u * 256);
  EXPECT_EQ(model.at("blk.99999.weight").plan().type, F32::gguf_type);
}

TEST(PlanModel, EmitsOneEvent) {
  const auto bytes = model_file();
  RingTrace ring;
  const auto plan =
      plan_model(gguf::File::from_bytes(bytes), 12'345, with_form({dequantize<float>}), ring);
  const auto events = ring.events();
  ASSERT_EQ(events.size(), 1u);
  const auto& event = std::get<ModelPlanned>(events[0].event);
  EXPECT_EQ(event.tensors, 7u);
  EXPECT_EQ(event.conversions, 4u);
  EXPECT_EQ(event.bytes_before, plan.bytes_before());
  EXPECT_EQ(event.bytes, plan.bytes());
  EXPECT_EQ(event.budget, 12'345u);
}

TEST(PlanModel, TheTableHasALineForEachConversionAndNoOthers) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  EXPECT_EQ(lines(to_string(plan_model(file, no_budget, with_form({})))), 1);
  const std::string table = to_string(plan_model(file, 100, with_form({dequantize<float>})));
  EXPECT_EQ(lines(table), 5);
  EXPECT_TRUE(contains(table, "too large"));
  EXPECT_TRUE(contains(table, "b.weight"));
  EXPECT_TRUE(contains(table, "Q4_0, 576 bytes -> F32, RowMajor, memory, 4096 bytes"));
}

// --- overrides, downgrades, strict ---

TEST(PlanModel, ATensorsOwnFormOutranksAllOthers) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  FormPolicy policy = with_form({dequantize<float>});
  policy.form_of = [](const gguf::Tensor& tensor) -> std::optional<WeightForm> {
    if (tensor.name == "a.weight") return WeightForm{requantize<Q8_0>};
    if (tensor.name == "b.weight") return WeightForm{};
    if (tensor.name == "norm") return WeightForm{dequantize<F16>};
    return std::nullopt;
  };
  const auto plan = plan_model(file, no_budget, policy);
  EXPECT_EQ(named(plan, "a.weight").type, Q8_0::gguf_type);
  EXPECT_EQ(named(plan, "b.weight").type, Q4_0::gguf_type);
  EXPECT_EQ(named(plan, "c.weight").type, F32::gguf_type);
  EXPECT_EQ(named(plan, "norm").type, F16::gguf_type);
  EXPECT_EQ(named(plan, "a.weight").bytes, 12u * 34);

  policy.form.reset(); // beside the resolver
  policy.kernels = KernelSet({});
  const auto beside = plan_model(file, no_budget, policy);
  EXPECT_EQ(named(beside, "a.weight").type, Q8_0::gguf_type);
  EXPECT_EQ(named(beside, "b.weight").type, Q4_0::gguf_type);
  EXPECT_EQ(named(beside, "c.weight").type, F32::gguf_type);
}

TEST(PlanModel, AFunctionThatAlwaysAnswersTheSameIsTheUniformForm) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  const WeightForm form{requantize<Q8_0>, WeightOrder::input_block_major};
  FormPolicy policy;
  policy.form_of = [&](const gguf::Tensor& tensor) -> std::optional<WeightForm> {
    if (tensor.extents[1] == 1) return WeightForm{};
    return form;
  };
  const auto by_function = plan_model(file, no_budget, policy);
  const auto uniform = plan_model(file, no_budget, with_form(form));
  ASSERT_EQ(by_function.tensors().size(), uniform.tensors().size());
  for (std::size_t i = 0; i < uniform.tensors().size(); ++i)
    EXPECT_EQ(to_string(by_function.tensors()[i]), to_string(uniform.tensors()[i]));
}

TEST(PlanModel, TheSameFileOnTwoMachinesGetsTwoForms) {
  const auto bytes = model_file();
  const auto file = gguf::File::from_bytes(bytes);
  FormPolicy canonical;
  canonical.kernels = KernelSet({reads("Q4_0", RowMajor::name), reads("Q8_0", RowMajor::name)});
  FormPolicy feeding;
  feeding.kernels = KernelSet({reads("Q4_0", InputBlockMajor::name)});
  const auto one = plan_model(file, no_budget, canonical);
  const auto two = plan_model(file, no_budget, feeding);
  EXPECT_EQ(one.conversions(), 0u);
  EXPECT_EQ(named(two, "a.weight").order, WeightOrder::input_block_major);
  EXPECT_EQ(named(two, "a.weight").type, Q4_0::gguf_type);
  EXPECT_EQ(named(two, "c.weight").type, F32::gguf_type);
  EXPECT_EQ(named(two, "c.weight").order, WeightOrder::row_major);
}

TEST(PlanModel, WhatCanNotBeDoneIsADowngradeWithItsReason) {
  const auto q4 = support::finite_blocks<Q4_0>(12);
  const auto numbers = support::finite_blocks<F32>(12);
  gguf::Writer writer;
  writer.add_tensor("narrow", Q4_0::gguf_type, {96, 4}, q4);
  writer.add_tensor("ids", 26, {4, 3}, numbers);
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);

  FormPolicy policy;
  policy.form_of = [](const gguf::Tensor&) { return WeightForm{requantize<TQ1_0>}; };
  const auto plan = plan_model(file, no_budget, policy);
  ASSERT_EQ(named(plan, "narrow").downgrades.size(), 1u);
  EXPECT_TRUE(contains(named(plan, "narrow").downgrades[0], "Q4_0, not TQ1_0"));
  EXPECT_TRUE(contains(named(plan, "narrow").downgrades[0], "96 values are not a multiple of 256"));
  EXPECT_TRUE(contains(named(plan, "narrow").downgrades[0], "remainder 96"));
  ASSERT_EQ(named(plan, "ids").downgrades.size(), 1u);
  EXPECT_TRUE(contains(named(plan, "ids").downgrades[0], "I32 is no weight format"));
  EXPECT_EQ(plan.conversions(), 0u);
  EXPECT_EQ(plan.new_bytes(), 0u);

  policy.form_of = [](const gguf::Tensor&) { return WeightForm{{}, WeightOrder::kernel}; };
  policy.kernels = KernelSet({});
  const auto unfed = plan_model(file, no_budget, policy);
  EXPECT_TRUE(contains(named(unfed, "narrow").downgrades.at(0), "no kernel reads Q4_0"));

  policy.form_of = [](const gguf::Tensor&) {
    return WeightForm{{}, WeightOrder::input_block_major};
  };
  EXPECT_TRUE(contains(named(plan_model(file, no_budget, policy), "ids").downgrades.at(0),
                       "I32 is no weight format"));
}

TEST(PlanModel, StrictRefusesAConversionThatNobodyAskedFor) {
  const auto bytes = file_of<Q4_0>();
  const auto file = gguf::File::from_bytes(bytes);
  FormPolicy policy;
  policy.kernels = KernelSet({});
  policy.strict = true;
  const std::string message =
      error_of(ErrorCode::refused, [&] { (void)plan_model(file, no_budget, policy); });
  EXPECT_TRUE(contains(message, "\"w\" (Q4_0)"));
  EXPECT_TRUE(contains(message, "no kernel reads Q4_0"));
  EXPECT_TRUE(contains(message, "7.1 times the bytes"));
  // Asked for, it is done.
  policy.form = WeightForm{dequantize<float>};
  EXPECT_EQ(plan_model(file, no_budget, policy).conversions(), 1u);
}

TEST(PlanModel, StrictNamesEightTensorsAndCountsTheOthers) {
  const auto blocks = support::finite_blocks<Q4_0>(2);
  const auto good = support::finite_blocks<Q8_0>(2);
  gguf::Writer writer;
  writer.add_tensor("good.weight", Q8_0::gguf_type, {32, 2}, good);
  for (int i = 0; i < 12; ++i)
    writer.add_tensor("bad." + std::to_string(i), Q4_0::gguf_type, {32, 2}, blocks);
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);
  FormPolicy policy;
  policy.kernels = KernelSet({reads("Q8_0", RowMajor::name)});
  policy.strict = true;
  const std::string message =
      error_of(ErrorCode::refused, [&] { (void)plan_model(file, no_budget, policy); });
  EXPECT_TRUE(contains(message, "12 tensors"));
  EXPECT_TRUE(contains(message, "and 4 more"));
  EXPECT_TRUE(contains(message, "bad.7"));
  EXPECT_FALSE(contains(message, "bad.8"));
  EXPECT_FALSE(contains(message, "good.weight"));
}

TEST(PlanModel, StrictTakesEveryFormatAsItIs) {
  gguf::Writer writer;
  std::vector<std::vector<std::byte>> data;
  data.reserve(format_count);
  boost::mp11::mp_for_each<Formats>([&](auto format) {
    using F = decltype(format);
    data.push_back(support::finite_blocks<F>(12));
    writer.add_weight(F::name, PackedView<F, RowMajor>(data.back(), OutIn{4, 3 * F::block_size}));
  });
  const auto bytes = writer.to_bytes();
  FormPolicy policy;
  policy.strict = true;
  const auto plan = plan_model(gguf::File::from_bytes(bytes), no_budget, policy);
  EXPECT_EQ(plan.tensors().size(), format_count);
  EXPECT_EQ(plan.conversions(), 0u);
}

TEST(PlanModel, AnUnknownTypeIsSkippedAndStrictNamesIt) {
  const auto numbers = support::finite_blocks<F32>(12);
  gguf::Writer writer;
  writer.add_tensor("known", F32::gguf_type, {4, 3}, numbers);
  writer.add_tensor("strange", F32::gguf_type, {4, 3}, numbers);
  auto bytes = writer.to_bytes();
  // The type id follows the name and the extents of the second tensor.
  const std::string name = "strange";
  const auto at = std::search(bytes.begin(), bytes.end(), name.begin(), name.end(),
                              [](std::byte b, char c) { return b == static_cast<std::byte>(c); });
  ASSERT_NE(at, bytes.end());
  at[static_cast<std::ptrdiff_t>(name.size()) + 4 + 16] = std::byte{99};

  EXPECT_TRUE(contains(
      error_of(ErrorCode::unknown_type, [&] { (void)gguf::File::from_bytes(bytes); }), "99"));
  const auto file = gguf::File::from_bytes(bytes, {.mode = gguf::Mode::lenient});
  const auto plan = plan_model(file, no_budget);
  EXPECT_TRUE(named(plan, "strange").skipped);
  EXPECT_TRUE(contains(named(plan, "strange").downgrades.at(0), "unknown type 99"));
  EXPECT_EQ(plan.bytes(), 48u);

  ModelScope scope;
  const auto model = load_model(plan, scope);
  EXPECT_TRUE(model.at("strange").bytes().empty());
  EXPECT_EQ(model.at("known").bytes().size(), 48u);
  (void)error_of(ErrorCode::wrong_format, [&] { (void)model.at("strange").view(); });
  (void)error_of(ErrorCode::unknown_type, [&] { (void)load(file, "strange", {}, scope); });

  FormPolicy policy;
  policy.strict = true;
  EXPECT_TRUE(
      contains(error_of(ErrorCode::refused, [&] { (void)plan_model(file, no_budget, policy); }),
               "unknown type 99"));
}

#if defined(SUPPORT_HAS_PAGES)

TEST(PlanModel, ReadsTheHeaderAlone) {
  const auto bytes = [] {
    const auto blocks = support::finite_blocks<Q4_0>(4096);
    gguf::Writer writer(4096);
    writer.add_tensor("a", Q4_0::gguf_type, {1024, 128}, blocks);
    writer.add_tensor("b", Q4_0::gguf_type, {1024, 128}, blocks);
    return writer.to_bytes();
  }();
  support::Guarded<std::byte> memory(bytes, support::Against::front);
  const auto file = gguf::File::from_bytes(memory.span());
  // From here on, touching a byte of the payload ends the test.
  memory.hide_all_pages();
  memory.show(0, static_cast<std::size_t>(file.data_position()));
  const auto narrow_bytes = file_of<Q4_0>();
  const auto narrow = gguf::File::from_bytes(narrow_bytes);
  FormPolicy strict;
  strict.strict = true;
  strict.kernels = KernelSet({});
  (void)error_of(ErrorCode::refused, [&] { (void)plan_model(file, 1, strict); });
  auto plan = plan_model(file, 1, with_form({dequantize<float>, WeightOrder::kernel}));
  EXPECT_EQ(plan.bytes(), 2u * 4 * 1024 * 128);
  EXPECT_FALSE(plan.fit_to_budget());
  ModelScope scope;
  // Loading can be strict too: with a plan that gave something up, or a form that can't be had.
  LoadOptions options;
  options.strict = true;
  EXPECT_TRUE(contains(
      error_of(ErrorCode::refused, [&] { (void)load_model(plan, scope, no_trace, options); }),
      "2 tensors would not be as asked: \"a\" (Q4_0): kept as stored"));
  const WeightForm wide{requantize<Q2_K>};
  const std::string refusal = error_of(
      ErrorCode::refused, [&] { (void)load(narrow, "w", wide, scope, no_trace, options); });
  EXPECT_TRUE(contains(refusal, "remainder 96"));
  EXPECT_EQ(scope.live_bytes(), 0u);
  EXPECT_EQ(load(narrow, "w", wide, scope).plan().downgrades.size(), 1u) << "else it is a report";
  // A form that keeps the bytes does not read them either.
  EXPECT_EQ(load(file, "b", {}, scope).bytes().size(), 4096u * 18);
  EXPECT_EQ((load<Q4_0, RowMajor>(file, "a", scope).data()), file.bytes("a").data());
}

TEST(PlanModel, TensorsBeyondTheLimitsOf32Bits) {
  const support::TempFolder folder;
  const auto check = [&](std::uint64_t in, std::uint64_t out, std::uint64_t bytes) {
    // A file with a hole for its data.
    std::vector<std::byte> header;
    {
      const auto two = support::finite_blocks<Q4_0>(2);
      gguf::Writer writer;
      writer.add_tensor("w", Q4_0::gguf_type, {32, 2}, two);
      header = writer.to_bytes();
      header.resize(header.size() - 64);
    }
    const auto put = [&](std::size_t at, std::uint64_t value) {
      for (std::size_t i = 0; i < 8; ++i)
        header[at + i] = static_cast<std::byte>(value >> (8 * i));
    };
    constexpr std::size_t extents = 24 + 8 + 1 + 4;
    put(extents, in);
    put(extents + 8, out);
    const auto path = folder / "large.gguf";
    {
      std::ofstream stream(path, std::ios::binary);
      stream.write(reinterpret_cast<const char*>(header.data()),
                   static_cast<std::streamsize>(header.size()));
    }
    std::filesystem::resize_file(path, header.size() + bytes);
    const auto file = gguf::File::map(path);
    const auto plan = plan_model(file, no_budget, with_form({}));
    EXPECT_EQ(plan.bytes(), bytes);
    EXPECT_EQ(plan.mapped_bytes(), bytes);
    EXPECT_EQ(plan.new_bytes(), 0u);
    EXPECT_EQ(plan_model(file, no_budget, with_form({dequantize<float>})).bytes(), 4 * in * out);
    ModelScope scope;
    const auto weight = load<Q4_0, RowMajor>(file, "w", scope);
    EXPECT_EQ(weight.bytes(), bytes);
    EXPECT_EQ(weight.get(out - 1, in - 1), 0.0f); // the hole
  };
  check(10752, 524288, std::uint64_t{524288} * (10752 / 32) * 18); // 3,170,893,824
  check(10752, 262144, std::uint64_t{262144} * (10752 / 32) * 18);
  check(256, 256, std::uint64_t{256} * 8 * 18);
  check(65536, 65536, std::uint64_t{65536} * 2048 * 18); // wraps to 0 elements in 32 bits
}

#endif

} // namespace
