// Kernels of Neon with dot products for int8 activations: every format and order.

#include <quern/isa/neon_dotprod.hpp>
#include <quern/kernels/neon/int8_matmul.hpp>

#if defined(QUERN_ARM_KERNELS)
using TestedIsa = quern::isa::NeonDotprod;
#include "support/int8_suite.hpp"
#endif
