// floor: 0.3
#pragma once

#include <quern/detail/iq_sweep.hpp>

namespace quern::detail {

/// The 16 levels of IQ4_NL and IQ4_XS. Source of the numbers: the GGUF types 20 and 23.
inline constexpr LevelBook<16> iq4_levels{
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};

} // namespace quern::detail
