// expect 1: quern::plan: no_fallback, and this build has no kernel of an instruction set for this
// weight format and these activations, in neither block order; allow_fallback runs the portable
// kernel
// expect 2: quern::plan: no_fallback, and this build has no kernel of an instruction set for this
// weight format and these activations, in neither block order; allow_fallback runs the portable
// kernel
// expect 3: quern::plan: no kernel reads activations of this type with this weight format; use
// float, or Int8For<Format>
#include <quern/formats/q4_0.hpp>
#include <quern/matmul_plan.hpp>

using quern::Int8Blocks;
using quern::no_fallback;
using quern::PackedView;
using quern::Q4_0;
using quern::RowMajor;

// A format of the user's own, for which nobody wrote a kernel.
struct Own : Q4_0 {
  static constexpr std::string_view name = "Own";
  static constexpr std::uint32_t gguf_type = 0x4F574E;
};

void control(PackedView<Q4_0, RowMajor> known, PackedView<Own, RowMajor> own,
             quern::MatrixView<const float> x, quern::MatrixView<float> y,
             quern::ForwardScope& step) {
  (void)quern::plan(own);
  quern::dispatch(x, own, y, step);
  (void)quern::plan<quern::allow_fallback, Int8Blocks<32>>(known);
#if defined(QUERN_X86_KERNELS)
  (void)quern::plan<no_fallback>(known);
  quern::dispatch<no_fallback>(x, known, y, step);
#endif

#if QUERN_MISUSE == 1
  (void)quern::plan<no_fallback>(own);
#elif QUERN_MISUSE == 2
  quern::dispatch<no_fallback>(x, own, y, step);
#elif QUERN_MISUSE == 3
  (void)quern::plan<quern::allow_fallback, Int8Blocks<256>>(known);
#endif
}
