// floor: 9
#pragma once

/// @file
/// Everything except Eigen (quern/eigen/reference.hpp) and GGUF files (quern/gguf/file.hpp).

#include <quern/any_view.hpp>
#include <quern/bitnet.hpp>
#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/decode.hpp>
#include <quern/error.hpp>
#include <quern/fixtures.hpp>
#include <quern/formats.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels.hpp>
#include <quern/matmul.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/packed_weights.hpp>
#include <quern/prepack.hpp>
#include <quern/q8_1.hpp>
#include <quern/q8_k.hpp>
#include <quern/quantize.hpp>
#include <quern/quantize_options.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/trace.hpp>
#include <quern/validate.hpp>
#include <quern/version.hpp>
