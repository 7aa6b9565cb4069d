// floor: 7
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/isas.hpp>
#include <quern/kernel.hpp>
#include <quern/kernels.hpp>

namespace quern {

/// The kernels that a machine has, best first: what decides in which form a weight is loaded.
class KernelSet {
public:
  /// A set for another machine, or a smaller one. The order of `keys` is the order of preference.
  explicit KernelSet(std::vector<KernelKey> keys) : keys_(std::move(keys)) {}

  /// The kernels of this build that this CPU can run, within `limit`: by instruction set as in
  /// Isas; among those of one set, float activations before int8 and RowMajor before
  /// InputBlockMajor, so that nothing is converted without a gain.
  [[nodiscard]] static KernelSet of_this_cpu(IsaLimit limit = {}) {
    std::vector<KernelKey> keys;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<std::type_identity, Isas>>([&](auto tag) {
      using I = typename decltype(tag)::type;
      if (limit.allows<I>() && I::available())
        std::ranges::copy_if(all(), std::back_inserter(keys),
                             [](const KernelKey& key) { return key.isa == I::name; });
    });
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
  [[nodiscard]] static std::span<const KernelKey> all() {
    static const auto keys = []<class... K>(boost::mp11::mp_list<K...>) {
      return std::vector<KernelKey>{K::key...};
    }(Kernels{});
    return keys;
  }

  std::vector<KernelKey> keys_;
};

} // namespace quern
