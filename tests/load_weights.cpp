#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <quern/gguf/file.hpp>
#include <quern/gguf/split.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/kernels.hpp>
#include <quern/load.hpp>
#include <quern/matrix_view.hpp>
#include <quern/prepack.hpp>
#include <quern/quantize.hpp>
#include <quern/trace_sinks.hpp>

#include "support/counting_new.hpp"
#include "support/errors.hpp"
#include "support/temp_folder.hpp"
#include "support/thread_executor.hpp"
#include "support/typed.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using support::contains;
using support::error_of;

constexpr std::size_t no_budget = std::numeric_limits<std::size_t>::max();
constexpr std::size_t rows = 5;
constexpr std::size_t blocks = 3;

ModelPlan plan_all(const gguf::File& file, const WeightForm& form) {
  FormPolicy policy;
  policy.form = form;
  return plan_model(file, no_budget, policy);
}

std::vector<AdapterInserted> adapters(const RingTrace& ring) {
  std::vector<AdapterInserted> found;
  for (const TimedEvent& event : ring.events())
    if (const auto* adapter = std::get_if<AdapterInserted>(&event.event)) found.push_back(*adapter);
  return found;
}

std::vector<std::byte> copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

/// A format as a value, so that a test is compiled once and not for every format.
struct AnyFormat {
  std::string_view name;
  std::uint32_t type;
  std::size_t block_size;
  std::size_t bytes_per_block;
  std::vector<std::byte> (*finite_blocks)(std::size_t, std::uint32_t);
  std::vector<std::byte> (*encoded_blocks)(std::size_t, std::uint32_t);
  std::vector<float> (*decoded)(std::span<const std::byte>);
};

void PrintTo(const AnyFormat& format, std::ostream* out) {
  *out << format.name;
}

std::vector<AnyFormat> all_formats() {
  std::vector<AnyFormat> all;
  boost::mp11::mp_for_each<Formats>([&](auto format) {
    using F = decltype(format);
    all.push_back({F::name, F::gguf_type, F::block_size, F::bytes_per_block,
                   &support::finite_blocks<F>, &support::encoded_blocks<F>, &support::decoded<F>});
  });
  return all;
}

/// Blocks given row after row, moved to InputBlockMajor.
std::vector<std::byte> by_columns(std::span<const std::byte> row_major, std::size_t block_bytes,
                                  std::size_t out, std::size_t per_row) {
  std::vector<std::byte> moved(row_major.size());
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t b = 0; b < per_row; ++b)
      std::ranges::copy(row_major.subspan((o * per_row + b) * block_bytes, block_bytes),
                        moved.begin() + static_cast<std::ptrdiff_t>((b * out + o) * block_bytes));
  return moved;
}

std::vector<float> floats_of(const LoadedTensor& tensor) {
  return tensor.visit([](const auto& view) { return view.to_floats(); });
}
std::vector<std::uint32_t> float_bits_of(const LoadedTensor& tensor) {
  return support::bits_of(floats_of(tensor));
}
/// By the portable kernel: all of them for all formats would take minutes to compile, and that they
/// agree is tested elsewhere.
std::vector<float> product_of(std::span<const float> x, const LoadedTensor& tensor) {
  return tensor.visit([&]<class F, class O>(const PackedView<F, O>& view) {
    const std::size_t count = x.size() / view.in();
    std::vector<float> y(count * view.out());
    kernels::Matmul<float, F, O, isa::Scalar>::run(MatrixView<const float>{x, count, view.in()},
                                                   view, MatrixView<float>{y, count, view.out()});
    return y;
  });
}

/// A file with one matrix "w" of `out` rows, and its blocks.
struct OneWeight {
  explicit OneWeight(const AnyFormat& format, std::size_t out = rows, std::size_t per_row = blocks,
                     std::uint32_t alignment = 32)
      : stored(format.finite_blocks(out * per_row, 1)), shape{out, per_row * format.block_size} {
    gguf::Writer writer(alignment);
    writer.add_tensor("w", format.type, {shape.in, shape.out}, stored);
    bytes = writer.to_bytes();
  }
  std::vector<std::byte> stored;
  OutIn shape;
  std::vector<std::byte> bytes;
};

const AnyFormat q4_0 = all_formats().at(*find_format(Q4_0::gguf_type));

class LoadWeight : public testing::TestWithParam<AnyFormat> {
protected:
  const AnyFormat& format_ = GetParam();
  [[nodiscard]] std::vector<std::byte> moved(const OneWeight& weight) const {
    return by_columns(weight.stored, format_.bytes_per_block, weight.shape.out,
                      weight.shape.in / format_.block_size);
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, LoadWeight, testing::ValuesIn(all_formats()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(LoadWeight, AsStoredIsAViewOfTheFile) {
  const OneWeight weight(format_);
  const auto file = gguf::File::from_bytes(weight.bytes);
  RingTrace ring;
  ModelScope scope(ring);
  const auto loaded = load(file, "w", {}, scope, ring);
  EXPECT_EQ(loaded.bytes().data(), file.bytes("w").data());
  EXPECT_EQ(loaded.bytes().size(), weight.stored.size());
  EXPECT_EQ(scope.live_bytes(), 0u);
  EXPECT_TRUE(adapters(ring).empty());
}

TEST_P(LoadWeight, IntoMemoryIsTheSameBytesAndNoConversion) {
  const OneWeight weight(format_);
  const auto file = gguf::File::from_bytes(weight.bytes);
  RingTrace ring;
  ModelScope scope(ring);
  const auto loaded =
      load(file, "w", {{}, WeightOrder::as_stored, WeightResidency::memory}, scope, ring);
  EXPECT_NE(loaded.bytes().data(), file.bytes("w").data());
  EXPECT_EQ(copy(loaded.bytes()), weight.stored);
  EXPECT_EQ(loaded.residency(), WeightResidency::memory);
  EXPECT_EQ(scope.live_bytes(), weight.stored.size());
  EXPECT_TRUE(adapters(ring).empty());
}

TEST_P(LoadWeight, KernelOrderMovesEachBlockToItsPlace) {
  const OneWeight weight(format_);
  const auto file = gguf::File::from_bytes(weight.bytes);
  const auto expected = moved(weight);
  ASSERT_NE(expected, weight.stored);
  RingTrace ring;
  ModelScope scope(ring);
  const auto loaded = load(file, "w", {{}, WeightOrder::input_block_major}, scope, ring);
  EXPECT_EQ(copy(loaded.bytes()), expected);
  EXPECT_EQ(loaded.shape(), weight.shape);
  EXPECT_EQ(loaded.order(), WeightOrder::input_block_major);
  EXPECT_EQ(float_bits_of(loaded), support::bits_of(format_.decoded(weight.stored)));

  const auto events = adapters(ring);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "prepack");
  EXPECT_EQ(events[0].from, RowMajor::name);
  EXPECT_EQ(events[0].to, InputBlockMajor::name);
  EXPECT_EQ(events[0].bytes_before, weight.stored.size());
  EXPECT_EQ(events[0].bytes, weight.stored.size());
  EXPECT_EQ(events[0].scope, "model");
  EXPECT_EQ(events[0].target, "w");
  EXPECT_EQ(scope.live_bytes(), weight.stored.size());
}

TEST_P(LoadWeight, BothOrdersGiveTheSameProduct) {
  const OneWeight weight(format_, 13, 3);
  const auto file = gguf::File::from_bytes(weight.bytes);
  ModelScope scope;
  const auto x = support::random_values(2 * weight.shape.in);
  const auto product = [&](const WeightForm& form) {
    return support::bits_of(product_of(x, load(file, "w", form, scope)));
  };
  EXPECT_EQ(product({}), product({{}, WeightOrder::input_block_major}));
  EXPECT_EQ(product({}), product({{}, WeightOrder::kernel, WeightResidency::memory}));
}

TEST_P(LoadWeight, DequantizedValuesAreThoseOfTheDecoder) {
  const OneWeight weight(format_);
  const auto file = gguf::File::from_bytes(weight.bytes);
  const auto expected = support::bits_of(format_.decoded(weight.stored));
  for (const WeightOrder order : {WeightOrder::as_stored, WeightOrder::input_block_major}) {
    RingTrace ring;
    ModelScope scope(ring);
    const auto loaded = load(file, "w", {dequantize<float>, order}, scope, ring);
    EXPECT_EQ(loaded.plan().type, F32::gguf_type);
    EXPECT_EQ(loaded.bytes().size(), 4 * expected.size());
    EXPECT_EQ(float_bits_of(loaded), expected);
    if (format_.type == F32::gguf_type) continue; // nothing is converted then
    const auto events = adapters(ring);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind,
              order == WeightOrder::as_stored ? "dequantize" : "dequantize+prepack");
    EXPECT_EQ(events[0].from, format_.name);
    EXPECT_EQ(events[0].to, "F32");
    EXPECT_EQ(events[0].bytes_before, weight.stored.size());
    EXPECT_EQ(events[0].bytes, 4 * expected.size());
    EXPECT_EQ(events[0].target, "w");
    EXPECT_EQ(scope.live_bytes(), 4 * expected.size());
  }
}

TEST_P(LoadWeight, RequantizingIsDecodingAndQuantizing) {
  const OutIn shape{rows, 1024};
  const auto stored = format_.encoded_blocks(shape.out * shape.in / format_.block_size, 1);
  gguf::Writer writer;
  writer.add_tensor("w", format_.type, {shape.in, shape.out}, stored);
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);
  const auto expected = quantize<Q8_0>(format_.decoded(stored), shape);
  for (const WeightOrder order : {WeightOrder::as_stored, WeightOrder::input_block_major}) {
    RingTrace ring;
    ModelScope scope(ring);
    const auto loaded = load(file, "w", {requantize<Q8_0>, order}, scope, ring);
    const bool same_order = order == WeightOrder::as_stored;
    EXPECT_EQ(copy(loaded.bytes()),
              same_order ? copy(expected.bytes()) : by_columns(expected.bytes(), 34, rows, 32));
    if (format_.type == Q8_0::gguf_type) continue;
    ASSERT_EQ(adapters(ring).size(), 1u);
    EXPECT_EQ(adapters(ring)[0].kind, same_order ? "requantize" : "requantize+prepack");
    EXPECT_EQ(adapters(ring)[0].bytes, expected.bytes().size());
  }
}

TEST_P(LoadWeight, PiecesAndThreadsChangeNothing) {
  const OneWeight weight(format_, 37, 3);
  const auto file = gguf::File::from_bytes(weight.bytes);
  const auto floats = support::bits_of(format_.decoded(weight.stored));
  for (const std::size_t piece :
       {std::size_t{0}, std::size_t{1}, 3 * format_.bytes_per_block * 4 + 1, std::size_t{1} << 30})
    for (const std::size_t threads : {1u, 4u}) {
      support::ThreadExecutor executor(threads);
      const LoadOptions options{.executor = executor, .progress = {}, .piece_bytes = piece};
      ModelScope scope;
      const auto loaded = [&](const WeightForm& form) {
        return load(file, "w", form, scope, no_trace, options);
      };
      EXPECT_EQ(copy(loaded({{}, WeightOrder::input_block_major}).bytes()), moved(weight));
      EXPECT_EQ(copy(loaded({{}, WeightOrder::row_major, WeightResidency::memory}).bytes()),
                weight.stored);
      EXPECT_EQ(float_bits_of(loaded({dequantize<float>, WeightOrder::input_block_major})), floats);
    }
}

TEST_P(LoadWeight, PiecesOfALargeWeightMeetInTheSamePlaces) {
  // So large that it is stored around the caches. The columns of the first weight start and end
  // within cache lines, which neighbouring pieces then share; those of the second do not.
  constexpr std::size_t bytes = std::size_t{9} << 19;
  for (const std::size_t out : {1021u, 1024u}) {
    const OneWeight weight(format_, out, bytes / out / format_.bytes_per_block + 1);
    const auto file = gguf::File::from_bytes(weight.bytes);
    const auto expected = moved(weight);
    for (const std::size_t piece : {std::size_t{300'001}, std::size_t{1} << 20, 2 * bytes}) {
      support::ThreadExecutor executor(4);
      ModelScope scope;
      const auto loaded = load(file, "w", {{}, WeightOrder::input_block_major}, scope, no_trace,
                               {.executor = executor, .progress = {}, .piece_bytes = piece});
      EXPECT_TRUE(std::ranges::equal(loaded.bytes(), expected)) << out << ' ' << piece;
    }
  }
}

TEST_P(LoadWeight, EveryMatrixOfAStackIsRelaidByItself) {
  const auto stored = format_.finite_blocks(6 * rows * blocks, 1);
  gguf::Writer writer;
  writer.add_tensor("experts", format_.type, {blocks * format_.block_size, rows, 3, 2}, stored);
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);
  ModelScope scope;
  const auto loaded = load(file, "experts", {{}, WeightOrder::input_block_major}, scope, no_trace,
                           {.executor = {}, .progress = {}, .piece_bytes = 100});
  ASSERT_EQ(loaded.slices(), 6u);
  const std::size_t size = rows * blocks * format_.bytes_per_block;
  for (std::size_t slice = 0; slice < 6; ++slice) {
    const auto part = std::span(stored).subspan(slice * size, size);
    EXPECT_EQ(copy(loaded.bytes().subspan(slice * size, size)),
              by_columns(part, format_.bytes_per_block, rows, blocks));
    EXPECT_EQ(shape(loaded.view(slice)), (OutIn{rows, blocks * format_.block_size}));
  }
  EXPECT_TRUE(contains(error_of(ErrorCode::not_a_matrix, [&] { (void)loaded.view(); }), "6"));
  EXPECT_TRUE(
      contains(error_of(ErrorCode::out_of_range, [&] { (void)loaded.view(6); }), "slice 6"));
}

TEST_P(LoadWeight, AnyAddressAndEverySourceGivesTheSame) {
  const support::TempFolder folder;
  const OneWeight weight(format_, rows, blocks, 1); // so the data may start anywhere
  {
    std::ofstream stream(folder / "w.gguf", std::ios::binary);
    stream.write(reinterpret_cast<const char*>(weight.bytes.data()),
                 static_cast<std::streamsize>(weight.bytes.size()));
  }
  const auto mapped = gguf::File::map(folder / "w.gguf");
  const auto read = gguf::File::read(folder / "w.gguf");
  const auto borrowed = gguf::File::from_bytes(weight.bytes);
  for (const gguf::File* const file : {&mapped, &read, &borrowed}) {
    ModelScope scope;
    EXPECT_EQ(copy(load(*file, "w", {{}, WeightOrder::input_block_major}, scope).bytes()),
              moved(weight));
    const auto as_is = load(*file, "w", {}, scope);
    EXPECT_EQ(copy(as_is.bytes()), weight.stored);
    // In memory when the file is: there is nothing to map then.
    EXPECT_EQ(as_is.residency(), file->residency() == gguf::Residency::mapped
                                     ? WeightResidency::mapped
                                     : WeightResidency::memory);
    EXPECT_EQ(scope.live_bytes(), weight.stored.size());
  }
}

TEST_P(LoadWeight, OneRowOrOneColumnOfBlocksNeedsNoCopy) {
  for (const auto& [out, per_row] : {std::pair<std::size_t, std::size_t>{1, 3}, {4, 1}}) {
    const OneWeight weight(format_, out, per_row);
    const auto file = gguf::File::from_bytes(weight.bytes);
    RingTrace ring;
    ModelScope scope(ring);
    const auto loaded = load(file, "w", {{}, WeightOrder::input_block_major}, scope, ring);
    EXPECT_EQ(loaded.bytes().data(), file.bytes("w").data());
    EXPECT_EQ(scope.live_bytes(), 0u);
    EXPECT_TRUE(adapters(ring).empty());
    // The order is part of the type all the same.
    EXPECT_EQ(order_name(loaded.view()), InputBlockMajor::name);
  }
}

template <class F>
class LoadTyped : public testing::Test {};
TYPED_TEST_SUITE(LoadTyped, support::EachFormat, support::Names);

TYPED_TEST(LoadTyped, AViewOfTheFileOrACopyInTheOtherOrder) {
  using F = TypeParam;
  const auto stored = support::finite_blocks<F>(rows * blocks);
  const PackedView<F, RowMajor> weight(stored, OutIn{rows, blocks * F::block_size});
  gguf::Writer writer;
  writer.add_weight("w", weight);
  const auto bytes = writer.to_bytes();
  const gguf::File file = gguf::File::from_bytes(bytes);
  ModelScope scope;
  EXPECT_EQ((load<F, RowMajor>(file, "w", scope).data()), file.bytes("w").data());
  EXPECT_EQ(scope.live_bytes(), 0u);
  const auto packed = load<F, InputBlockMajor>(file, "w", scope);
  EXPECT_EQ(scope.live_bytes(), stored.size());
  const auto expected = prepack<InputBlockMajor>(weight, scope);
  EXPECT_EQ(copy({packed.data(), packed.bytes()}), copy({expected.data(), expected.bytes()}));
  EXPECT_EQ(packed.shape(), weight.shape());
}

// --- whole models ---

/// A model of every format, 9 x 3 blocks each, with a norm and integers.
struct EveryFormat {
  EveryFormat() {
    data.reserve(format_count + 2);
    gguf::Writer writer;
    boost::mp11::mp_for_each<Formats>([&](auto format) {
      using F = decltype(format);
      data.push_back(support::encoded_blocks<F>(27));
      writer.add_weight(F::name, PackedView<F, RowMajor>(data.back(), OutIn{9, 3 * F::block_size}));
    });
    data.push_back(support::finite_blocks<F32>(96));
    writer.add_tensor("norm", F32::gguf_type, {96}, data.back());
    writer.add_tensor("ids", 26, {96}, data.back());
    bytes = writer.to_bytes();
  }
  std::vector<std::vector<std::byte>> data;
  std::vector<std::byte> bytes;
};

TEST(LoadModel, ScopeBytesAreThoseOfThePlan) {
  const EveryFormat model;
  const auto file = gguf::File::from_bytes(model.bytes);
  for (const WeightForm& form :
       {WeightForm{}, WeightForm{{}, WeightOrder::input_block_major},
        WeightForm{{}, WeightOrder::as_stored, WeightResidency::memory},
        WeightForm{dequantize<float>, WeightOrder::input_block_major, WeightResidency::memory}}) {
    CountingTrace counts;
    {
      ModelScope scope(counts);
      const auto plan = plan_all(file, form);
      const auto loaded = load_model(plan, scope, counts);
      EXPECT_EQ(scope.live_bytes(), plan.new_bytes()) << to_string(form);
      std::size_t converted = 0;
      for (const LoadedTensor& tensor : loaded.tensors()) {
        EXPECT_EQ(tensor.bytes().size(), tensor.plan().bytes);
        if (!tensor.plan().keeps_bytes()) ++converted;
      }
      EXPECT_EQ(counts.count<AdapterInserted>(), converted);
      EXPECT_EQ(plan.conversions(), converted);
      EXPECT_EQ(loaded.at("norm").plan().type, F32::gguf_type);
      EXPECT_TRUE(loaded.at("ids").plan().keeps_bytes());
    }
    EXPECT_EQ(counts.allocated_bytes(), counts.freed_bytes());
  }
}

TEST(LoadModel, FindsTensorsByNameAlsoAfterAMove) {
  const EveryFormat model;
  const auto file = gguf::File::from_bytes(model.bytes);
  ModelScope scope;
  auto first = load_model(plan_all(file, {}), scope);
  const LoadedModel loaded = std::move(first);
  EXPECT_EQ(loaded.tensors().size(), format_count + 2);
  for (const LoadedTensor& tensor : loaded.tensors())
    EXPECT_EQ(loaded.find(tensor.name()), &tensor);
  EXPECT_EQ(loaded.find("no such"), nullptr);
  EXPECT_TRUE(contains(error_of(ErrorCode::no_such_tensor, [&] { (void)loaded.at("no such"); }),
                       "\"no such\""));
}

TEST(LoadModel, OutlivesTheFileWhenAllIsInMemory) {
  const EveryFormat model;
  ModelScope scope;
  std::optional<LoadedModel> loaded;
  {
    auto bytes = model.bytes;
    const auto file = gguf::File::from_bytes(bytes);
    loaded =
        load_model(plan_all(file, {{}, WeightOrder::row_major, WeightResidency::memory}), scope);
    std::ranges::fill(bytes, std::byte{0xEE});
  }
  EXPECT_EQ(copy(loaded->at("Q4_0").bytes()), model.data[2]);
  EXPECT_EQ(loaded->at("Q4_0").name(), "Q4_0");
}

TEST(LoadModel, TheReportNamesEveryConversionAndDowngrade) {
  const EveryFormat model;
  const auto file = gguf::File::from_bytes(model.bytes);
  ModelScope scope;
  EXPECT_TRUE(report(load_model(plan_all(file, {}), scope)).empty());
  const std::string text =
      report(load_model(plan_all(file, {requantize<TQ1_0>, WeightOrder::as_stored}), scope));
  EXPECT_TRUE(contains(text, "\"Q8_0\": Q8_0, 918 bytes -> Q8_0, RowMajor"));
  EXPECT_TRUE(contains(text, "rows of 96 values are not a multiple of 256"));
  EXPECT_TRUE(
      contains(text, "\"TQ2_0\": TQ2_0, 1782 bytes -> TQ1_0, RowMajor, memory, 1458 bytes"));
  EXPECT_FALSE(contains(text, "norm"));
  EXPECT_FALSE(contains(text, "\"TQ1_0\""));
}

TEST(LoadModel, EmitsAPhaseAroundTheEvents) {
  const OneWeight weight(q4_0);
  const auto file = gguf::File::from_bytes(weight.bytes);
  RingTrace ring;
  ModelScope scope(ring);
  const auto plan = plan_all(file, {{}, WeightOrder::input_block_major});
  (void)load_model(plan, scope, ring);
  const auto events = ring.events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(std::get<PhaseBegin>(events[0].event).name, "load");
  EXPECT_EQ(std::get<Allocation>(events[1].event).bytes, weight.stored.size());
  EXPECT_TRUE(std::holds_alternative<AdapterInserted>(events[2].event));
  EXPECT_EQ(std::get<PhaseEnd>(events[3].event).name, "load");
}

TEST(LoadModel, ASplitSetIsOneModel) {
  const support::TempFolder folder;
  const auto stored = support::finite_blocks<Q4_0>(30);
  for (std::uint16_t number = 0; number < 2; ++number) {
    gguf::Writer writer;
    writer.add("split.no", number);
    writer.add("split.count", std::uint16_t{2});
    writer.add("split.tensors.count", std::int32_t{2});
    writer.add_tensor("w" + std::to_string(number), Q4_0::gguf_type, {96, 5},
                      std::span(stored).subspan(number * 15u * 18u, 15 * 18));
    writer.write(folder / ("m-0000" + std::to_string(number + 1) + "-of-00002.gguf"));
  }
  const auto files = gguf::SplitSet::map(folder / "m-00001-of-00002.gguf");
  FormPolicy policy;
  policy.form = WeightForm{{}, WeightOrder::input_block_major};
  const auto plan = plan_model(files, no_budget, policy);
  EXPECT_EQ(plan.bytes(), stored.size());
  ModelScope scope;
  const auto model = load_model(plan, scope);
  for (const std::size_t number : {0u, 1u}) {
    const auto part = std::span(stored).subspan(number * 15 * 18, 15 * 18);
    EXPECT_EQ(copy(model.at("w" + std::to_string(number)).bytes()), (by_columns(part, 18, 5, 3)));
  }
}

TEST(LoadModel, ProgressGoesUpToTheSum) {
  const EveryFormat model;
  const auto file = gguf::File::from_bytes(model.bytes);
  const auto plan = plan_all(file, {{}, WeightOrder::input_block_major, WeightResidency::memory});
  for (const std::size_t threads : {1u, 3u}) {
    support::ThreadExecutor executor(threads);
    std::vector<std::size_t> seen;
    std::size_t sum = 0;
    LoadOptions options;
    options.executor = executor;
    options.piece_bytes = 300;
    options.progress = [&](std::size_t done, std::size_t total) {
      seen.push_back(done);
      sum = total;
    };
    ModelScope scope;
    (void)load_model(plan, scope, no_trace, options);
    EXPECT_TRUE(std::ranges::is_sorted(seen, std::ranges::less_equal{}));
    EXPECT_EQ(seen.back(), sum);
    EXPECT_EQ(sum, plan.bytes_before());
    EXPECT_GT(seen.size(), plan.tensors().size());
  }
}

// --- failures ---

TEST(LoadFailure, AnExceptionFromProgressStopsAndGivesEverythingBack) {
  const EveryFormat model;
  const auto file = gguf::File::from_bytes(model.bytes);
  const auto plan = plan_all(file, {{}, WeightOrder::input_block_major, WeightResidency::memory});
  for (const std::size_t threads : {1u, 3u}) {
    support::ThreadExecutor executor(threads);
    CountingTrace counts;
    ModelScope scope(counts);
    int calls = 0;
    LoadOptions options;
    options.executor = executor;
    options.piece_bytes = 1;
    options.progress = [&](std::size_t, std::size_t) {
      if (++calls == 5) throw std::runtime_error("enough");
    };
    try {
      (void)load_model(plan, scope, counts, options);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "enough");
    }
    EXPECT_EQ(scope.live_bytes(), 0u);
    EXPECT_EQ(counts.count<AdapterInserted>(), 0u);
    EXPECT_EQ(counts.count<PhaseEnd>(), 1u);
    EXPECT_LE(calls, 5 + static_cast<int>(threads));
  }
}

TEST(LoadFailure, AValueThatCanNotBeEncodedIsNamedWithItsPlace) {
  auto values = support::random_values(4 * 64);
  values[2 * 64 + 37] = std::numeric_limits<float>::quiet_NaN();
  gguf::Writer writer;
  const auto bytes_of_values = std::as_bytes(std::span(values));
  writer.add_tensor("blk.0.w", F32::gguf_type, {64, 4}, bytes_of_values);
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);
  ModelScope scope;
  const std::string message = error_of(
      ErrorCode::not_a_number, [&] { (void)load(file, "blk.0.w", {requantize<Q8_0>}, scope); });
  EXPECT_TRUE(contains(message, "\"blk.0.w\""));
  EXPECT_TRUE(contains(message, "row 2, column 37"));
  EXPECT_EQ(scope.live_bytes(), 0u);
}

TEST(LoadFailure, WithoutMemoryNothingIsLeftBehind) {
  const EveryFormat model;
  const auto file = gguf::File::from_bytes(model.bytes);
  const auto plan = plan_all(file, {dequantize<float>, WeightOrder::input_block_major});
  int failures = 0;
  for (long nth = 0; nth < 10'000; ++nth) {
    ModelScope scope;
    try {
      const support::FailingAllocation failing(nth);
      (void)load_model(plan, scope);
      break;
    } catch (const std::bad_alloc&) {
      ++failures;
      ASSERT_EQ(scope.live_bytes(), 0u);
    }
  }
  EXPECT_GT(failures, static_cast<int>(format_count));
}

TEST(LoadFailure, AFileThatBecameShorterIsAnErrorAndNoSignal) {
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  const OneWeight weight(q4_0);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(weight.bytes.data()),
             static_cast<std::streamsize>(weight.bytes.size()));
  const auto file = gguf::File::map(path);
  if (!file.reader()) GTEST_SKIP() << "files are not mapped here";
  ModelScope scope;
  for (const WeightForm& form :
       {WeightForm{{}, WeightOrder::as_stored, WeightResidency::memory},
        WeightForm{{}, WeightOrder::input_block_major}, WeightForm{dequantize<float>}}) {
    std::filesystem::resize_file(path, weight.bytes.size());
    const auto plan = plan_all(file, form);
    (void)load_model(plan, scope);
    const std::size_t live = scope.live_bytes();
    std::filesystem::resize_file(path, weight.bytes.size() - 40); // the last block is gone
    const std::string message =
        error_of(ErrorCode::file_read, [&] { (void)load_model(plan, scope); });
    EXPECT_TRUE(contains(message, "\"w\"")) << message;
    EXPECT_EQ(scope.live_bytes(), live);
  }
}

TEST(LoadFailure, AStepScopeIsRefused) {
  const OneWeight weight(q4_0);
  const auto file = gguf::File::from_bytes(weight.bytes);
  ForwardScope forward(1 << 16);
  Scope& scope = forward;
  for (const WeightForm& form : {WeightForm{}, WeightForm{{}, WeightOrder::input_block_major}})
    EXPECT_TRUE(
        contains(error_of(ErrorCode::scope_kind, [&] { (void)load(file, "w", form, scope); }),
                 "ModelScope"));
  EXPECT_EQ(forward.live_bytes(), 0u);
}

template <class S>
concept LoadsInto = requires(const gguf::File& file, const ModelPlan& plan, S& scope) {
  load(file, "w", WeightForm{}, scope);
  load<Q4_0, InputBlockMajor>(file, "w", scope);
  load_model(plan, scope);
};
static_assert(LoadsInto<ModelScope> && LoadsInto<Scope>);
static_assert(!LoadsInto<ForwardScope>);

TEST(LoadFailure, AnotherFormatThanTheFilesIsRefused) {
  const OneWeight weight(q4_0);
  const auto file = gguf::File::from_bytes(weight.bytes);
  ModelScope scope;
  (void)error_of(ErrorCode::wrong_format,
                 [&] { (void)load<Q8_0, InputBlockMajor>(file, "w", scope); });
  (void)error_of(ErrorCode::no_such_tensor, [&] { (void)load(file, "v", {}, scope); });
  const auto loaded = load(file, "w", {{}, WeightOrder::input_block_major}, scope);
  EXPECT_TRUE(
      contains(error_of(ErrorCode::wrong_format, [&] { (void)loaded.as<Q4_0, RowMajor>(); }),
               "Q4_0 in InputBlockMajor, not Q4_0 in RowMajor"));
  (void)error_of(ErrorCode::wrong_format, [&] { (void)loaded.as<Q4_1, InputBlockMajor>(); });
  EXPECT_EQ(order_name(loaded.view()), InputBlockMajor::name);
}

TEST(LoadModel, EmptyTensorsAreFine) {
  gguf::Writer writer;
  writer.add_tensor("none", Q4_0::gguf_type, {32, 0}, std::span<const std::byte>{});
  writer.add_tensor("no columns", F32::gguf_type, {0, 3}, std::span<const std::byte>{});
  const auto bytes = writer.to_bytes();
  const auto file = gguf::File::from_bytes(bytes);
  for (const WeightForm& form :
       {WeightForm{}, WeightForm{requantize<Q8_0>, WeightOrder::input_block_major},
        WeightForm{{}, WeightOrder::as_stored, WeightResidency::memory}}) {
    ModelScope scope;
    const auto model = load_model(plan_all(file, form), scope);
    EXPECT_EQ(model.at("none").shape(), (OutIn{0, 32}));
    EXPECT_TRUE(floats_of(model.at("none")).empty());
    EXPECT_TRUE(floats_of(model.at("no columns")).empty());
    EXPECT_EQ(scope.live_bytes(), 0u);
  }
}

// --- a real file ---

TEST(LoadModel, ProductsOfRealLayersAreTheSameInEveryForm) {
  const std::filesystem::path path =
      std::filesystem::path(QUERN_SHARED_DIR) / "real" / "dense_layers.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto file = gguf::File::map(path);
  ModelScope scope;
  const auto stored = load_model(plan_all(file, {}), scope);
  const auto packed = load_model(plan_all(file, {{}, WeightOrder::input_block_major}), scope);
  const auto dense = load_model(plan_all(file, {dequantize<float>}), scope);
  std::size_t compared = 0;
  for (const std::string layer : {"mycroft", "weather"}) {
    const auto x = floats_of(stored.at(layer + ".input"));
    for (const LoadedTensor& tensor : stored.tensors()) {
      if (!tensor.name().starts_with(layer + ".weight.") || !find_format(tensor.plan().type))
        continue;
      const auto expected =
          floats_of(stored.at(layer + ".output" + tensor.name().substr(layer.size() + 7)));
      const auto product = [&](const LoadedModel& model) {
        return product_of(x, model.at(tensor.name()));
      };
      const auto y = product(stored);
      EXPECT_EQ(support::bits_of(product(packed)), support::bits_of(y)) << tensor.name();
      const auto from_floats = product(dense);
      float most = 0;
      for (const float value : expected)
        most = std::max(most, std::abs(value));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(y[i], expected[i], 1e-5f * most) << tensor.name() << " at " << i;
        ASSERT_NEAR(from_floats[i], expected[i], 1e-5f * most) << tensor.name() << " at " << i;
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, format_count);
}

} // namespace
