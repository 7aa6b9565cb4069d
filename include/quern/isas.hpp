// floor: 3
#pragma once

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/isa.hpp>
#include <quern/isa/scalar.hpp>

namespace quern {

/// Every instruction set of this build, best first. The last one is available everywhere.
using Isas = boost::mp11::mp_list<isa::Scalar>;

static_assert(boost::mp11::mp_is_set<Isas>::value, "quern::Isas: an instruction set twice");

} // namespace quern
