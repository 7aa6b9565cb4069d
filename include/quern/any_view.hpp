// floor: 4
#pragma once

#include <concepts>
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
/// order. `std::visit` gives the typed view back. What is below are templates so that only those
/// who call it compile a visit of all alternatives.
using AnyView =
    boost::mp11::mp_rename<boost::mp11::mp_product<PackedView, Formats, Orders>, std::variant>;

/// The format's name.
template <std::same_as<AnyView> View>
[[nodiscard]] std::string_view format_name(const View& view) {
  return std::visit([](const auto& v) { return std::remove_cvref_t<decltype(v)>::Format::name; },
                    view);
}

/// The order's name.
template <std::same_as<AnyView> View>
[[nodiscard]] std::string_view order_name(const View& view) {
  return std::visit([](const auto& v) { return std::remove_cvref_t<decltype(v)>::Order::name; },
                    view);
}

/// The shape, `[out, in]`.
template <std::same_as<AnyView> View>
[[nodiscard]] OutIn shape(const View& view) {
  return std::visit([](const auto& v) { return v.shape(); }, view);
}

} // namespace quern
