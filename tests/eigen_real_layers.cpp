// Layers of trained models with inputs and products that the reference implementation computed in
// double. They are data of their own, not part of the project.

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <quern/eigen/reference.hpp>
#include <quern/formats.hpp>
#include <quern/gguf/file.hpp>
#include <quern/matmul.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>

#include "support/tested_formats.hpp"

namespace {

using quern::InputBlockMajor;
using quern::RowMajor;
using quern::RowMajorMatrix;

constexpr double limit = 1e-5;

double relative_error(std::span<const float> y, std::span<const float> expected) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = static_cast<double>(expected[i]);
    difference += std::pow(static_cast<double>(y[i]) - value, 2);
    size += value * value;
  }
  return std::sqrt(difference / size);
}

TEST(RealLayers, MultiplyToTheirStoredProductsInBothOrders) {
  const std::string path = std::string(QUERN_SHARED_DIR) + "/real/dense_layers.gguf";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "the real layers are not on this machine; synthetic weights were tested alone";
  const auto file = quern::gguf::File::map(path);
  std::map<std::string_view, int> tested;
  const std::string_view mark = ".weight.";
  for (const auto& tensor : file.tensors()) {
    const auto at = tensor.name.find(mark);
    if (at == std::string_view::npos) continue;
    const std::string layer(tensor.name.substr(0, at));
    const std::string format(tensor.name.substr(at + mark.size()));
    (void)quern::with_format(tensor.type_id, [&](auto tag) {
      using F = typename decltype(tag)::type;
      SCOPED_TRACE(std::string(tensor.name));
      const auto weight = file.weight<F>(tensor.name);
      const auto x = file.weight<quern::F32>(layer + ".input").to_floats();
      const auto expected = file.weight<quern::F32>(layer + ".output." + format).to_floats();
      const std::size_t m = x.size() / weight.in();
      ASSERT_EQ(expected.size(), m * weight.out());

      quern::ModelScope scope;
      const auto packed = quern::prepack<InputBlockMajor>(weight, scope);
      std::vector<float> y(expected.size());
      quern::matmul_weight_transposed(x, weight, y);
      EXPECT_LT(relative_error(y, expected), limit);
      std::vector<float> again(expected.size());
      quern::matmul_weight_transposed(x, packed, again);
      EXPECT_EQ(y, again);

      const Eigen::Map<const RowMajorMatrix<float>> activations(
          x.data(), static_cast<Eigen::Index>(m), static_cast<Eigen::Index>(weight.in()));
      for (const auto& reference :
           {quern::reference::matmul_weight_transposed(activations, weight),
            quern::reference::matmul_weight_transposed(activations, packed)})
        EXPECT_LT(relative_error({reference.data(), expected.size()}, expected), limit);
      ++tested[F::name];
    });
  }
  boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, support::TestedFormats>>(
      [&](auto tag) {
        using F = typename decltype(tag)::type;
        if constexpr (F::block_size > 1) {
          EXPECT_GE(tested[F::name], 1) << F::name;
        }
      });
}

} // namespace
