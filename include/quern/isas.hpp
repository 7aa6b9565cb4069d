// floor: 3
#pragma once

#include <cstddef>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/isa.hpp>
#include <quern/isa/avx2.hpp>
#include <quern/isa/avx512.hpp>
#include <quern/isa/avx512_vnni.hpp>
#include <quern/isa/avx_vnni.hpp>
#include <quern/isa/neon.hpp>
#include <quern/isa/neon_dotprod.hpp>
#include <quern/isa/scalar.hpp>

namespace quern {

/// Every instruction set that kernels are written for, best first. The last one is available
/// everywhere.
using Isas = boost::mp11::mp_list<isa::Avx512Vnni, isa::Avx512, isa::AvxVnni, isa::Avx2,
                                  isa::NeonDotprod, isa::Neon, isa::Scalar>;

static_assert(boost::mp11::mp_is_set<Isas>::value, "quern::Isas: an instruction set twice");

/// The best instruction set that a call may use. Without a limit that is the best one of this CPU.
/// A limit is for tests and for comparing kernels; it never makes an instruction set available.
class IsaLimit {
public:
  /// No limit.
  constexpr IsaLimit() noexcept = default;

  /// True when `I` stands at or behind the limit in Isas.
  template <Isa I>
  [[nodiscard]] constexpr bool allows() const noexcept {
    return boost::mp11::mp_find<Isas, I>::value >= first_;
  }

private:
  template <Isa I>
  friend constexpr IsaLimit at_most() noexcept;

  std::size_t first_ = 0;
};

/// The limit `I`: that instruction set and those behind it in Isas.
template <Isa I>
[[nodiscard]] constexpr IsaLimit at_most() noexcept {
  static_assert(boost::mp11::mp_contains<Isas, I>::value,
                "quern::at_most: the instruction set is not in quern::Isas");
  IsaLimit limit;
  limit.first_ = boost::mp11::mp_find<Isas, I>::value;
  return limit;
}

} // namespace quern
