// expect 1: quern::dequantize: the values are decoded to float, F32, F16 or BF16; for a packed
// format write requantize<Format>
// expect 2: quern::dequantize: the values are decoded to float, F32, F16 or BF16; for a packed
// format write requantize<Format>
// expect 3: quern::requantize: the target is a format of quern::Formats; for floats write
// dequantize<float>
#include <quern/formats/q4_0.hpp>
#include <quern/weight_form.hpp>

using quern::dequantize;
using quern::requantize;

constexpr quern::WeightForm floats{dequantize<float>};
constexpr quern::WeightForm packed{requantize<quern::Q4_0>, quern::WeightOrder::kernel};

#if QUERN_MISUSE == 1
constexpr quern::WeightForm wrong{dequantize<quern::Q4_0>};
#elif QUERN_MISUSE == 2
constexpr quern::WeightForm wrong{dequantize<double>};
#elif QUERN_MISUSE == 3
constexpr quern::WeightForm wrong{requantize<float>};
#endif
