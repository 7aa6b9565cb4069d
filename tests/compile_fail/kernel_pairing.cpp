// expect 1: quern::kernels::Matmul: this kernel reads one format and one block order, and the
// weight has another
// expect 2: quern::kernels::Matmul: this kernel reads one format and one block order, and the
// weight has another
// expect 3: quern::kernels::Matmul: this kernel reads one format and one block order, and the
// weight has another
// expect 4: quern::kernels::Matmul: this kernel reads one format and one block order, and the
// weight has another
#include <quern/formats/q2_0.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/kernels/scalar.hpp>

using quern::InputBlockMajor;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using Rows = quern::kernels::Matmul<float, Q4_0, RowMajor, quern::isa::Scalar>;
using Blocks = quern::kernels::Matmul<float, Q4_0, InputBlockMajor, quern::isa::Scalar>;

void control(quern::MatrixView<const float> x, quern::MatrixView<float> y,
             PackedView<Q4_0, RowMajor> stored, PackedView<Q4_0, InputBlockMajor> prepacked,
             PackedView<quern::Q2_0, RowMajor> other) {
  Rows::run(x, stored, y);
  Blocks::run(x, prepacked, y);

#if QUERN_MISUSE == 1
  Blocks::run(x, stored, y);
#elif QUERN_MISUSE == 2
  Rows::run(x, prepacked, y);
#elif QUERN_MISUSE == 3
  Rows::run(x, other, y);
#elif QUERN_MISUSE == 4
  Blocks::run(x, other, y);
#endif
  (void)other;
}
