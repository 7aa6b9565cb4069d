#pragma once

#include <string>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>
#include <gtest/gtest.h>

#include <quern/formats.hpp>
#include <quern/order.hpp>

#include "tested_formats.hpp"

/// @file
/// The lists of quern as types of GoogleTest, with names in the output instead of numbers.
///
///     TYPED_TEST_SUITE(Decode, support::EachFormat, support::Names);

namespace support {

/// One format with one order.
template <class F, class O>
struct Packed {
  using Format = F;
  using Order = O;
};

template <class List>
using Types = boost::mp11::mp_rename<List, testing::Types>;

using EachFormat = Types<TestedFormats>;
using EachFormatAndOrder = Types<boost::mp11::mp_product<Packed, TestedFormats, quern::Orders>>;

struct Names {
  template <class T>
  static std::string GetName(int /*index*/) {
    if constexpr (requires { T::name; })
      return std::string(T::name);
    else
      return std::string(T::Format::name) + "_" + std::string(T::Order::name);
  }
};

} // namespace support
