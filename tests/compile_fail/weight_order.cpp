// expect 1: quern::PackedWeight: the block order does not convert; call
// quern::prepack<To>(std::move(weight))
// expect 2: quern::PackedWeight: the block order does not convert; call
// quern::prepack<To>(std::move(weight))
// expect 3: quern::PackedWeight: the block order does not convert; call
// quern::prepack<To>(std::move(weight))
// expect 4: quern::PackedWeight: the format does not convert; a weight is read in the format it was
// written in
#include <utility>

#include <quern/formats/q2_0.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/packed_weight.hpp>
#include <quern/prepack.hpp>

using Stored = quern::PackedWeight<quern::Q4_0, quern::RowMajor>;
using Prepacked = quern::PackedWeight<quern::Q4_0, quern::InputBlockMajor>;

void control(Stored& stored) {
#if QUERN_MISUSE == 1
  Prepacked moved = std::move(stored);
#elif QUERN_MISUSE == 2
  Prepacked copied(stored);
#elif QUERN_MISUSE == 3
  Prepacked assigned(quern::OutIn{4, 96});
  assigned = std::move(stored);
#elif QUERN_MISUSE == 4
  quern::PackedWeight<quern::Q2_0, quern::RowMajor> other = std::move(stored);
#endif
  Prepacked prepacked = quern::prepack<quern::InputBlockMajor>(std::move(stored));
}
