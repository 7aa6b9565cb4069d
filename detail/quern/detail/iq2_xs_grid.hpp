// floor: 1
#pragma once

#include <array>
#include <cstdint>

#include <quern/detail/iq_book.hpp>
#include <quern/detail/iq_grid.hpp>

namespace quern::detail {

/// The 512 magnitude patterns of eight values that IQ2_XS can store.
/// Source of the numbers: the GGUF type 17 (IQ2_XS).
inline constexpr auto iq2_xs_grid = expand_grid<512, 8>(
    "#$$$$$$$$$$$$&$$$$$$$&$($$$&$&$,$$$$$$$$$$($$$&$((&$(4$$$&$(,$(&0*6$$$$$$$&$($$$&$$&,$(4$$$&"
    "$(,$(,*>$(0&$>:$$$$$$(&($((.4*$$(4>(64(N&,$$$$$$$&$($$$&$(*$$(4$$$&$(,$(4.$0$$&44F$$$&$(,$&$"
    ".(>$(4X.8R$($2.68&P!.L$$$$$$$(,$(44,$(4(2B6D:&$(2$X>,B.2!&&($,860!$.:.H&$6$$$$$$$&$($$$$$$(&"
    "($(4$$$&$(,$(4&2*$($0$X$$$&$&$,$(4.2$(.(N,*8(P$(4&**D,6(2B!8$$$&$((&$(4>$(&0$V@T$$(,*4,4*(R("
    "JB8*.2*D>,$!X:$(4.*.6$!P0@20!64&N!BVT!*D*D$$$&$(*$$(4$8$$$$&4,(H4F$2(&$($$0426@P6H>(28,$8*!J"
    "D(*,&$(402:6>!466&<((!*H$N!DJH!&BF$&$,*PP(D&$&6>4FJ!!B66,$&R((X$P$H2",
    std::to_array<std::int8_t>({8, 25, 43}));

static_assert(grid_checksum(iq2_xs_grid) == 0x7328DE7DB0E6BC0Au,
              "quern: the IQ2_XS code book is damaged");

/// The same, in the order that a search wants.
inline constexpr auto iq2_xs_book = make_book(iq2_xs_grid, std::to_array<std::int8_t>({8, 25, 43}));

} // namespace quern::detail
