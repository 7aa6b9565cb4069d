// expect 1: quern::prepack: only a packed weight has a block order; a dense matrix needs no
// prepack, or quantize<Format>() first
// expect 2: quern::prepack: only a packed weight has a block order; a dense matrix needs no
// prepack, or quantize<Format>() first
// expect 3: quern::prepack: only a packed weight has a block order; a dense matrix needs no
// prepack, or quantize<Format>() first
// expect 4: quern::prepack: only a packed weight has a block order; a dense matrix needs no
// prepack, or quantize<Format>() first
#include <utility>
#include <vector>

#include <quern/formats/q4_0.hpp>
#include <quern/matrix_view.hpp>
#include <quern/prepack.hpp>
#include <quern/quantize.hpp>
#include <quern/scope.hpp>

void control(const std::vector<float>& values, quern::ModelScope& scope) {
  auto weight = quern::quantize<quern::Q4_0>(values, quern::OutIn{2, 96});
  (void)quern::prepack<quern::InputBlockMajor>(weight.view(), scope);
  (void)quern::prepack<quern::InputBlockMajor>(std::move(weight));

#if QUERN_MISUSE == 1
  (void)quern::prepack<quern::InputBlockMajor>(values, scope);
#elif QUERN_MISUSE == 2
  (void)quern::prepack<quern::InputBlockMajor>(values);
#elif QUERN_MISUSE == 3
  (void)quern::prepack<quern::RowMajor>(quern::MatrixView<const float>{values, 2, 96}, scope);
#elif QUERN_MISUSE == 4
  (void)quern::prepack<quern::InputBlockMajor>(std::vector<float>(192), scope, quern::no_trace);
#endif
}
