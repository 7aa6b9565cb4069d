// expect 1: quern::prepack: only a packed weight has a block order; a dense matrix needs no
// prepack, or quantize<Format>() first
// expect 2: quern::PackedView: packed blocks are not floats; decode them with to_floats(),
// decode(view, matrix) or to_eigen(view)
// expect 3: quern::PackedView: packed blocks are not floats; decode them with to_floats(),
// decode(view, matrix) or to_eigen(view)
#include <quern/eigen/reference.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>

void multiply(const Eigen::MatrixXf& dense);

void control(quern::PackedView<quern::Q4_0, quern::RowMajor> view, quern::ModelScope& scope) {
  Eigen::MatrixXf matrix = quern::to_eigen(view);
  multiply(matrix);
  (void)quern::prepack<quern::InputBlockMajor>(view, scope);

#if QUERN_MISUSE == 1
  (void)quern::prepack<quern::InputBlockMajor>(matrix, scope);
#elif QUERN_MISUSE == 2
  Eigen::MatrixXf dense = view;
#elif QUERN_MISUSE == 3
  multiply(view);
#endif
}
