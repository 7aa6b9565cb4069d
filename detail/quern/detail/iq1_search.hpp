// floor: 1.1
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/iq1_grid.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_group.hpp>
#include <quern/detail/iq_odd_scale.hpp>

/// @file
/// The search that IQ1_S and IQ1_M share: eight values are a ternary entry of a code book, all
/// shifted up or down by 1/8, and sub-blocks of such octets have 3-bit odd scales.

namespace quern::detail {

/// What a block stores. `scales.d` is zero when nothing of the values can be kept, and infinite
/// when it does not fit.
template <std::size_t Subs>
struct Iq1Codes {
  OddScales<Subs> scales;
  std::array<std::uint16_t, 32> entries{};
  std::array<bool, 32> down{}; ///< shifted by -1/8
};

/// Eight values, ready to be looked up with either shift. Levels are eight times as large as
/// stored.
class Iq1Octet {
public:
  constexpr Iq1Octet(std::span<const float, 8> values, std::span<const float> weights) noexcept
      : up_(iq1_plus_book, values, weights, GridSigns::in_entry),
        down_(iq1_minus_book, values, weights, GridSigns::in_entry) {}

  template <std::size_t Capacity>
  constexpr void envelope(bool down, Envelope<Capacity>& result) const noexcept {
    if (down)
      down_.envelope(false, result);
    else
      up_.envelope(false, result);
  }

  struct Choice {
    std::uint16_t entry;
    double cost;
  };
  [[nodiscard]] constexpr Choice choose(bool down, double scale) const noexcept {
    const GroupChoice choice = down ? down_.choose(false, scale) : up_.choose(false, scale);
    const auto& entries = down ? iq1_minus_book.entries : iq1_plus_book.entries;
    return {entries[choice.place].index, choice.line.cost(scale)};
  }

private:
  GridGroup<decltype(iq1_plus_book)> up_;
  GridGroup<decltype(iq1_minus_book)> down_;
};

/// The codes of least squared error of 256 values. `ShiftShare` octets in a row have one shift, all
/// of a sub-block or one. `weights` is empty or has the importance of each value.
template <std::size_t Subs, std::size_t ShiftShare>
[[nodiscard]] constexpr Iq1Codes<Subs> search_iq1(std::span<const float, 256> values,
                                                  std::span<const float> weights) noexcept {
  constexpr std::size_t per_sub = 32 / Subs;
  static_assert(ShiftShare == 1 || ShiftShare == per_sub);
  constexpr double unit = 0.125;
  const auto octet = [&](std::size_t i) {
    return Iq1Octet(values.subspan(8 * i).template first<8>(),
                    weights.empty() ? weights : weights.subspan(8 * i, 8));
  };
  std::array<Envelope<128>, Subs> subs;
  for (std::size_t s = 0; s < Subs; ++s) {
    std::array<Envelope<128>, 2> shifted;
    Envelope<128> sum;
    for (std::size_t k = 0; k < per_sub; ++k) {
      const Iq1Octet own = octet(s * per_sub + k);
      std::array<Envelope<32>, 2> next;
      own.envelope(false, next[0]);
      own.envelope(true, next[1]);
      if constexpr (ShiftShare == 1) {
        Envelope<64> either;
        unite_envelopes(next[0], next[1], either);
        if (k == 0) {
          unite_envelopes(next[0], next[1], shifted[0]);
        } else {
          sum_envelopes(shifted[0], either, sum);
          shifted[0] = sum;
        }
      } else {
        for (std::size_t shift = 0; shift < 2; ++shift) {
          if (k == 0) {
            sum_envelopes(next[shift], Envelope<1>::zero(), shifted[shift]);
          } else {
            sum_envelopes(shifted[shift], next[shift], sum);
            shifted[shift] = sum;
          }
        }
      }
    }
    if constexpr (ShiftShare == 1)
      subs[s] = shifted[0];
    else
      unite_envelopes(shifted[0], shifted[1], subs[s]);
  }

  Iq1Codes<Subs> result;
  result.scales = OddScaleSearch<8, Subs, 128>(subs, unit).run();
  if (result.scales.d == 0 || result.scales.d == 0x7C00) return result;
  for (std::size_t first = 0; first < 32; first += ShiftShare) {
    const double scale = result.scales.full(first / per_sub, unit);
    std::array<std::array<std::uint16_t, ShiftShare>, 2> entries{};
    std::array<double, 2> cost{};
    for (std::size_t k = 0; k < ShiftShare; ++k) {
      const Iq1Octet own = octet(first + k);
      for (std::size_t shift = 0; shift < 2; ++shift) {
        const auto choice = own.choose(shift == 1, scale);
        entries[shift][k] = choice.entry;
        cost[shift] += choice.cost;
      }
    }
    const std::size_t shift = cost[1] < cost[0] ? 1 : 0;
    for (std::size_t k = 0; k < ShiftShare; ++k) {
      result.entries[first + k] = entries[shift][k];
      result.down[first + k] = shift == 1;
    }
  }
  return result;
}

} // namespace quern::detail
