#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <quern/formats/f32.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/gather.hpp>
#include <quern/kernel_set.hpp>
#include <quern/matmul_plan.hpp>
#include <quern/strided_view.hpp>
#include <quern/trace_sinks.hpp>

#include "support/counting_new.hpp"
#include "support/errors.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using In8 = Int8Blocks<32>;
using isa::Avx2;
using isa::Scalar;

/// A format of the user's own; quern has no kernel for it but the portable one.
struct Own : Q4_0 {
  static constexpr std::string_view name = "Own";
  static constexpr std::uint32_t gguf_type = 0x4F574E;
};

/// Another one, for which the user also has a kernel.
struct Served : Q4_0 {
  static constexpr std::string_view name = "Served";
  static constexpr std::uint32_t gguf_type = 0x4F574F;
};

constexpr float mark = 7.25f;

} // namespace

// A user's kernel is found by its type alone; nothing is registered.
template <>
struct quern::kernels::Matmul<float, Served, InputBlockMajor, Avx2> {
  using Input = MatrixView<const float>;
  using Weight = PackedView<Served, InputBlockMajor>;
  static constexpr KernelKey key =
      KernelKeyOf<MatmulOperation, float, Served, InputBlockMajor, Avx2>::value;
  static constexpr bool compiled_here = true;
  static void run(Input x, Weight w, MatrixView<float> y) noexcept {
    for (std::size_t r = 0; r < x.rows(); ++r)
      std::fill_n(y.row(r), w.out(), mark);
  }
};

namespace {

// What types tell.
template <class A, class F, class O, class I>
inline constexpr KernelKey key_of = KernelKeyOf<MatmulOperation, A, F, O, I>::value;
static_assert(key_of<float, Q4_0, RowMajor, Scalar> == key_of<float, Q4_0, RowMajor, Scalar>);
static_assert(key_of<float, Q4_0, RowMajor, Scalar> != key_of<In8, Q4_0, RowMajor, Scalar>);
static_assert(key_of<float, Q4_0, RowMajor, Scalar> != key_of<float, F32, RowMajor, Scalar>);
static_assert(key_of<float, Q4_0, RowMajor, Scalar> !=
              key_of<float, Q4_0, InputBlockMajor, Scalar>);
static_assert(key_of<float, Q4_0, RowMajor, Scalar> != key_of<float, Q4_0, RowMajor, Avx2>);
static_assert(kernels::Matmul<In8, Q4_0, RowMajor, Scalar>::key ==
              key_of<In8, Q4_0, RowMajor, Scalar>);
// The portable kernel is there for dense weights too, and for formats that quern does not know.
static_assert(has_kernel<float, F32, RowMajor, Scalar> &&
              has_kernel<float, F32, InputBlockMajor, Scalar>);
static_assert(has_kernel<float, Own, RowMajor, Scalar> && !has_fast_kernel<float, Own, RowMajor>);
static_assert(has_fast_kernel<float, Served, InputBlockMajor> &&
              !has_fast_kernel<float, Served, RowMajor>);
static_assert(!has_kernel<In8, F32, RowMajor, Scalar>, "single numbers have no integers");
// A step's memory can't be named as the place of a weight.
static_assert(!std::is_convertible_v<ForwardScope*, decltype(DispatchOptions::prepack_weights)>);
static_assert(std::is_trivially_copyable_v<MatmulPlan<float>>);
static_assert(DispatchOptions{}.prepack_weights == nullptr, "no relayout unless asked for");

constexpr std::size_t out = 4;
constexpr std::size_t blocks = 3;
constexpr std::size_t in = 32 * blocks;
constexpr std::size_t rows = 5;
constexpr std::size_t weight_bytes = out * blocks * 18;
constexpr std::size_t x_bytes = rows * in * sizeof(float);

template <class... Keys>
KernelSet set_of(const Keys&... keys) {
  return KernelSet(std::vector<KernelKey>{keys...});
}

class Dispatch : public testing::Test {
protected:
  void SetUp() override {
    if (!Avx2::available()) GTEST_SKIP() << "this CPU has the portable kernels alone";
  }

  [[nodiscard]] MatrixView<const float> x() const { return {x_, rows, in}; }
  [[nodiscard]] MatrixView<float> y() { return {y_, rows, out}; }
  [[nodiscard]] DispatchOptions with(const KernelSet& kernels) {
    DispatchOptions options;
    options.kernels = &kernels;
    options.trace = &counts_;
    return options;
  }

  /// The product by plain loops.
  void expect_near_the_product(double tolerance = 1e-5) const {
    const auto expected = support::product(x_, support::decoded<Q4_0>(bytes_), rows, out, in);
    for (std::size_t i = 0; i < y_.size(); ++i)
      EXPECT_NEAR(y_[i], expected[i], tolerance) << i;
  }
  void expect_untouched() const {
    for (const float value : y_)
      EXPECT_EQ(value, -1.0f);
    EXPECT_EQ(counts_.count(), 0u);
  }

  std::vector<std::byte> bytes_ = support::encoded_blocks<Q4_0>(out * blocks, 3);
  std::vector<std::byte> relaid_bytes_ =
      support::laid_out<Q4_0, InputBlockMajor>(bytes_, out, blocks);
  PackedView<Q4_0, RowMajor> w_{bytes_, OutIn{out, in}};
  PackedView<Q4_0, InputBlockMajor> relaid_{relaid_bytes_, OutIn{out, in}};
  std::vector<float> x_ = support::random_values(rows * in, 5);
  std::vector<float> y_ = std::vector<float>(rows * out, -1.0f);
  CountingTrace counts_;
  ForwardScope step_{std::size_t{1} << 16};
};

TEST(KernelKeyText, NamesAllFiveParts) {
  EXPECT_EQ(to_string(key_of<float, Q4_0, RowMajor, Scalar>),
            "matmul<float, Q4_0, RowMajor, Scalar>");
  EXPECT_EQ(to_string(key_of<Int8Blocks<256>, F32, InputBlockMajor, isa::Avx512Vnni>),
            "matmul<Int8Blocks<256>, F32, InputBlockMajor, Avx512Vnni>");
}

TEST_F(Dispatch, TheExactKeyComesFirst) {
  const auto set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>, key_of<float, Q4_0, RowMajor, Avx2>,
                          key_of<float, Q4_0, InputBlockMajor, Avx2>);
  ModelScope model(counts_);
  DispatchOptions options = with(set);
  options.prepack_weights = &model;
  const auto p = plan(w_, options);
  EXPECT_EQ(p.step(), DispatchStep::exact);
  EXPECT_EQ(p.key(), (key_of<float, Q4_0, RowMajor, Avx2>));
  EXPECT_EQ(to_string(p), "matmul<float, Q4_0, RowMajor, Avx2> (exact)");
  EXPECT_FALSE(p.quantizes());
  EXPECT_EQ(p.step_bytes(rows), 0u);
  p.run(x(), y());
  expect_near_the_product();
  EXPECT_EQ(counts_.count(), 1u) << "nothing but the kernel";
  EXPECT_EQ(counts_.count<KernelRun>(), 1u);
  EXPECT_EQ(model.live_bytes(), 0u);
}

TEST_F(Dispatch, WithoutLimitsItIsTheKernelOfTheDirectCall) {
  EXPECT_EQ(plan(w_).key(), (best_kernel_key<Q4_0, RowMajor>()));
  EXPECT_EQ(plan(relaid_).key(), (best_kernel_key<Q4_0, InputBlockMajor>()));
  std::vector<float> direct(y_.size());
  matmul_weight_transposed(x(), w_, MatrixView<float>{direct, rows, out});
  for (const auto& p : {plan(w_), plan(relaid_)}) {
    std::ranges::fill(y_, -1.0f);
    p.run(x(), y());
    EXPECT_EQ(support::bits_of(y_), support::bits_of(direct));
  }
}

TEST_F(Dispatch, TheActivationThatTheFormatAsksForComesSecond) {
  const auto set =
      set_of(key_of<float, Q4_0, InputBlockMajor, Avx2>, key_of<In8, Q4_0, RowMajor, Avx2>);
  ModelScope model(counts_);
  DispatchOptions options = with(set);
  options.prepack_weights = &model; // allowed, but not needed
  const auto p = plan(w_, options);
  EXPECT_EQ(p.step(), DispatchStep::asked_activation);
  EXPECT_EQ(p.key(), (key_of<In8, Q4_0, RowMajor, Avx2>));
  EXPECT_TRUE(p.quantizes());
  p.run(x(), y(), step_);
  EXPECT_EQ(model.live_bytes(), 0u);

  const std::size_t code_bytes = In8::bytes_for(rows, in);
  EXPECT_EQ(counts_.adapters().size(), 1u);
  EXPECT_EQ(counts_.adapters("quantize_activations").count, 1u);
  EXPECT_EQ(counts_.adapters("quantize_activations").bytes_before, x_bytes);
  EXPECT_EQ(counts_.adapters("quantize_activations").bytes, code_bytes);
  EXPECT_EQ(step_.live_bytes(), code_bytes) << "in the scope that the caller gave";
  const auto run = counts_.kernels().at("matmul<Int8Blocks<32>, Q4_0, RowMajor, Avx2>");
  EXPECT_EQ(run.bytes_read, weight_bytes + code_bytes);

  ForwardScope other(code_bytes + 64);
  std::vector<float> direct(y_.size());
  matmul_weight_transposed(quantize_activations<32>(x(), other), w_,
                           MatrixView<float>{direct, rows, out});
  EXPECT_EQ(support::bits_of(y_), support::bits_of(direct));
  expect_near_the_product(0.1);

  ForwardScope exact(p.step_bytes(rows));
  p.run(x(), y(), exact);
  EXPECT_EQ(exact.overflow_bytes(), 0u) << "step_bytes() is enough";
}

TEST_F(Dispatch, ARelayoutComesThirdAndOnlyWhenAskedFor) {
  const auto set = set_of(key_of<float, Q4_0, InputBlockMajor, Avx2>);
  const auto unasked = plan(w_, with(set));
  EXPECT_EQ(unasked.step(), DispatchStep::reference);
  EXPECT_EQ(counts_.count(), 0u);

  ModelScope model;
  DispatchOptions options = with(set);
  options.prepack_weights = &model;
  const auto p = plan(w_, options);
  EXPECT_EQ(p.step(), DispatchStep::relayout);
  EXPECT_EQ(p.key(), (key_of<float, Q4_0, InputBlockMajor, Avx2>));
  EXPECT_EQ(model.live_bytes(), weight_bytes);
  for (int i = 0; i < 3; ++i)
    p.run(x(), y());
  expect_near_the_product();
  EXPECT_EQ(counts_.adapters("prepack").count, 1u) << "once, by the plan";
  EXPECT_EQ(counts_.adapters("prepack").bytes_before, weight_bytes);
  EXPECT_EQ(counts_.adapters("prepack").bytes, weight_bytes);
  EXPECT_EQ(counts_.count<KernelRun>(), 3u);
  EXPECT_EQ(counts_.count(), 4u);

  // The plan has its own copy: the first bytes may go.
  std::ranges::fill(bytes_, std::byte{0});
  std::vector<float> again(y_.size());
  p.run(x(), MatrixView<float>{again, rows, out});
  EXPECT_EQ(again, y_);
}

TEST_F(Dispatch, ARelayoutGoesEitherWayAndMayMeetInt8) {
  const auto set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  ModelScope model;
  DispatchOptions options = with(set);
  options.prepack_weights = &model;
  const auto p = plan(relaid_, options);
  EXPECT_EQ(p.step(), DispatchStep::relayout);
  EXPECT_EQ(p.key(), (key_of<In8, Q4_0, RowMajor, Avx2>));
  p.run(x(), y(), step_);
  expect_near_the_product(0.1);
  EXPECT_EQ(counts_.adapters("prepack").count, 1u);
  EXPECT_EQ(counts_.adapters("quantize_activations").count, 1u);
}

TEST_F(Dispatch, NoWeightIsCopiedWhenNoKernelWouldReadIt) {
  const auto set = set_of(key_of<float, F32, InputBlockMajor, Avx2>);
  ModelScope model(counts_);
  DispatchOptions options = with(set);
  options.prepack_weights = &model;
  EXPECT_EQ(plan(w_, options).step(), DispatchStep::reference);
  EXPECT_EQ(model.live_bytes(), 0u);
  EXPECT_EQ(counts_.count(), 0u);
}

TEST_F(Dispatch, ThePortableKernelServesWhatNothingElseDoes) {
  const auto none = set_of();
  for (const auto& p : {plan(w_, with(none)), plan(relaid_, with(none))}) {
    EXPECT_EQ(p.step(), DispatchStep::reference);
    EXPECT_EQ(p.key().isa, Scalar::name);
    std::ranges::fill(y_, -1.0f);
    p.run(x(), y());
    expect_near_the_product(1e-6);
  }
  EXPECT_EQ(counts_.kernels().at("matmul<float, Q4_0, RowMajor, Scalar>").runs, 1u);
  EXPECT_EQ(counts_.kernels().at("matmul<float, Q4_0, InputBlockMajor, Scalar>").runs, 1u);
  EXPECT_EQ(counts_.count(), 2u);
}

TEST_F(Dispatch, StridedActivationsAreGatheredOnceAndGiveTheSameBits) {
  std::vector<float> columns(x_.size()); // the same values, column after column
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < in; ++i)
      columns[i * rows + r] = x_[r * in + i];
  const StridedView<const float> strided{columns, rows, in, 1, rows};
  EXPECT_FALSE(strided.has_whole_rows());
  std::vector<float> expected(y_.size());
  for (const bool int8 : {false, true}) {
    const auto set = int8 ? set_of(key_of<In8, Q4_0, RowMajor, Avx2>)
                          : set_of(key_of<float, Q4_0, RowMajor, Avx2>);
    plan(w_, {.kernels = &set}).run(x(), MatrixView<float>{expected, rows, out}, step_);
    step_.reset();
    CountingTrace counts;
    const auto p = plan(w_, {.kernels = &set, .trace = &counts});
    p.run(strided, y(), step_);
    EXPECT_EQ(support::bits_of(y_), support::bits_of(expected));
    EXPECT_EQ(counts.adapters("gather").count, 1u);
    EXPECT_EQ(counts.adapters("gather").bytes_before, x_bytes);
    EXPECT_EQ(counts.adapters("gather").bytes, x_bytes);
    EXPECT_EQ(counts.count(), int8 ? 3u : 2u);
    EXPECT_EQ(step_.live_bytes(), x_bytes + (int8 ? In8::bytes_for(rows, in) : 0u));
    step_.reset();
    ForwardScope exact(p.step_bytes(rows, true));
    p.run(strided, y(), exact);
    EXPECT_EQ(exact.overflow_bytes(), 0u);
  }
}

TEST_F(Dispatch, GatherNamesTheScopeThatHoldsTheCopy) {
  RingTrace ring(8);
  ModelScope model;
  const StridedView<const float> odd{x_, rows, in / 2, in, 2};
  const auto values = gather(odd, model, ring);
  ASSERT_EQ(ring.size(), 1u);
  const auto events = ring.events();
  const auto& event = std::get<AdapterInserted>(events.front().event);
  EXPECT_EQ(event.kind, "gather");
  EXPECT_EQ(event.from, "strided");
  EXPECT_EQ(event.to, "contiguous");
  EXPECT_EQ(event.scope, "model");
  EXPECT_EQ(event.bytes, x_bytes / 2);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < in / 2; ++i)
      EXPECT_EQ(values.row(r)[i], x_[r * in + 2 * i]);
}

TEST_F(Dispatch, RowsWithoutGapsAreNotGathered) {
  // Rows that lie apart, rows of a transposed transpose, and a single column are whole rows.
  std::vector<float> wide(rows * (in + 7));
  for (std::size_t r = 0; r < rows; ++r)
    std::copy_n(x_.data() + r * in, in, wide.data() + r * (in + 7));
  const MatrixView<const float> apart{wide, rows, in, in + 7};
  const auto p = plan(w_, {.trace = &counts_});
  p.run(StridedView<const float>(apart).transposed().transposed(), y(), step_);
  expect_near_the_product();
  EXPECT_EQ(counts_.count<AdapterInserted>(), 0u);
  EXPECT_EQ(step_.live_bytes(), 0u);

  const StridedView<const float> column{x_, rows, 1, in, in};
  EXPECT_TRUE(column.has_whole_rows());
  const MatrixView<const float> same = gather(column, step_, counts_);
  EXPECT_EQ(same.data(), x_.data());
  EXPECT_EQ(same.row(4)[0], x_[4 * in]);
  EXPECT_EQ(counts_.count<AdapterInserted>(), 0u);
}

TEST_F(Dispatch, OneRowUsedForSeveralIsGatheredNotOverlapped) {
  // Stride 0: five times the same row, as broadcasting makes it.
  const StridedView<const float> repeated{std::span<const float>(x_).first(in), rows, in, 0, 1};
  EXPECT_FALSE(repeated.has_whole_rows());
  plan(w_, {.trace = &counts_}).run(repeated, y(), step_);
  EXPECT_EQ(counts_.adapters("gather").count, 1u);
  for (std::size_t r = 1; r < rows; ++r)
    EXPECT_TRUE(std::equal(y_.begin(), y_.begin() + out, y_.begin() + static_cast<long>(r * out)));
}

TEST_F(Dispatch, NoFallbackIsAnErrorWhereThePortableKernelWouldRun) {
  const auto none = set_of();
  ModelScope model(counts_);
  const std::string plain =
      support::error_of(ErrorCode::unsupported, [&] { (void)plan<no_fallback>(w_, with(none)); });
  EXPECT_TRUE(support::contains(plain, "float activations and Q4_0 in RowMajor"));
  EXPECT_TRUE(support::contains(plain, "prepack_weights"));
  const auto relayout_only = set_of(key_of<float, Q4_0, InputBlockMajor, Avx2>);
  EXPECT_TRUE(support::contains(
      support::error_of(ErrorCode::unsupported,
                        [&] { dispatch<no_fallback>(x(), w_, y(), step_, with(relayout_only)); }),
      "prepack_weights"));
  EXPECT_TRUE(support::contains(support::error_of(ErrorCode::unsupported,
                                                  [&] {
                                                    DispatchOptions scalar;
                                                    scalar.max_isa = at_most<Scalar>();
                                                    scalar.prepack_weights = &model;
                                                    scalar.trace = &counts_;
                                                    (void)plan<no_fallback>(w_, scalar);
                                                  }),
                                "or after a relayout"));
  expect_untouched();
  EXPECT_EQ(model.live_bytes(), 0u);

  DispatchOptions options = with(relayout_only);
  options.prepack_weights = &model;
  EXPECT_EQ(plan<no_fallback>(w_, options).step(), DispatchStep::relayout);
  EXPECT_EQ(plan<no_fallback>(w_).step(), DispatchStep::exact);
}

TEST_F(Dispatch, AUsersKernelIsFoundByItsTypeAlone) {
  const PackedView<Served, InputBlockMajor> relaid{relaid_bytes_, OutIn{out, in}};
  const PackedView<Served, RowMajor> stored{bytes_, OutIn{out, in}};
  dispatch<no_fallback>(x(), relaid, y(), step_);
  EXPECT_EQ(y_, std::vector<float>(y_.size(), mark));

  // In the other order it is not used, unless a relayout is allowed.
  dispatch(x(), stored, y(), step_);
  expect_near_the_product();
  ModelScope model;
  plan<no_fallback>(stored, {.prepack_weights = &model}).run(x(), y());
  EXPECT_EQ(y_, std::vector<float>(y_.size(), mark));

  // A format without one has the portable kernel.
  const PackedView<Own, RowMajor> own{bytes_, OutIn{out, in}};
  EXPECT_EQ(to_string(plan(own)), "matmul<float, Own, RowMajor, Scalar> (reference)");
  dispatch(x(), own, y(), step_);
  expect_near_the_product();
}

TEST_F(Dispatch, ADenseWeightIsNeverMetWithInt8) {
  const auto matrix = support::random_values(out * in, 9);
  const PackedView<F32, RowMajor> dense{std::as_bytes(std::span(matrix)), OutIn{out, in}};
  const auto set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  const auto p = plan(dense, with(set));
  EXPECT_EQ(p.key(), (key_of<float, F32, RowMajor, Scalar>));
  p.run(x(), y());
  EXPECT_EQ(counts_.count<AdapterInserted>(), 0u);
}

TEST_F(Dispatch, ADenseWeightInTheOtherOrderIsNotMisread) {
  const auto matrix = support::random_values(out * in, 9);
  std::vector<float> by_columns(matrix.size());
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t i = 0; i < in; ++i)
      by_columns[i * out + o] = matrix[o * in + i];
  const PackedView<F32, InputBlockMajor> dense{std::as_bytes(std::span(by_columns)),
                                               OutIn{out, in}};
  const auto expected = support::product(x_, matrix, rows, out, in);
  const auto none = set_of();
  for (const auto& p : {plan(dense), plan(dense, with(none))}) {
    std::ranges::fill(y_, -1.0f);
    p.run(x(), y());
    for (std::size_t i = 0; i < y_.size(); ++i)
      EXPECT_NEAR(y_[i], expected[i], 1e-5) << to_string(p);
  }
}

TEST_F(Dispatch, RunningAPlanAllocatesNothing) {
  std::vector<float> columns(x_.rbegin(), x_.rend());
  const StridedView<const float> strided{columns, rows, in, 1, rows};
  const auto exact = plan(w_);
  const auto int8_set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  const auto int8 = plan(w_, {.kernels = &int8_set});
  const auto none = set_of();
  const auto reference = plan(w_, {.kernels = &none});
  ForwardScope step(int8.step_bytes(rows, true));
  const std::size_t allocations = support::count_allocations([&] {
    for (int i = 0; i < 1000; ++i) {
      exact.run(x(), y());
      exact.run(strided, y(), step);
      step.reset();
      int8.run(strided, y(), step);
      step.reset();
      reference.run(x(), y());
      dispatch(strided, w_, y(), step);
      step.reset();
      (void)plan(w_, {.kernels = &int8_set});
    }
  });
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(step.overflow_bytes(), 0u);
  EXPECT_LE(step.peak_bytes(), int8.step_bytes(rows, true));
  ForwardScope tiny(1);
  EXPECT_GT(support::count_allocations([&] { int8.run(x(), y(), tiny); }), 0u)
      << "the count sees what does not fit the step";
}

TEST_F(Dispatch, ExtentsAreCheckedBeforeAnythingIsConverted) {
  const auto set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  const auto p = plan(w_, with(set));
  const auto short_x = support::random_values(rows * (in - 32));
  const StridedView<const float> narrow{short_x, rows, in - 32, 1, rows};
  const auto refused = [&](auto call) {
    EXPECT_TRUE(support::contains(support::error_of(ErrorCode::size_mismatch, call), "[4, 96]"));
  };
  refused([&] { p.run(narrow, y(), step_); });
  refused([&] { dispatch(narrow, w_, y(), step_, with(set)); });
  refused([&] { p.run(x().narrow_rows(0, 3), y(), step_); });
  refused([&] { p.run(x(), y().narrow_cols(0, 3), step_); });
  refused([&] { plan(w_).run(x().narrow_cols(0, 64), y()); });
  expect_untouched();
  EXPECT_EQ(step_.live_bytes(), 0u);
}

TEST_F(Dispatch, APlanThatQuantizesAsksForAScope) {
  const auto set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  const auto p = plan(w_, with(set));
  const std::string message = support::error_of(ErrorCode::scope_kind, [&] { p.run(x(), y()); });
  EXPECT_TRUE(support::contains(message, "run(x, y, step)"));
  expect_untouched();
}

TEST_F(Dispatch, WithoutMemoryForAConversionNothingIsWritten) {
  const auto set =
      set_of(key_of<In8, Q4_0, RowMajor, Avx2>, key_of<float, Served, InputBlockMajor, Avx2>);
  const auto p = plan(w_, with(set));
  ForwardScope tiny(1);
  ModelScope model;
  const PackedView<Served, RowMajor> served{bytes_, OutIn{out, in}};
  DispatchOptions options = with(set);
  options.prepack_weights = &model;
  {
    const support::FailingAllocation none(0);
    EXPECT_THROW(p.run(x(), y(), tiny), std::bad_alloc);
    EXPECT_THROW((void)plan(served, options), std::bad_alloc);
  }
  expect_untouched();
  EXPECT_EQ(tiny.live_bytes(), 0u);
  EXPECT_EQ(model.live_bytes(), 0u);
}

TEST_F(Dispatch, ActivationsQuantizedOnceServeSeveralWeights) {
  const auto codes = quantize_activations<32>(x(), step_, counts_);
  const auto first = plan<no_fallback, In8>(w_.narrow_out(0, 1), {.trace = &counts_});
  const auto rest = plan<no_fallback, In8>(w_.narrow_out(1, 3), {.trace = &counts_});
  first.run(codes, y().narrow_cols(0, 1));
  rest.run(codes, y().narrow_cols(1, 3));
  expect_near_the_product(0.1);
  EXPECT_EQ(counts_.adapters("quantize_activations").count, 1u);
  EXPECT_EQ(counts_.count<KernelRun>(), 2u);
  EXPECT_TRUE(support::contains(
      support::error_of(ErrorCode::size_mismatch, [&] { first.run(codes.narrow_rows(0, 1), y()); }),
      "quern::matmul_weight_transposed"));
}

TEST_F(Dispatch, NarrowedWeightsKeepTheirStridesAndCostTheirOwnBytes) {
  const auto part = relaid_.narrow_out(1, 2).narrow_blocks(1, 2);
  const auto part_x = x().narrow_cols(32, 64);
  std::vector<float> direct(rows * 2);
  matmul_weight_transposed(part_x, part, MatrixView<float>{direct, rows, 2});
  std::vector<float> planned(rows * 2);
  plan(part, {.trace = &counts_}).run(part_x, MatrixView<float>{planned, rows, 2});
  EXPECT_EQ(support::bits_of(planned), support::bits_of(direct));
  EXPECT_EQ(counts_.kernels().begin()->second.bytes_read, 4u * 18 + rows * 64 * sizeof(float));

  const auto set = set_of(key_of<float, Q4_0, RowMajor, Avx2>);
  ModelScope model;
  DispatchOptions options = with(set);
  options.prepack_weights = &model;
  plan(part, options).run(part_x, MatrixView<float>{planned, rows, 2});
  EXPECT_EQ(support::bits_of(planned), support::bits_of(direct));
  EXPECT_EQ(model.live_bytes(), 4u * 18);
}

TEST_F(Dispatch, EventsNameTheKernelAndTheWeight) {
  RingTrace ring(8);
  plan(w_, {.trace = &ring, .weight = "blk.0.attn_q.weight"}).run(x(), y());
  const auto events = ring.events();
  ASSERT_EQ(events.size(), 1u);
  const auto& run = std::get<KernelRun>(events.front().event);
  EXPECT_EQ(run.kernel, to_string(best_kernel_key<Q4_0, RowMajor>()));
  EXPECT_EQ(run.weight, "blk.0.attn_q.weight");
  EXPECT_EQ(run.bytes_read, weight_bytes + x_bytes) << "packed bytes, not floats";
  EXPECT_EQ(run.bytes_written, rows * out * sizeof(float));
  EXPECT_GE(run.duration.count(), 0);
}

TEST_F(Dispatch, EveryConversionNamesTheWeightThatNeededIt) {
  const auto set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  RingTrace ring;
  ModelScope model;
  const std::string name = "blk.0.attn_q.weight";
  const DispatchOptions options{
      .prepack_weights = &model, .kernels = &set, .trace = &ring, .weight = name};
  plan(relaid_, options).run(StridedView<const float>{x_, rows, in, 1, rows}, y(), step_);
  std::vector<std::string> kinds;
  for (const TimedEvent& event : ring.events())
    if (const auto* adapter = std::get_if<AdapterInserted>(&event.event)) {
      kinds.emplace_back(adapter->kind);
      EXPECT_EQ(adapter->target, name) << adapter->kind;
    }
  EXPECT_EQ(kinds, (std::vector<std::string>{"prepack", "gather", "quantize_activations"}));
}

TEST_F(Dispatch, LargeBatchesInPiecesAllocateNothingEither) {
  // Pieces of a fixed pool, as an executor runs them that was there before.
  struct Pool {
    void parallel_for(std::size_t count, IndexFunction f) const {
      for (std::size_t i = count; i-- > 0;)
        f(i);
    }
    static std::size_t concurrency() { return 8; }
  } pool;
  constexpr std::size_t many = 300;
  constexpr std::size_t wide = 70;
  const auto bytes = support::encoded_blocks<Q4_0>(wide * blocks, 3);
  const PackedView<Q4_0, RowMajor> weight{bytes, OutIn{wide, in}};
  const auto values = support::random_values(many * in);
  std::vector<float> product(many * wide);
  const StridedView<const float> strided{values, many, in, 1, many};
  const auto float_set = set_of(key_of<float, Q4_0, RowMajor, Avx2>);
  const auto int8_set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  const auto none = set_of();
  for (const KernelSet* const set : {&float_set, &int8_set, &none}) {
    const auto p = plan(
        weight,
        {.kernels = set, .trace = &counts_, .executor = pool, .weight = "blk.0.attn_q.weight"});
    ForwardScope step(p.step_bytes(many, true));
    const auto run = [&] {
      p.run(strided, MatrixView<float>{product, many, wide}, step);
      step.reset();
    };
    run(); // the sink makes room for a new kernel once
    EXPECT_EQ(support::count_allocations(run), 0u) << to_string(p);
    EXPECT_EQ(step.overflow_bytes(), 0u);
  }
}

TEST_F(Dispatch, AnyRankOfActivationsIsOneMatrixOfTheSameValues) {
  // [in], [5, in] and [1, 5, in] are spans of whole rows; nothing is copied.
  std::vector<float> one(out);
  std::vector<float> all(rows * out);
  matmul_weight_transposed(std::span<const float>(x_).first(in), w_, std::span<float>(one));
  matmul_weight_transposed(std::span<const float>(x_), w_, std::span<float>(all));
  const auto p = plan(w_, {.trace = &counts_});
  p.run(x().narrow_rows(0, 1), y().narrow_rows(0, 1));
  EXPECT_TRUE(std::equal(one.begin(), one.end(), y_.begin()));
  p.run(x(), y());
  EXPECT_EQ(support::bits_of(y_), support::bits_of(all));
  EXPECT_EQ(x().data(), x_.data());
  EXPECT_EQ(counts_.count<AdapterInserted>(), 0u);
}

TEST_F(Dispatch, SixteenThreadsChooseAndRunAlike) {
  plan(w_).run(x(), y());
  std::vector<std::vector<float>> results(16, std::vector<float>(y_.size()));
  std::vector<std::string> keys(16);
  const auto shared = plan(w_, {.trace = &counts_});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&, t] {
      ForwardScope own(1 << 14);
      for (int i = 0; i < 50; ++i) {
        keys[t] = to_string(plan(w_));
        shared.run(x(), MatrixView<float>{results[t], rows, out}, own);
        own.reset();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  for (std::size_t t = 0; t < results.size(); ++t) {
    EXPECT_EQ(support::bits_of(results[t]), support::bits_of(y_));
    EXPECT_EQ(keys[t], to_string(shared));
  }
  EXPECT_EQ(counts_.count<KernelRun>(), 800u) << "none is lost";
}

TEST_F(Dispatch, EmptyExtentsAreFine) {
  const auto int8_set = set_of(key_of<In8, Q4_0, RowMajor, Avx2>);
  const auto none = set_of();
  for (const DispatchOptions& options : {DispatchOptions{}, with(int8_set), with(none)}) {
    const PackedView<Q4_0, RowMajor> no_rows{std::span<const std::byte>{}, OutIn{0, in}};
    plan(no_rows, options).run(x(), MatrixView<float>{std::span<float>{}, rows, 0}, step_);
    const PackedView<Q4_0, RowMajor> no_values{std::span<const std::byte>{}, OutIn{out, 0}};
    std::ranges::fill(y_, -1.0f);
    plan(no_values, options)
        .run(MatrixView<const float>{std::span<const float>{}, rows, 0}, y(), step_);
    EXPECT_EQ(y_, std::vector<float>(y_.size(), 0.0f)) << "sums of nothing";
    plan(w_, options)
        .run(MatrixView<const float>{std::span<const float>{}, 0, in},
             MatrixView<float>{std::span<float>{}, 0, out}, step_);
    EXPECT_EQ(plan(w_, options).step_bytes(0), 0u);
    step_.reset();
  }
}

TEST(StridedViewTest, RefusesSpansThatDoNotReach) {
  const std::vector<float> values(10);
  const auto view = [&](std::size_t r, std::size_t c, std::size_t down, std::size_t along) {
    return StridedView<const float>{values, r, c, down, along};
  };
  EXPECT_EQ(&view(2, 5, 5, 1).at(1, 4), values.data() + 9);
  EXPECT_EQ(&view(5, 2, 1, 5).at(4, 1), values.data() + 9);
  (void)view(0, 1000, 1000, 1000);
  (void)view(1000, 0, 1000, 1000);
  const std::size_t huge = static_cast<std::size_t>(-1) / 2;
  for (const auto& e : {std::array<std::size_t, 4>{2, 6, 5, 1},
                        {3, 5, 5, 1},
                        {11, 1, 1, 1},
                        {1, 2, 0, 10},
                        {huge, 2, huge, 1},
                        {2, huge, 1, huge},
                        {3, 3, huge, huge}})
    EXPECT_TRUE(support::contains(
        support::error_of(ErrorCode::size_mismatch, [&] { (void)view(e[0], e[1], e[2], e[3]); }),
        "do not fit a span of 10"));
}

TEST(StepBytes, RefusesRowsThatDoNotFitTheAddressSpace) {
  const auto bytes = support::encoded_blocks<Q4_0>(1);
  const auto none = KernelSet({});
  const auto p = plan(PackedView<Q4_0, RowMajor>{bytes, OutIn{1, 32}}, {.kernels = &none});
  EXPECT_EQ(p.step_bytes(static_cast<std::size_t>(-1)), 0u) << "it converts nothing";
  for (const std::size_t many : {static_cast<std::size_t>(-1), static_cast<std::size_t>(-1) / 100})
    (void)support::error_of(ErrorCode::size_overflow, [&] { (void)p.step_bytes(many, true); });
}

} // namespace
