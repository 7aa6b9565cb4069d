// Kernels of AVX2 for int8 activations: every format and order.

#include <quern/isa/avx2.hpp>
#include <quern/kernels/avx2/int8_matmul.hpp>

#if defined(QUERN_X86_KERNELS)
using TestedIsa = quern::isa::Avx2;
#include "support/int8_suite.hpp"
#endif
