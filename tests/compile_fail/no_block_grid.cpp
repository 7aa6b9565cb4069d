// expect 1: quern::BlockFormat: this encoding holds activations, or has one scale for a whole
// tensor, so it has no grid of blocks and no packed view or weight; use its own functions
// expect 2: quern::BlockFormat: this encoding holds activations, or has one scale for a whole
// tensor, so it has no grid of blocks and no packed view or weight; use its own functions
// expect 3: quern::BlockFormat: this encoding holds activations, or has one scale for a whole
// tensor, so it has no grid of blocks and no packed view or weight; use its own functions
// expect 4: quern::BitNetView: NeShape is GGUF's label, fastest extent first; convert it with
// quern::out_in(shape)
// expect 5: quern::BitNetWeight::view: a view of a temporary would dangle; keep the weight in a
// variable that outlives the view
#include <quern/bitnet.hpp>
#include <quern/formats/tq2_0.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/q8_1.hpp>
#include <quern/q8_k.hpp>

void control(std::span<const std::byte> bytes, const std::vector<float>& values) {
  quern::PackedView<quern::TQ2_0, quern::RowMajor> blocks{bytes, quern::OutIn{3, 256}};
  const auto weight = quern::quantize_bitnet(values, quern::OutIn{3, 5});
  quern::BitNetView tensor = weight.view();
  (void)blocks;
  (void)tensor;

#if QUERN_MISUSE == 1
  quern::PackedView<quern::BitNet, quern::RowMajor> no_grid{bytes, quern::OutIn{3, 256}};
#elif QUERN_MISUSE == 2
  quern::PackedWeight<quern::Q8_K, quern::RowMajor> activations{quern::OutIn{3, 256}};
#elif QUERN_MISUSE == 3
  quern::PackedView<quern::Q8_1, quern::InputBlockMajor> no_weights{bytes, quern::OutIn{3, 256}};
#elif QUERN_MISUSE == 4
  quern::BitNetView label{bytes, quern::NeShape{5, 3}};
#elif QUERN_MISUSE == 5
  quern::BitNetView dangling = quern::quantize_bitnet(values, quern::OutIn{3, 5}).view();
#endif
}
