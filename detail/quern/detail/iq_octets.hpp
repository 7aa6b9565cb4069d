// floor: 0.4
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_group.hpp>
#include <quern/detail/iq_odd_scale.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// The search that the IQ2 and IQ3 formats share: eight values are one or two entries of a code
/// book of magnitudes and eight signs, and sub-blocks of such octets have small odd scales.

namespace quern::detail {

/// Which patterns of signs an octet can store.
enum class OctetSigns : std::uint8_t {
  all,
  even, ///< only those with an even number of negative values
};

/// Eight values, ready to be looked up in a code book.
template <class Book, OctetSigns Signs>
class Octet {
public:
  static constexpr std::size_t parts = 8 / Book::width;
  using Values = std::span<const float, 8>;

  struct Choice {
    std::array<std::uint16_t, parts> entries{};
    std::uint32_t signs = 0;
  };

  constexpr Octet(const Book& book, Values values, std::span<const float> weights) noexcept
      : book_(book),
        signs_(sign_bits(values)), groups_{make_groups(book, values, weights,
                                                       std::make_index_sequence<parts>{})} {}

  template <std::size_t Capacity>
  constexpr void envelope(Envelope<Capacity>& result) const noexcept {
    if constexpr (parts == 1) {
      groups_[0].envelope(flips(), result);
    } else {
      Envelope<Capacity / 2> low;
      Envelope<Capacity / 2> high;
      groups_[0].envelope(false, low);
      groups_[1].envelope(false, high);
      if (!flips()) {
        sum_envelopes(low, high, result);
        return;
      }
      // One sign must turn, in either part.
      Envelope<Capacity / 2> turned;
      Envelope<Capacity> in_low;
      Envelope<Capacity> in_high;
      groups_[0].envelope(true, turned);
      sum_envelopes(turned, high, in_low);
      groups_[1].envelope(true, turned);
      sum_envelopes(low, turned, in_high);
      unite_envelopes(in_low, in_high, result);
    }
  }

  /// The best entries and signs at a scale.
  [[nodiscard]] constexpr Choice choose(double scale) const noexcept {
    Choice choice;
    choice.signs = signs_;
    std::array<GroupChoice, parts> plain{};
    std::size_t turned_part = 0;
    if (parts > 1 || !flips())
      for (std::size_t p = 0; p < parts; ++p)
        plain[p] = groups_[p].choose(false, scale);
    if (flips()) {
      double least = 0.0;
      GroupChoice best;
      for (std::size_t p = 0; p < parts; ++p) {
        const GroupChoice turned = groups_[p].choose(true, scale);
        const double loss = turned.line.cost(scale) - plain[p].line.cost(scale);
        if (p > 0 && loss >= least) continue;
        least = loss;
        best = turned;
        turned_part = p;
      }
      plain[turned_part] = best;
      const std::size_t turned_value = groups_[turned_part].cheapest_flip(best.place);
      choice.signs ^= 1u << (turned_part * Book::width + turned_value);
    }
    for (std::size_t p = 0; p < parts; ++p)
      choice.entries[p] = book_.entries[plain[p].place].index;
    return choice;
  }

private:
  using Group = GridGroup<Book>;

  template <std::size_t... Part>
  static constexpr std::array<Group, parts> make_groups(const Book& book, Values values,
                                                        std::span<const float> weights,
                                                        std::index_sequence<Part...>) noexcept {
    constexpr std::size_t width = Book::width;
    return {Group(book, values.template subspan<Part * width, width>(),
                  weights.empty() ? weights : weights.subspan(Part * width, width),
                  GridSigns::apart)...};
  }

  [[nodiscard]] constexpr bool flips() const noexcept {
    return Signs == OctetSigns::even && std::popcount(signs_) % 2 != 0;
  }

  const Book& book_;
  std::uint32_t signs_;
  std::array<Group, parts> groups_;
};

/// What a block of octets stores. `scales.d` is zero when nothing of the values can be kept, and
/// infinite when it does not fit.
template <std::size_t Subs, std::size_t Parts>
struct OctetCodes {
  OddScales<Subs> scales;
  std::array<std::array<std::uint16_t, Parts>, 32> entries{};
  std::array<std::uint8_t, 32> signs{};
};

/// The codes of least squared error of 256 values, value = d * unit * (2 * scale + 1) * level, with
/// 4-bit scales. `weights` is empty or has the importance of each value.
template <std::size_t Subs, OctetSigns Signs, class Book>
[[nodiscard]] constexpr OctetCodes<Subs, 8 / Book::width>
search_octets(const Book& book, std::span<const float, 256> values, std::span<const float> weights,
              double unit) noexcept {
  constexpr std::size_t per_sub = 32 / Subs;
  const auto octet = [&](std::size_t i) {
    return Octet<Book, Signs>(book, values.subspan(8 * i).template first<8>(),
                              weights.empty() ? weights : weights.subspan(8 * i, 8));
  };
  std::array<Envelope<128>, Subs> subs;
  for (std::size_t s = 0; s < Subs; ++s) {
    Envelope<64> next;
    Envelope<128> sum;
    octet(s * per_sub).envelope(subs[s]);
    for (std::size_t k = 1; k < per_sub; ++k) {
      octet(s * per_sub + k).envelope(next);
      sum_envelopes(subs[s], next, sum);
      subs[s] = sum;
    }
  }
  OctetCodes<Subs, 8 / Book::width> result;
  result.scales = OddScaleSearch<16, Subs, 128>(subs, unit).run();
  if (result.scales.d == 0 || result.scales.d == 0x7C00) return result;
  for (std::size_t i = 0; i < 32; ++i) {
    const auto choice = octet(i).choose(result.scales.full(i / per_sub, unit));
    result.entries[i] = choice.entries;
    result.signs[i] = static_cast<std::uint8_t>(choice.signs);
  }
  return result;
}

} // namespace quern::detail
