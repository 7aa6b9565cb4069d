#include "linear.hpp"

#include <algorithm>
#include <utility>

namespace engine {

Linear::Linear(const quern::gguf::File& file, std::string name, quern::MatmulOptions options,
               std::optional<Part> part)
    : name_(std::move(name)), options_(options) {
  if (!file.tensors().contains(name_)) return;
  file.visit_weight(name_, [&]<class F>(quern::PackedView<F, quern::RowMajor> weight) {
    if (part)
      weight = part->of == Part::Of::rows ? weight.narrow_out(part->from, part->count)
                                          : weight.narrow_blocks(part->from, part->count);
    shape_ = weight.shape();
    run_ = [weight](Activations& x, quern::MatrixView<float> y, quern::MatmulOptions how) {
      if constexpr (quern::int8_width<F> != 0)
        if (x.int8())
          return quern::matmul_weight_transposed(x.blocks<quern::int8_width<F>>(), weight, y, how);
      quern::matmul_weight_transposed(x.floats(), weight, y, how);
    };
    row_ = [weight](std::size_t o, std::span<float> values) { weight.decode_row(o, values); };
  });
  constexpr std::string_view suffix = ".weight";
  if (!part && name_.ends_with(suffix))
    bias_ = read_vector(file, name_.substr(0, name_.size() - suffix.size()) + ".bias");
}

void Linear::run(Activations& x, quern::MatrixView<float> y) const {
  quern::MatmulOptions how = options_;
  how.weight = name_;
  run_(x, y, how);
  if (bias_.empty()) return;
  for (std::size_t r = 0; r < y.rows(); ++r)
    std::transform(y.row(r), y.row(r) + y.cols(), bias_.begin(), y.row(r), std::plus<>{});
}

std::vector<float> read_vector(const quern::gguf::File& file, const std::string& name) {
  if (!file.tensors().contains(name)) return {};
  return file.visit_weight(name, [](auto weight) { return weight.to_floats(); });
}

} // namespace engine
