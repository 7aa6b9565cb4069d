// expect 1: quern::prepack: an owned weight is reordered in its own memory; hand it over,
// prepack<To>(std::move(weight)), or copy it, prepack<To>(weight.view(), model_scope)
// expect 2: quern::prepack: an owned weight is reordered in its own memory; hand it over,
// prepack<To>(std::move(weight)), or copy it, prepack<To>(weight.view(), model_scope)
// expect 3: quern::prepack: an owned weight is reordered in its own memory; hand it over,
// prepack<To>(std::move(weight)), or copy it, prepack<To>(weight.view(), model_scope)
#include <utility>

#include <quern/formats/q4_0.hpp>
#include <quern/packed_weight.hpp>
#include <quern/prepack.hpp>
#include <quern/scope.hpp>
#include <quern/trace.hpp>

class Sink final : public quern::Trace {
  void record(const quern::Event&) override {}
};

void control(quern::PackedWeight<quern::Q4_0, quern::RowMajor>& weight, quern::ModelScope& scope) {
  (void)quern::prepack<quern::InputBlockMajor>(weight.view(), scope);
#if QUERN_MISUSE == 1
  (void)quern::prepack<quern::InputBlockMajor>(weight);
#elif QUERN_MISUSE == 2
  (void)quern::prepack<quern::InputBlockMajor>(weight, scope);
#elif QUERN_MISUSE == 3
  (void)quern::prepack<quern::RowMajor>(std::as_const(weight), quern::no_trace);
#endif
  (void)quern::prepack<quern::RowMajor>(std::move(weight));
  Sink sink;
  (void)quern::prepack<quern::InputBlockMajor>(std::move(weight), sink);
}
