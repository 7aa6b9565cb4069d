// floor: 1.1
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/iq1_grid.hpp>
#include <quern/detail/iq_batch.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_odd_scale.hpp>
#include <quern/detail/iq_sweep.hpp>

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

/// The search for the codes of least squared error of 256 values. `ShiftShare` octets in a row have
/// one shift: one octet, or all of a sub-block.
template <std::size_t Subs, std::size_t ShiftShare>
class Iq1Search {
public:
  /// `weights` is empty or has the importance of each value.
  constexpr Iq1Search(std::span<const float, 256> values, std::span<const float> weights) noexcept
      : values_(values), weights_(weights) {}

  [[nodiscard]] constexpr Iq1Codes<Subs> run() const noexcept {
    Iq1Codes<Subs> codes;
    std::array<double, Subs> guess{};
    std::array<double, Subs> likely{};
    for (std::size_t s = 0; s < Subs; ++s)
      guess[s] = likely_scale(iq1_book, values_.subspan(s * length, length),
                              weights_.empty() ? weights_ : weights_.subspan(s * length, length));
    if (guess == likely) return codes; // nothing but zeros
    if (!weights_.empty()) likely = guess;
    // With weights, the best entry of a class depends on the scale, so that is found in two steps.
    for (int round = 0; round < (weights_.empty() ? 1 : 2); ++round) {
      codes.scales = find_scales(guess, likely);
      if (codes.scales.d == 0 || codes.scales.d == 0x7C00) return codes;
      for (std::size_t s = 0; s < Subs; ++s)
        likely[s] = codes.scales.full(s, unit);
    }
    std::array<Line, Subs> lines{};
    for (std::size_t octet = 0; octet < 32; octet += octets_per_chunk)
      choose(octet, likely, codes, lines);
    codes.scales = settle_scales<8>(codes.scales, lines, unit);
    return codes;
  }

private:
  static constexpr double unit = 0.125; // levels of the book are eight times as large as stored
  static constexpr std::size_t per_sub = 32 / Subs;
  static constexpr std::size_t length = 256 / Subs;
  static_assert(ShiftShare == 1 || ShiftShare == per_sub);
  static constexpr std::size_t octets_per_chunk = 4;
  using Job = GridJob<8>;
  /// Two jobs for each octet, one for each shift.
  using Jobs = std::array<Job, 2 * octets_per_chunk>;

  [[nodiscard]] constexpr Jobs make_jobs(std::size_t octet,
                                         const std::array<double, Subs>& likely) const noexcept {
    Jobs jobs{};
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const std::size_t at = 8 * (octet + i / 2);
      jobs[i] = Job(values_.subspan(at).template first<8>(),
                    weights_.empty() ? weights_ : weights_.subspan(at, 8), false);
      jobs[i].variant = i % 2;
      jobs[i].likely = likely[(octet + i / 2) / per_sub];
    }
    return jobs;
  }

  [[nodiscard]] constexpr OddScales<Subs>
  find_scales(const std::array<double, Subs>& guess,
              const std::array<double, Subs>& likely) const noexcept {
    std::array<Envelope<128>, Subs> subs;
    for (std::size_t octet = 0; octet < 32; octet += octets_per_chunk) {
      const Jobs jobs = make_jobs(octet, likely);
      std::array<Envelope<32>, 2 * octets_per_chunk> envelopes;
      look_up(iq1_book, std::span<const Job>(jobs),
              [&](std::size_t job, const auto& batch, std::size_t lane) {
                const double scale = guess[(octet + job / 2) / per_sub];
                batch.envelope(lane, scale * range_low, scale * range_high, envelopes[job]);
              });
      for (std::size_t k = 0; k < octets_per_chunk; k += per_sub) {
        Envelope<128>& sub = subs[(octet + k) / per_sub];
        if constexpr (ShiftShare == 1) {
          add_up(sub, [&](std::size_t i, Envelope<64>& own) {
            unite_envelopes(envelopes[2 * (k + i)], envelopes[2 * (k + i) + 1], own);
          });
        } else {
          std::array<Envelope<128>, 2> shifted;
          for (std::size_t shift = 0; shift < 2; ++shift)
            add_up(shifted[shift], [&](std::size_t i, Envelope<64>& own) {
              sum_envelopes(envelopes[2 * (k + i) + shift], Envelope<1>::zero(), own);
            });
          unite_envelopes(shifted[0], shifted[1], sub);
        }
      }
    }
    return OddScaleSearch<8, Subs, 128>(subs, unit).run();
  }

  /// Sums what `make` makes for each octet of a sub-block.
  template <class Make>
  static constexpr void add_up(Envelope<128>& total, Make make) noexcept {
    total = Envelope<128>::zero();
    for (std::size_t k = 0; k < per_sub; ++k) {
      Envelope<64> own;
      Envelope<128> sum;
      make(k, own);
      sum_envelopes(total, own, sum);
      total = sum;
    }
  }

  constexpr void choose(std::size_t octet, const std::array<double, Subs>& likely,
                        Iq1Codes<Subs>& codes, std::array<Line, Subs>& totals) const noexcept {
    const Jobs jobs = make_jobs(octet, likely);
    std::array<std::size_t, 2 * octets_per_chunk> places{};
    std::array<Line, 2 * octets_per_chunk> lines{};
    look_up(iq1_book, std::span<const Job>(jobs),
            [&](std::size_t job, const auto& batch, std::size_t lane) {
              places[job] = batch.place(lane);
              lines[job] = jobs[job].line(iq1_book, places[job]);
            });
    for (std::size_t first = 0; first < octets_per_chunk; first += ShiftShare) {
      const std::size_t sub = (octet + first) / per_sub;
      double up = 0.0;
      double down = 0.0;
      for (std::size_t k = first; k < first + ShiftShare; ++k) {
        up += lines[2 * k].cost(likely[sub]);
        down += lines[2 * k + 1].cost(likely[sub]);
      }
      for (std::size_t k = first; k < first + ShiftShare; ++k) {
        const std::size_t job = 2 * k + (down < up ? 1 : 0);
        codes.entries[octet + k] = iq1_book.entries[places[job]].index;
        codes.down[octet + k] = down < up;
        totals[sub].a += lines[job].a;
        totals[sub].b += lines[job].b;
      }
    }
  }

  std::span<const float, 256> values_;
  std::span<const float> weights_;
};

} // namespace quern::detail
