// floor: 7
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/formats.hpp>
#include <quern/has_kernel.hpp>
#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/order.hpp>

namespace quern {

/// The kernels that a machine has, best first: what decides in which form a weight is loaded.
class KernelSet {
public:
  /// A set for another machine, or a smaller one. The order of `keys` is the order of preference.
  explicit KernelSet(std::vector<KernelKey> keys) : keys_(std::move(keys)) {}

  /// The kernels of this build that this CPU can run, within `limit`: by instruction set as in
  /// Isas; among those of one set, float activations before int8 and RowMajor before
  /// InputBlockMajor, so that nothing is converted without a gain.
  template <class = void> // so that only those who call it compile it
  [[nodiscard]] static KernelSet of_this_cpu(IsaLimit limit = {}) {
    std::vector<KernelKey> keys;
    const auto add = [&]<class... I>(boost::mp11::mp_list<I...>) {
      using Reads = boost::mp11::mp_product<boost::mp11::mp_list, Activations, Formats, Orders>;
      ((limit.allows<I>() && I::available() ? add_all<I>(Reads{}, keys) : void()), ...);
    };
    add(Isas{});
    return KernelSet(std::move(keys));
  }

  /// All of them, in order of preference; valid as long as this object.
  [[nodiscard]] std::span<const KernelKey> keys() const noexcept { return keys_; }

  /// The best kernel for weights of this format, or null.
  [[nodiscard]] const KernelKey* best(std::string_view format) const noexcept {
    const auto found = std::ranges::find(keys_, format, &KernelKey::format);
    return found == keys_.end() ? nullptr : &*found;
  }

  /// True when the kernel is one of them.
  [[nodiscard]] bool contains(const KernelKey& key) const noexcept {
    return std::ranges::find(keys_, key) != keys_.end();
  }

private:
  /// Adds the kernels of one instruction set.
  template <class I, class... Read>
  static void add_all(boost::mp11::mp_list<Read...>, std::vector<KernelKey>& keys) {
    (add_one<I>(Read{}, keys), ...);
  }
  template <class I, class A, class F, class O>
  static void add_one(boost::mp11::mp_list<A, F, O>, std::vector<KernelKey>& keys) {
    if constexpr (has_kernel<A, F, O, I>)
      keys.push_back(KernelKeyOf<MatmulOperation, A, F, O, I>::value);
  }

  std::vector<KernelKey> keys_;
};

} // namespace quern
