// Every allocation fails in turn: nothing leaks, and what was there before is as it was.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <quern/activation.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/split.hpp>
#include <quern/gguf/writer.hpp>
#include <quern/packed_weights.hpp>
#include <quern/prepack.hpp>
#include <quern/quantize.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/scope.hpp>

#include "support/counting_new.hpp"
#include "support/temp_folder.hpp"
#include "support/weights.hpp"

namespace {

using namespace quern;
using gguf::File;
using gguf::Writer;

constexpr long most_allocations = 10000;

/// `attempt(nth)` runs something of which allocation `nth` and all later ones fail. It does so for
/// nth = 0, 1, 2, ... until nothing fails; nothing may be left after a failure. Returns how often
/// it failed.
template <class Attempt>
long fail_each_allocation(Attempt attempt) {
  for (long nth = 0; nth < most_allocations; ++nth) {
    const support::PeakMemory memory;
    bool failed = false;
    try {
      attempt(nth);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    EXPECT_TRUE(memory.nothing_left()) << "allocation " << nth;
    if (!failed) return nth;
  }
  ADD_FAILURE() << "it never succeeds";
  return most_allocations;
}

/// A writer with a key and a tensor, of which `data` holds the bytes.
Writer small_writer(std::span<const std::byte> data) {
  Writer writer(64);
  writer.add("general.architecture", "test");
  writer.add_tensor("first", Q4_0::gguf_type, {32, 2}, data);
  return writer;
}

template <class Call>
void expect_strong_guarantee(Call call) {
  const auto data = support::counting_weight(2, 1);
  Writer wanted = small_writer(data);
  call(wanted);
  const auto before = small_writer(data).to_bytes();
  const auto after = wanted.to_bytes();
  ASSERT_NE(before, after);
  const long failures = fail_each_allocation([&](long nth) {
    Writer writer = small_writer(data);
    try {
      const support::FailingAllocation failing(nth);
      call(writer);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(writer.to_bytes(), before) << "allocation " << nth;
      call(writer); // no trace is left that would be in the way
      EXPECT_EQ(writer.to_bytes(), after) << "allocation " << nth;
      throw;
    }
    EXPECT_EQ(writer.to_bytes(), after);
  });
  EXPECT_GT(failures, 0);
}

TEST(FaultsMemory, AWriterTakesAKeyOrIsAsItWas) {
  const std::vector<std::vector<std::string>> words{{"a long word, longer than fits a string"},
                                                    {"b", "c"}};
  const std::string name(100, 'k');
  expect_strong_guarantee([&](Writer& writer) { writer.add(name, std::uint32_t{7}); });
  expect_strong_guarantee([&](Writer& writer) { writer.add(name, words.front()); });
  expect_strong_guarantee([&](Writer& writer) { writer.add(name, words); });
  Writer other;
  other.add("words", words);
  const auto bytes = other.to_bytes();
  const File file = File::from_bytes(bytes);
  expect_strong_guarantee([&](Writer& writer) { writer.add(name, file.metadata().at("words")); });
}

TEST(FaultsMemory, AWriterTakesATensorOrIsAsItWas) {
  const auto blocks = support::counting_weight(4, 3);
  const PackedView<Q4_0, RowMajor> view{blocks, OutIn{4, 96}};
  const std::string name(60, 'n');
  expect_strong_guarantee([&](Writer& writer) {
    writer.add_tensor(name, Q4_0::gguf_type, {96, 4}, blocks);
  });
  expect_strong_guarantee(
      [&](Writer& writer) { writer.add_weight(name, view.narrow_blocks(1, 2)); });
}

TEST(FaultsMemory, ARefusalWithoutMemoryForItsMessageIsBadAlloc) {
  const auto data = support::counting_weight(2, 1);
  Writer writer = small_writer(data);
  const auto before = writer.to_bytes();
  bool refused = false;
  for (long nth = 0; !refused; ++nth) {
    ASSERT_LT(nth, most_allocations);
    try {
      const support::FailingAllocation failing(nth);
      writer.add("general.architecture", "again");
      FAIL() << "a key twice";
    } catch (const std::bad_alloc&) {
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::duplicate_key);
      refused = true;
    }
    EXPECT_EQ(writer.to_bytes(), before);
  }
}

std::vector<std::byte> content_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(FaultsMemory, AFileIsWrittenOrStaysAsItWas) {
  const support::TempFolder folder;
  const auto path = folder / "model.gguf";
  const auto data = support::counting_weight(2, 1);
  const Writer writer = small_writer(data);
  Writer old;
  old.add("old", true);
  old.write(path);
  const long failures = fail_each_allocation([&](long nth) {
    try {
      const support::FailingAllocation failing(nth);
      writer.write(path);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(content_of(path), old.to_bytes()) << "allocation " << nth;
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}), 1)
          << "allocation " << nth;
      throw;
    }
  });
  EXPECT_GT(failures, 0);
  EXPECT_EQ(content_of(path), writer.to_bytes());
}

TEST(FaultsMemory, OpeningASplitSet) {
  const support::TempFolder folder;
  const auto data = support::counting_weight(2, 1);
  for (const int number : {1, 2}) {
    Writer writer;
    writer.add("split.no", static_cast<std::uint16_t>(number - 1));
    writer.add("split.count", std::uint16_t{2});
    writer.add("split.tensors.count", std::int32_t{2});
    writer.add_tensor("tensor " + std::to_string(number), Q4_0::gguf_type, {32, 2}, data);
    writer.write(folder / ("m-0000" + std::to_string(number) + "-of-00002.gguf"));
  }
  const auto path = folder / "m-00002-of-00002.gguf";
  const long failures = fail_each_allocation([&](long nth) {
    const support::FailingAllocation failing(nth);
    const auto set = gguf::SplitSet::map(path);
    if (set.size() != 2) throw std::runtime_error("a set of another size");
  });
  EXPECT_GT(failures, 2);
}

TEST(FaultsMemory, OpeningAFileThatIsRefused) {
  const auto data = support::counting_weight(2, 1);
  auto bytes = small_writer(data).to_bytes();
  bytes.resize(bytes.size() - 100);
  bool refused = false;
  for (long nth = 0; !refused; ++nth) {
    ASSERT_LT(nth, most_allocations);
    const support::PeakMemory memory;
    try {
      const support::FailingAllocation failing(nth);
      static_cast<void>(File::from_bytes(bytes));
      FAIL() << "a file that is cut off was opened";
    } catch (const std::bad_alloc&) {
    } catch (const gguf::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data_past_end);
      refused = true;
    }
    EXPECT_TRUE(memory.nothing_left());
  }
}

TEST(FaultsMemory, UsingAFile) {
  Writer writer;
  writer.add("words", std::vector<std::string>{"one", "another that is longer than short strings"});
  const auto data = support::counting_weight(2, 1);
  writer.add_tensor("w", Q4_0::gguf_type, {32, 2}, data);
  const auto bytes = writer.to_bytes();
  const File file = File::from_bytes(bytes);
  EXPECT_GT(fail_each_allocation([&](long nth) {
              const support::FailingAllocation failing(nth);
              const auto words = file.metadata().get<gguf::Array>("words");
              static_cast<void>(words.to_vector<std::string>());
              static_cast<void>(file.weight<Q4_0>("w").to_floats());
            }),
            2);
}

TEST(FaultsMemory, QuantizingAWeight) {
  const auto values = support::random_values(3 * 512);
  const long failures = fail_each_allocation([&](long nth) {
    const support::FailingAllocation failing(nth);
    static_cast<void>(quantize<Q4_K>(values, OutIn{3, 512}));
  });
  EXPECT_GT(failures, 0);
}

TEST(FaultsMemory, QuantizingActivations) {
  const auto values = support::random_values(3 * 512);
  ModelScope scope;
  const std::size_t before = scope.live_bytes();
  const long failures = fail_each_allocation([&](long nth) {
    ModelScope own;
    try {
      const support::FailingAllocation failing(nth);
      static_cast<void>(quantize_activations<256>(MatrixView<const float>{values, 3, 512}, own));
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(own.live_bytes(), 0u);
      throw;
    }
  });
  EXPECT_GT(failures, 0);
  EXPECT_EQ(scope.live_bytes(), before);
}

TEST(FaultsMemory, PrepackingAView) {
  const auto blocks = support::counting_weight(4, 3);
  const PackedView<Q4_0, RowMajor> view{blocks, OutIn{4, 96}};
  const long failures = fail_each_allocation([&](long nth) {
    ModelScope scope;
    try {
      const support::FailingAllocation failing(nth);
      static_cast<void>(prepack<InputBlockMajor>(view, scope));
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(scope.live_bytes(), 0u);
      throw;
    }
  });
  EXPECT_GT(failures, 0);
  EXPECT_GT(fail_each_allocation([&](long nth) {
              const support::FailingAllocation failing(nth);
              static_cast<void>(to_kernel_order<Q4_0>(blocks, OutIn{4, 96}));
            }),
            0);
}

TEST(FaultsMemory, AnOwnedWeightIsPrepackedOrAsItWas) {
  // Extents for which the relayout in place needs each kind of scratch memory.
  for (const auto& [out, blocks_per_row] : {std::pair<std::size_t, std::size_t>{37, 5}, {5, 37}}) {
    const auto blocks = support::encoded_blocks<Q4_0>(out * blocks_per_row);
    const OutIn shape{Out{out}, In{blocks_per_row * 32}};
    const long failures = fail_each_allocation([&](long nth) {
      PackedWeight<Q4_0, RowMajor> weight{blocks, shape};
      try {
        const support::FailingAllocation failing(nth);
        static_cast<void>(prepack<InputBlockMajor>(std::move(weight)));
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(weight.shape(), shape); // NOLINT: not moved from
        EXPECT_TRUE(std::ranges::equal(weight.bytes(), blocks)) << "allocation " << nth;
        throw;
      }
    });
    EXPECT_GT(failures, 1);
  }
}

} // namespace
