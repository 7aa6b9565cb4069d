// expect 1: y = x * W^T is matmul_weight_transposed(x, w), and a dense transpose starts with
// to_floats()
// expect 2: y = x * W^T is matmul_weight_transposed(x, w), and a dense transpose starts with
// to_floats()
// expect 3: y = x * W^T is matmul_weight_transposed(x, weight.view()), and a dense transpose starts
// with to_floats()
#include <span>

#include <quern/formats/q4_0.hpp>
#include <quern/matmul.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>

void control(std::span<const float> x, std::span<float> y,
             quern::PackedView<quern::Q4_0, quern::RowMajor> view,
             const quern::PackedWeight<quern::Q4_0, quern::InputBlockMajor>& weight) {
  quern::matmul_weight_transposed(x, view, y);
  quern::matmul_weight_transposed(x, weight.view(), y);

#if QUERN_MISUSE == 1
  transpose(view);
#elif QUERN_MISUSE == 2
  view.transpose();
#elif QUERN_MISUSE == 3
  transpose(weight);
#endif
}
