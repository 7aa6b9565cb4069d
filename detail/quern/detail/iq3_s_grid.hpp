// floor: 1
#pragma once

#include <array>
#include <cstdint>

#include <quern/detail/iq_book.hpp>
#include <quern/detail/iq_grid.hpp>

namespace quern::detail {

/// The 512 magnitude patterns of four values that IQ3_S can store.
/// Source of the numbers: the GGUF type 21 (IQ3_S).
inline constexpr auto iq3_s_grid = expand_grid<512, 4>(
    "###%$###$$$#&('$%$$$'$)%%###$&#&%%&$&)/&'(#&$#%%%&%&(%$$$/%*(&%$)$%(&$/$&%-&$%((%(1,$.$&'(&$"
    "1'-%$031)$$.$&'/&6##$&#$$$#$)%$0$%+(#$%$&')%()$0($,%$#&((%,%,)%%#%((#&'3(-$'$/$)&$&7)%()$1I&"
    "%/$=$'$).&3(*#$$$#$$$%$&#$)$$%$/#%$%$(%&%%&%():%%,$')$,&,%&$%&+$'$)(0-(+%)%&;%)'+/#-/*$',>&6"
    "&/$-'<)$$$%)$$'$%$,(*$$)'$/2,&$,(,$.;)&'$&#+$&(0*('&)3(&/)$-',,/55B$/$-E&((&%%))2,'$$)('((&6"
    "$''&,'1%(.'$'$)&E$4-#;.$,C;36:'--(;(&(0&%%.('$$')+B(+,'(/9'#1/'.((%.,.F.5$YB$0Y$$.$722)?84(-"
    "'(*.'1W010%;67=K$W&%+$.$.(2)-1$>%&(%)3;:%08&(':L2B9I",
    std::to_array<std::int8_t>({1, 3, 5, 7, 9, 11, 13, 15}));

static_assert(grid_checksum(iq3_s_grid) == 0x046782A8383AF15Bu,
              "quern: the IQ3_S code book is damaged");

/// The same, in the order that a search wants.
inline constexpr auto iq3_s_book =
    make_book(iq3_s_grid, std::to_array<std::int8_t>({1, 3, 5, 7, 9, 11, 13, 15}));

} // namespace quern::detail
