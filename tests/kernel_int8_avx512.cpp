// Kernels of AVX-512 for int8 activations: every format and order.

#include <quern/isa/avx512.hpp>
#include <quern/kernels/avx512/int8_matmul.hpp>

#if defined(QUERN_X86_KERNELS)
using TestedIsa = quern::isa::Avx512;
#include "support/int8_suite.hpp"
#endif
