// Kernels of portable C++ for int8 activations: every format and order.

#include <quern/isa/scalar.hpp>
#include <quern/kernels/int8_scalar.hpp>

using TestedIsa = quern::isa::Scalar;
#include "support/int8_suite.hpp"
