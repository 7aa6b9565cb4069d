// expect 1: quern::PackedView: the block order does not convert; call quern::prepack<To>(view,
// scope)
// expect 2: quern::PackedView: the block order does not convert; call quern::prepack<To>(view,
// scope)
// expect 3: quern::PackedView: the block order does not convert; call quern::prepack<To>(view,
// scope)
// expect 4: quern::PackedView: the block order does not convert; call quern::prepack<To>(view,
// scope)
// expect 5: quern::PackedView: the block order does not convert; call quern::prepack<To>(view,
// scope)
#include <quern/formats/q4_0.hpp>
#include <quern/packed_view.hpp>

using Stored = quern::PackedView<quern::Q4_0, quern::RowMajor>;
using Prepacked = quern::PackedView<quern::Q4_0, quern::InputBlockMajor>;

void kernel(Prepacked weight);

Prepacked control(Stored stored, Prepacked prepacked) {
  Stored same = stored;
  same = stored;
  kernel(prepacked);
  (void)same;

#if QUERN_MISUSE == 1
  Prepacked implicit = stored;
#elif QUERN_MISUSE == 2
  Prepacked explicitly{stored};
#elif QUERN_MISUSE == 3
  prepacked = stored;
#elif QUERN_MISUSE == 4
  kernel(stored);
#elif QUERN_MISUSE == 5
  return stored;
#endif
  return prepacked;
}
