// expect 1: quern::matmul_weight_transposed: these activations were quantized in blocks of another
// width than this weight format meets; use quantize_activations<int8_width<Format>>(x, scope)
// expect 2: quern::matmul_weight_transposed: these activations were quantized in blocks of another
// width than this weight format meets; use quantize_activations<int8_width<Format>>(x, scope)
// expect 3: quern::kernels::Matmul: this kernel reads one format, one block order and activations
// of one width, and something here is of another
// expect 4: quern::kernels::Matmul: this kernel reads one format, one block order and activations
// of one width, and something here is of another
#include <quern/activation.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/formats/tq2_0.hpp>
#include <quern/matmul.hpp>

using quern::InputBlockMajor;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;
using quern::TQ2_0;

using Kernel = quern::kernels::Matmul<quern::Int8Blocks<32>, Q4_0, RowMajor, quern::isa::Scalar>;

void control(const quern::Int8Blocks<32>& narrow, const quern::Int8Blocks<256>& wide,
             PackedView<Q4_0, RowMajor> of_32, PackedView<TQ2_0, InputBlockMajor> of_256,
             PackedView<Q4_0, InputBlockMajor> prepacked, quern::MatrixView<float> y) {
  quern::matmul_weight_transposed(narrow, of_32, y);
  quern::matmul_weight_transposed(wide, of_256, y);
  Kernel::run(narrow, of_32, y);

#if QUERN_MISUSE == 1
  quern::matmul_weight_transposed(wide, of_32, y);
#elif QUERN_MISUSE == 2
  quern::matmul_weight_transposed(narrow, of_256, y);
#elif QUERN_MISUSE == 3
  Kernel::run(wide, of_32, y);
#elif QUERN_MISUSE == 4
  Kernel::run(narrow, prepacked, y);
#endif
  (void)prepacked;
}
