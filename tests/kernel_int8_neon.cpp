// Kernels of Neon for int8 activations: every format and order.

#include <quern/isa/neon.hpp>
#include <quern/kernels/neon/int8_matmul.hpp>

#if defined(QUERN_ARM_KERNELS)
using TestedIsa = quern::isa::Neon;
#include "support/int8_suite.hpp"
#endif
