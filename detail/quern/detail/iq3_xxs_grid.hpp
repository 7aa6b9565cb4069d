// floor: 1
#pragma once

#include <array>
#include <cstdint>

#include <quern/detail/iq_book.hpp>
#include <quern/detail/iq_grid.hpp>

namespace quern::detail {

/// The 256 magnitude patterns of four values that IQ3_XXS can store.
/// Source of the numbers: the GGUF type 18 (IQ3_XXS).
inline constexpr auto iq3_xxs_grid = expand_grid<256, 4>(
    "#$$'$&#$)+;$&$'$)&%$)-.*$$')$)$&,(0&(#$-E56'-.$&(52U96&$702$'$)$'$$-#:$))$Q$'$))D($0+/2-&EJ&"
    "45.!70B$)$'$&%+A$$%$))=&#*$)(#$/#/6)&N&C0:6,=!/$-9>)$)$7/'($0+-$=$'/7214!'15((.=A47J76-0$.&!"
    "761#2(3@AG-C07!7%$0T99*(29A0B*K?-&E*9!9N0T2$0?B@GF(!0CGSJ0T$$#42N,L='8/07C2A$4!.",
    std::to_array<std::int8_t>({4, 12, 20, 28, 36, 44, 52, 62}));

static_assert(grid_checksum(iq3_xxs_grid) == 0xAD67A04DE7629A07u,
              "quern: the IQ3_XXS code book is damaged");

/// The same, in the order that a search wants.
inline constexpr auto iq3_xxs_book =
    make_book(iq3_xxs_grid, std::to_array<std::int8_t>({4, 12, 20, 28, 36, 44, 52, 62}));

} // namespace quern::detail
