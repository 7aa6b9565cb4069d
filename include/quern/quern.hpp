// floor: 9
#pragma once

/// @file
/// Everything except Eigen (quern/eigen/reference.hpp), GGUF files (quern/gguf/file.hpp) and
/// loading from them (quern/load.hpp).

#include <quern/activation.hpp>
#include <quern/any_view.hpp>
#include <quern/bitnet.hpp>
#include <quern/block_fault.hpp>
#include <quern/block_format.hpp>
#include <quern/decode.hpp>
#include <quern/dispatch.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/fixtures.hpp>
#include <quern/formats.hpp>
#include <quern/gather.hpp>
#include <quern/has_kernel.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernel_set.hpp>
#include <quern/matmul.hpp>
#include <quern/matmul_plan.hpp>
#include <quern/matrix_view.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>
#include <quern/packed_weights.hpp>
#include <quern/prepack.hpp>
#include <quern/q8_1.hpp>
#include <quern/q8_k.hpp>
#include <quern/quantize.hpp>
#include <quern/quantize_activations.hpp>
#include <quern/quantize_options.hpp>
#include <quern/scope.hpp>
#include <quern/shape.hpp>
#include <quern/step_span.hpp>
#include <quern/strided_view.hpp>
#include <quern/trace.hpp>
#include <quern/trace_json.hpp>
#include <quern/trace_sinks.hpp>
#include <quern/validate.hpp>
#include <quern/version.hpp>
