// expect 1: quern::PackedView: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 2: quern::PackedView: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 3: quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 4: quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 5: quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 6: quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 7: quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 8: quern::OutIn: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
#include <cstddef>
#include <span>
#include <vector>

#include <quern/formats/q4_0.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/packed_weights.hpp>
#include <quern/quantize.hpp>

using View = quern::PackedView<quern::Q4_0, quern::RowMajor>;
using Weight = quern::PackedWeight<quern::Q4_0, quern::RowMajor>;

void control(const std::vector<std::byte>& bytes, std::span<const float> values,
             quern::NeShape label) {
  quern::OutIn shape = quern::out_in(label);
  (void)View{bytes, shape};
  (void)Weight{shape};
  (void)quern::to_kernel_order<quern::Q4_0>(bytes, shape);
  (void)quern::quantize<quern::Q4_0>(values, shape);

#if QUERN_MISUSE == 1
  View view{bytes, label};
#elif QUERN_MISUSE == 2
  View view{std::span{bytes}, quern::NeShape{96, 2}};
#elif QUERN_MISUSE == 3
  Weight weight{label};
#elif QUERN_MISUSE == 4
  (void)quern::to_kernel_order<quern::Q4_0>(bytes, label);
#elif QUERN_MISUSE == 5
  (void)quern::quantize<quern::Q4_0>(values, label);
#elif QUERN_MISUSE == 6
  quern::OutIn relabelled = label;
#elif QUERN_MISUSE == 7
  quern::OutIn relabelled{label};
#elif QUERN_MISUSE == 8
  shape = label;
#endif
}
