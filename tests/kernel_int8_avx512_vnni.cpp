// Kernels of AVX-512 VNNI for int8 activations: every format and order.

#include <quern/isa/avx512_vnni.hpp>
#include <quern/kernels/avx512_vnni/int8_matmul.hpp>

#if defined(QUERN_X86_KERNELS)
using TestedIsa = quern::isa::Avx512Vnni;
#include "support/int8_suite.hpp"
#endif
