// Kernels of AVX-VNNI for int8 activations: every format and order.

#include <quern/isa/avx_vnni.hpp>
#include <quern/kernels/avx_vnni/int8_matmul.hpp>

#if defined(QUERN_X86_KERNELS)
using TestedIsa = quern::isa::AvxVnni;
#include "support/int8_suite.hpp"
#endif
