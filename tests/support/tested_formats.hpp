#pragma once

#include <boost/mp11/list.hpp>

#include <quern/formats.hpp>

namespace support {

/// The formats that typed tests go through: all, or with QUERN_TEST_FEW_FORMATS one for each way of
/// packing, for builds whose compile time would be too long otherwise.
#if defined(QUERN_TEST_FEW_FORMATS)
using TestedFormats = boost::mp11::mp_list<quern::F16, quern::Q5_1, quern::Q8_0, quern::Q4_K,
                                           quern::IQ2_S, quern::IQ1_M, quern::NVFP4>;
#else
using TestedFormats = quern::Formats;
#endif

} // namespace support
