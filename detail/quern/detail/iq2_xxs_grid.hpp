// floor: 1
#pragma once

#include <array>
#include <cstdint>

#include <quern/detail/iq_book.hpp>
#include <quern/detail/iq_grid.hpp>

namespace quern::detail {

/// The 256 magnitude patterns of eight values that IQ2_XXS can store.
/// Source of the numbers: the GGUF type 16 (IQ2_XXS).
inline constexpr auto iq2_xxs_grid = expand_grid<256, 8>(
    "#$$$$$$($&$$$((&$($(.*$(&0@..$4F<$(,$($&.,$(.($&.06$,:$4@4(&$(.&$($8::Z,!0$(,*4.(&0(.4*,R,T("
    ".&.6LBD0!.$(4><&!.PN$(82*$T*R$!:$(40J>6!J:.R!!0V$((&$((*&,$(44>*&:*:*,@(.F28,!&!<$(4&TL&,ZB4"
    "(&($F(:<P!0!:$:!4HL,(B!&!&!8(4:@JZ@F&!@$P!!8!!!P$(6>>..!*!2$(&04FBD864H!<!B!4(.(P8J!$T6,!B!!"
    "!.N!!DD8@!4!J!!!!JR",
    std::to_array<std::int8_t>({8, 25, 43}));

static_assert(grid_checksum(iq2_xxs_grid) == 0xD8556D755DB7EE40u,
              "quern: the IQ2_XXS code book is damaged");

/// The same, in the order that a search wants.
inline constexpr auto iq2_xxs_book =
    make_book(iq2_xxs_grid, std::to_array<std::int8_t>({8, 25, 43}));

} // namespace quern::detail
