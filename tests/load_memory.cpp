#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/detail/poison.hpp>
#include <quern/gguf/file.hpp>
#include <quern/load.hpp>
#include <quern/scope.hpp>

#include "support/temp_folder.hpp"
#include "support/thread_executor.hpp"
#include "support/weights.hpp"

#if defined(__SANITIZE_THREAD__)
#define HAS_SHADOW_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_SHADOW_MEMORY 1
#endif
#endif

namespace {

using namespace quern;

/// A field of /proc/self/status in bytes, or 0 where there is none.
std::size_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    std::size_t kib = 0;
    if (name == field + ":" && status >> kib) return kib * 1024;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

/// Sets the peak resident size back to the size of now. False where that can't be done.
bool reset_peak() {
  std::ofstream(std::filesystem::path("/proc/self/clear_refs")) << "5" << std::flush;
  const std::size_t peak = status_bytes("VmHWM");
  return peak != 0 && peak < status_bytes("VmRSS") + (std::size_t{8} << 20);
}

constexpr std::size_t out = 8192;
constexpr std::size_t in = 8192;
constexpr std::size_t tensor_bytes = out * (in / 32) * 18; // 36 MiB
constexpr std::size_t tensors = 3;

/// A file of three Q4_0 matrices, written in rows so that it is never in memory as a whole.
void write_model(const std::filesystem::path& path) {
  std::vector<std::byte> header;
  const auto number = [&](std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      header.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  number(0x46554747, 4);
  number(3, 4);
  number(tensors, 8);
  number(0, 8);
  for (std::size_t i = 0; i < tensors; ++i) {
    number(2, 8);
    number('w' + (('0' + i) << 8), 2);
    number(2, 4);
    number(in, 8);
    number(out, 8);
    number(Q4_0::gguf_type, 4);
    number(i * tensor_bytes, 8);
  }
  header.resize((header.size() + 31) / 32 * 32);
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(header.data()),
               static_cast<std::streamsize>(header.size()));
  const auto rows = support::finite_blocks<Q4_0>(64 * in / 32);
  for (std::size_t row = 0; row < tensors * out; row += 64)
    stream.write(reinterpret_cast<const char*>(rows.data()),
                 static_cast<std::streamsize>(rows.size()));
}

/// What one way of loading added to the resident memory of the process, in bytes.
struct Growth {
  std::size_t peak;
  std::size_t after;
};

class LoadMemory : public testing::Test {
protected:
  void SetUp() override {
#if defined(QUERN_HAS_ASAN) || defined(HAS_SHADOW_MEMORY)
    GTEST_SKIP() << "a sanitizer's own memory would be measured";
#endif
    if (!reset_peak()) GTEST_SKIP() << "this system does not tell peak memory";
    write_model(folder_ / "model.gguf");
  }

  template <class Load>
  static Growth growth_of(Load load) {
    EXPECT_TRUE(reset_peak());
    const std::size_t before = status_bytes("VmRSS");
    [[maybe_unused]] const auto kept = load();
    const std::size_t peak = status_bytes("VmHWM");
    const std::size_t after = status_bytes("VmRSS");
    return {peak - std::min(peak, before), after - std::min(after, before)};
  }

  [[nodiscard]] static ModelPlan plan_of(const gguf::File& file, const WeightForm& form) {
    FormPolicy policy;
    policy.form = form;
    return plan_model(file, std::numeric_limits<std::size_t>::max(), policy);
  }

  support::TempFolder folder_;
};

constexpr std::size_t model_bytes = tensors * tensor_bytes;
// Buffers, page tables, whatever the allocator keeps, and pages of 2 MiB at the ends of tensors.
constexpr std::size_t slack = std::size_t{16} << 20;
static_assert(slack < model_bytes / 4);

TEST_F(LoadMemory, APrepackedModelIsInMemoryOnce) {
  const auto file = gguf::File::map(folder_ / "model.gguf");
  const auto plan = plan_of(file, {{}, WeightOrder::input_block_major});
  for (const std::size_t threads : {1u, 2u}) {
    const support::ThreadExecutor executor(threads);
    LoadOptions options;
    options.executor = executor;
    ModelScope scope;
    const Growth growth = growth_of([&] { return load_model(plan, scope, no_trace, options); });
    EXPECT_EQ(scope.live_bytes(), model_bytes);
    EXPECT_GE(growth.peak, model_bytes) << "what was measured is not the loading";
    EXPECT_LE(growth.peak, model_bytes + slack);
    EXPECT_LE(growth.after, model_bytes + slack);
    RecordProperty("peak_" + std::to_string(threads), std::to_string(growth.peak));
  }
}

TEST_F(LoadMemory, TwoCopiesWouldBeSeen) {
  // Reading the file into memory first is what the test above must be able to tell apart.
  ModelScope scope;
  const Growth growth = growth_of([&] {
    const auto file = gguf::File::read(folder_ / "model.gguf");
    return load_model(plan_of(file, {{}, WeightOrder::input_block_major}), scope);
  });
  EXPECT_GE(growth.peak, 2 * model_bytes);
}

TEST_F(LoadMemory, AModelAsStoredTakesNoMemoryUntilItIsRead) {
  const auto file = gguf::File::map(folder_ / "model.gguf");
  ModelScope scope;
  const Growth growth = growth_of([&] { return load_model(plan_of(file, {}), scope); });
  EXPECT_EQ(scope.live_bytes(), 0u);
  EXPECT_LE(growth.peak, std::size_t{1} << 20);
}

TEST_F(LoadMemory, OpeningAndPlanningReadNoPayload) {
  const Growth growth = growth_of([&] {
    const auto file = gguf::File::map(folder_ / "model.gguf");
    return plan_of(file, {dequantize<float>, WeightOrder::input_block_major}).bytes();
  });
  EXPECT_LE(growth.peak, std::size_t{1} << 20);
}

} // namespace
