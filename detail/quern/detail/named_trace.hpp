// floor: 1.1
#pragma once

#include <string_view>
#include <variant>

#include <quern/trace.hpp>

namespace quern::detail {

/// Hands events on; adapters that name no tensor get the name of one.
class NamedTrace final : public Trace {
public:
  NamedTrace(Trace& to, std::string_view target) noexcept
      : Trace(to.enabled()), to_(to), target_(target) {}

private:
  void record(const Event& event) override {
    Event named = event;
    if (auto* const adapter = std::get_if<AdapterInserted>(&named))
      if (adapter->target.empty()) adapter->target = target_;
    to_.emit(named);
  }

  Trace& to_;
  std::string_view target_;
};

} // namespace quern::detail
