// expect 1: quern::PackedView: the format does not convert; a weight is read in the format it was
// written in
// expect 2: quern::PackedView: the format does not convert; a weight is read in the format it was
// written in
// expect 3: quern::PackedView: the format does not convert; a weight is read in the format it was
// written in
#include <quern/formats/q1_0.hpp>
#include <quern/formats/q2_0.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/packed_view.hpp>

using View = quern::PackedView<quern::Q4_0, quern::RowMajor>;

// Blocks of the same size, so that nothing but the type can tell them apart.
static_assert(quern::Q1_0::bytes_per_block == quern::Q4_0::bytes_per_block);
static_assert(quern::Q2_0::bytes_per_block == quern::Q4_0::bytes_per_block);

void control(View view) {
  View same = view;
  (void)same;

#if QUERN_MISUSE == 1
  quern::PackedView<quern::Q1_0, quern::RowMajor> implicit = view;
#elif QUERN_MISUSE == 2
  quern::PackedView<quern::Q2_0, quern::RowMajor> explicitly(view);
#elif QUERN_MISUSE == 3
  quern::PackedView<quern::Q2_0, quern::InputBlockMajor> both{view};
#endif
}
