// floor: 4
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <variant>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/formats.hpp>
#include <quern/order.hpp>
#include <quern/packed_view.hpp>
#include <quern/shape.hpp>

namespace quern {

/// A packed view whose format and order are known only at run time: one alternative per format and
/// order. `std::visit` gives the typed view back.
using AnyView =
    boost::mp11::mp_rename<boost::mp11::mp_product<PackedView, Formats, Orders>, std::variant>;

/// The format's name.
[[nodiscard]] inline std::string_view format_name(const AnyView& view) {
  return std::visit([](const auto& v) { return std::remove_cvref_t<decltype(v)>::Format::name; },
                    view);
}

/// The order's name.
[[nodiscard]] inline std::string_view order_name(const AnyView& view) {
  return std::visit([](const auto& v) { return std::remove_cvref_t<decltype(v)>::Order::name; },
                    view);
}

/// The shape, `[out, in]`.
[[nodiscard]] inline OutIn shape(const AnyView& view) {
  return std::visit([](const auto& v) { return v.shape(); }, view);
}

} // namespace quern
