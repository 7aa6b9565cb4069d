// Products with packed weights next to other libraries, one thread. All of them run in turn within
// every iteration, on the same weights where they take them as they are, so that they meet the
// machine in the same state. Preparing the activations counts for each. Names:
//
//   <activations>/<format>/<out>x<in>/M:<rows of x>
//
// With one row of x, the weights come in turn from more than 512 MiB. The time is that of quern in
// RowMajor. Counters say how many times as fast quern is as the other:
//
//   ggml, by_block_ggml          the weight as the file holds it; quern in RowMajor, and in
//                                InputBlockMajor
//   repacked, by_block_repacked  the weight in the order that ggml's own buffers for it have
//   openblas, by_block_openblas  with float activations: cblas_sgemv or cblas_sgemm on the decoded
//                                matrix
//
// Those of libraries that this build did not find are missing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>
#include <boost/mp11/algorithm.hpp>

#include <quern/formats.hpp>
#include <quern/matmul.hpp>

#include "inputs.hpp"
#include "products.hpp"
#include "run_all.hpp"

#if defined(QUERN_WITH_GGML)
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#endif
#if defined(QUERN_WITH_OPENBLAS)
#include <cblas.h>
#endif

namespace {

using quern::InputBlockMajor;
using quern::MatrixView;
using quern::OutIn;
using quern::PackedView;
using quern::RowMajor;

#if defined(QUERN_WITH_GGML)
struct Freed {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};

/// Where ggml keeps weights in an order of its own, or nothing.
ggml_backend_buffer_type_t repacking_buffers() {
  const auto registry = ggml_backend_cpu_reg();
  const auto list = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
  if (list == nullptr) return nullptr;
  for (auto* type = list(ggml_backend_reg_dev_get(registry, 0)); *type != nullptr; ++type)
    if (std::string_view(ggml_backend_buft_name(*type)) == "CPU_REPACK") return *type;
  return nullptr;
}

/// One product for each of several weights of the same shape.
class Ggml {
public:
  Ggml(ggml_type type, OutIn shape, std::span<const std::byte> weights, std::size_t count,
       std::span<float> x, std::size_t rows, std::span<float> y, bool repacked)
      : context_(ggml_init({(4 * count + 8) * ggml_tensor_overhead() +
                                (count + 1) * ggml_graph_overhead_custom(graph_size, false),
                            nullptr, true})) {
    const auto in = static_cast<std::int64_t>(shape.in.value());
    const auto out = static_cast<std::int64_t>(shape.out.value());
    const auto buffers = repacked ? repacking_buffers() : nullptr;
    if (repacked && buffers == nullptr) return;
    auto* from =
        ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, in, static_cast<std::int64_t>(rows));
    from->data = x.data();
    const std::size_t size = weights.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      auto* weight = ggml_new_tensor_2d(context_.get(), type, in, out);
      const std::byte* bytes = weights.data() + i * size;
      if (repacked) {
        buffers_.emplace_back(ggml_backend_buft_alloc_buffer(
            buffers, ggml_backend_buft_get_alloc_size(buffers, weight)));
        ggml_backend_tensor_alloc(buffers_.back().get(), weight,
                                  ggml_backend_buffer_get_base(buffers_.back().get()));
        if (weight->extra == nullptr) return; // not a type that is repacked
        ggml_backend_tensor_set(weight, bytes, 0, size);
      } else {
        weight->data = const_cast<std::byte*>(bytes); // never written to
      }
      auto* product = ggml_mul_mat(context_.get(), weight, from);
      product->data = y.data();
      graphs_.push_back(ggml_new_graph_custom(context_.get(), graph_size, false));
      ggml_build_forward_expand(graphs_.back(), product);
    }
    plan_ = ggml_graph_plan(graphs_.front(), 1, nullptr);
    room_.resize(plan_.work_size);
    plan_.work_data = room_.data();
    ready_ = true;
  }

  [[nodiscard]] bool ready() const noexcept { return ready_; }
  void run(std::size_t weight) { ggml_graph_compute(graphs_[weight], &plan_); }

private:
  static constexpr std::size_t graph_size = 8;
  bool ready_ = false;
  std::unique_ptr<ggml_context, Freed> context_;
  std::vector<std::unique_ptr<ggml_backend_buffer, Freed>> buffers_;
  std::vector<ggml_cgraph*> graphs_;
  ggml_cplan plan_{};
  std::vector<std::uint8_t> room_;
};
#endif

/// Times of one library, and of quern beside it.
class Peer {
public:
  explicit Peer(std::string name) : name_(std::move(name)) {}
  void add(double seconds) { seconds_.push_back(seconds); }
  void report(benchmark::State& state, double by_rows, double by_blocks) const {
    if (seconds_.empty()) return;
    state.counters[name_] = median(seconds_) / by_rows;
    state.counters["by_block_" + name_] = median(seconds_) / by_blocks;
  }

private:
  std::string name_;
  std::vector<double> seconds_;
};

template <class Product, class F>
void beside_peers(benchmark::State& state, OutIn shape, std::size_t rows) {
  const std::size_t weight_bytes = shape.out * shape.in / F::block_size * F::bytes_per_block;
  const std::size_t weights = rows == 1 ? rotated_bytes / weight_bytes + 1 : 1;
  const auto bytes = pool<F>(weight_bytes, weights);
  auto x = random_values(rows * shape.in);
  std::vector<float> y(rows * shape.out);
  std::vector<std::byte> room;
  const MatrixView<const float> from{std::span<const float>(x), rows, shape.in};
  const MatrixView<float> to{std::span<float>(y), rows, shape.out};

  std::vector<double> by_rows, by_blocks;
  std::size_t next = 0;
  const auto take = [&] { return next = (next + 1) % weights; };
  const auto bytes_of = [&](std::size_t weight) {
    return bytes.subspan(weight * weight_bytes, weight_bytes);
  };
#if defined(QUERN_WITH_GGML)
  constexpr bool compared = std::is_same_v<Product, Int8Product> && F::gguf_type < GGML_TYPE_COUNT;
  Peer plain("ggml"), repacked("repacked");
  std::unique_ptr<Ggml> as_stored, in_own_order;
  if constexpr (compared) {
    const auto make = [&](bool repack) {
      return std::make_unique<Ggml>(static_cast<ggml_type>(F::gguf_type), shape, bytes, weights,
                                    std::span<float>(x), rows, std::span<float>(y), repack);
    };
    as_stored = make(false);
    in_own_order = make(true);
  }
#endif
#if defined(QUERN_WITH_OPENBLAS)
  Peer openblas("openblas");
  DenseMatrix decoded;
  if constexpr (std::is_same_v<Product, FloatProduct>)
    decoded = quern::to_eigen(PackedView<F, RowMajor>{bytes_of(0), shape});
#endif

  for (auto _ : state) {
    by_rows.push_back(timed([&, weight = PackedView<F, RowMajor>{bytes_of(take()), shape}] {
      Product::run(from, weight, to, room);
    }));
    state.SetIterationTime(by_rows.back());
    by_blocks.push_back(
        timed([&, weight = PackedView<F, InputBlockMajor>{bytes_of(take()), shape}] {
          Product::run(from, weight, to, room);
        }));
#if defined(QUERN_WITH_GGML)
    if constexpr (compared) {
      plain.add(timed([&] { as_stored->run(take()); }));
      if (in_own_order->ready()) repacked.add(timed([&] { in_own_order->run(take()); }));
    }
#endif
#if defined(QUERN_WITH_OPENBLAS)
    if constexpr (std::is_same_v<Product, FloatProduct>)
      openblas.add(timed([&] {
        const auto m = static_cast<blasint>(rows), n = static_cast<blasint>(shape.out.value()),
                   k = static_cast<blasint>(shape.in.value());
        if (rows == 1)
          cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, decoded.data(), k, x.data(), 1, 0.0f,
                      y.data(), 1);
        else
          cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, x.data(), k,
                      decoded.data(), k, 0.0f, y.data(), n);
      }));
#endif
  }
  const double rows_median = median(by_rows), blocks_median = median(by_blocks);
#if defined(QUERN_WITH_GGML)
  plain.report(state, rows_median, blocks_median);
  repacked.report(state, rows_median, blocks_median);
#endif
#if defined(QUERN_WITH_OPENBLAS)
  openblas.report(state, rows_median, blocks_median);
#endif
  state.counters["by_block_time"] = rows_median / blocks_median;
}

template <class Product, class F>
void add() {
  add_products(std::string(Product::name) + "/" + std::string(F::name), beside_peers<Product, F>);
}

} // namespace

int main(int argc, char** argv) {
#if defined(QUERN_WITH_GGML)
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_cpu_init();
#endif
#if defined(QUERN_WITH_OPENBLAS)
  openblas_set_num_threads(1);
#endif
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, quern::Formats>>(
      [](auto tag) {
        using F = typename decltype(tag)::type;
        if constexpr (quern::int8_width<F> != 0) add<Int8Product, F>();
        add<FloatProduct, F>();
      });
  add_context();
  return run_all(argc, argv);
}
