// expect 1: quern::prepack: a ForwardScope frees its memory at every step, so no weight can live
// there; prepack into a ModelScope
// expect 2: quern::prepack: a ForwardScope frees its memory at every step, so no weight can live
// there; prepack into a ModelScope
// expect 3: quern::prepack: a relayout needs a place for its bytes; pass the scope that holds them,
// prepack<To>(view, model_scope)
// expect 4: quern::prepack: a relayout needs a place for its bytes; pass the scope that holds them,
// prepack<To>(view, model_scope)
#include <quern/formats/q4_0.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>

void control(quern::PackedView<quern::Q4_0, quern::RowMajor> view, quern::ModelScope& model,
             quern::ForwardScope& forward) {
  const auto prepacked = quern::prepack<quern::InputBlockMajor>(view, model);
  // Nothing to do needs no memory, wherever it would be.
  (void)quern::prepack<quern::RowMajor>(view);
  (void)quern::prepack<quern::RowMajor>(view, forward);

#if QUERN_MISUSE == 1
  (void)quern::prepack<quern::InputBlockMajor>(view, forward);
#elif QUERN_MISUSE == 2
  (void)quern::prepack<quern::RowMajor>(prepacked, forward, quern::no_trace);
#elif QUERN_MISUSE == 3
  (void)quern::prepack<quern::InputBlockMajor>(view);
#elif QUERN_MISUSE == 4
  (void)quern::prepack<quern::RowMajor>(prepacked);
#endif
  (void)prepacked;
}
