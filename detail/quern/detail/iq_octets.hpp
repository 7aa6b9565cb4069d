// floor: 0.4
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <quern/detail/iq_batch.hpp>
#include <quern/detail/iq_envelope.hpp>
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

/// What a block of octets stores. `scales.d` is zero when nothing of the values can be kept, and
/// infinite when it does not fit.
template <std::size_t Subs, std::size_t Parts>
struct OctetCodes {
  OddScales<Subs> scales;
  std::array<std::array<std::uint16_t, Parts>, 32> entries{};
  std::array<std::uint8_t, 32> signs{};
};

/// The search for the codes of least squared error of 256 values,
/// value = d * Unit * (2 * scale + 1) * level, with 4-bit scales.
template <std::size_t Subs, OctetSigns Signs, class Book>
class OctetSearch {
public:
  static constexpr std::size_t parts = 8 / Book::width;
  using Codes = OctetCodes<Subs, parts>;

  /// `weights` is empty or has the importance of each value.
  constexpr OctetSearch(const Book& book, std::span<const float, 256> values,
                        std::span<const float> weights, double unit) noexcept
      : book_(book), values_(values), weights_(weights), unit_(unit) {}

  [[nodiscard]] constexpr Codes run() const noexcept {
    Codes codes;
    std::array<double, Subs> guess{};
    std::array<double, Subs> likely{};
    for (std::size_t s = 0; s < Subs; ++s)
      guess[s] = likely_scale(book_, values_.subspan(s * length, length),
                              weights_.empty() ? weights_ : weights_.subspan(s * length, length));
    if (guess == likely) return codes; // nothing but zeros
    if (!weights_.empty()) likely = guess;
    // With weights, the best entry of a class depends on the scale, so that is found in two steps.
    for (int round = 0; round < (weights_.empty() ? 1 : 2); ++round) {
      codes.scales = find_scales(guess, likely);
      if (codes.scales.d == 0 || codes.scales.d == 0x7C00) return codes;
      for (std::size_t s = 0; s < Subs; ++s)
        likely[s] = codes.scales.full(s, unit_);
    }
    std::array<Line, Subs> lines{};
    for (std::size_t chunk = 0; chunk < 32; chunk += octets_per_chunk)
      choose(chunk, likely, codes, lines);
    codes.scales = settle_scales<16>(codes.scales, lines, unit_);
    return codes;
  }

private:
  static constexpr std::size_t per_sub = 32 / Subs;
  static constexpr std::size_t length = 256 / Subs;
  static constexpr std::size_t octets_per_chunk = 8;
  using Job = GridJob<Book::width>;

  /// The jobs of eight octets: one for each part, and if an octet has to turn a sign another one
  /// for each part where the sign turns there.
  struct Chunk {
    std::array<Job, octets_per_chunk * parts * 2> jobs{};
    std::array<std::size_t, octets_per_chunk * parts * 2> sub{};
    std::size_t count = 0;
    std::array<std::size_t, octets_per_chunk> first{}; ///< job of part 0 of each octet
    std::array<std::uint8_t, octets_per_chunk> signs{};

    [[nodiscard]] constexpr bool turns(std::size_t k) const noexcept {
      return Signs == OctetSigns::even && std::popcount(signs[k]) % 2 != 0;
    }
    [[nodiscard]] constexpr std::span<const Job> all() const noexcept {
      return std::span<const Job>(jobs).first(count);
    }
  };

  [[nodiscard]] constexpr Chunk make_chunk(std::size_t octet,
                                           const std::array<double, Subs>& likely) const noexcept {
    Chunk chunk;
    for (std::size_t k = 0; k < octets_per_chunk; ++k) {
      chunk.first[k] = chunk.count;
      const std::size_t at = 8 * (octet + k);
      for (std::size_t j = 0; j < 8; ++j)
        if (values_[at + j] < 0.0f)
          chunk.signs[k] = static_cast<std::uint8_t>(chunk.signs[k] | (1u << j));
      for (const bool flip : {false, true}) {
        if (flip ? !chunk.turns(k) : parts == 1 && chunk.turns(k)) continue;
        for (std::size_t p = 0; p < parts; ++p) {
          const std::size_t from = at + p * Book::width;
          Job job(values_.subspan(from).template first<Book::width>(),
                  weights_.empty() ? weights_ : weights_.subspan(from, Book::width), true);
          job.flip = flip;
          job.likely = likely[(octet + k) / per_sub];
          chunk.sub[chunk.count] = (octet + k) / per_sub;
          chunk.jobs[chunk.count++] = job;
        }
      }
    }
    return chunk;
  }

  [[nodiscard]] constexpr OddScales<Subs>
  find_scales(const std::array<double, Subs>& guess,
              const std::array<double, Subs>& likely) const noexcept {
    std::array<Envelope<128>, Subs> subs;
    for (std::size_t octet = 0; octet < 32; octet += octets_per_chunk) {
      const Chunk chunk = make_chunk(octet, likely);
      std::array<Envelope<32>, octets_per_chunk * parts * 2> envelopes;
      look_up(book_, chunk.all(), [&](std::size_t job, const auto& batch, std::size_t lane) {
        const double scale = guess[chunk.sub[job]];
        batch.envelope(lane, scale * range_low, scale * range_high, envelopes[job]);
      });
      for (std::size_t k = 0; k < octets_per_chunk; ++k) {
        Envelope<64> own;
        octet_envelope(envelopes.data() + chunk.first[k], chunk.turns(k), own);
        Envelope<128>& sub = subs[(octet + k) / per_sub];
        if ((octet + k) % per_sub == 0) sub = Envelope<128>::zero();
        Envelope<128> sum;
        sum_envelopes(sub, own, sum);
        sub = sum;
      }
    }
    return OddScaleSearch<16, Subs, 128>(subs, unit_).run();
  }

  static constexpr void octet_envelope(const Envelope<32>* jobs, bool turns,
                                       Envelope<64>& result) noexcept {
    if constexpr (parts == 1) {
      sum_envelopes(jobs[0], Envelope<1>::zero(), result);
    } else if (!turns) {
      sum_envelopes(jobs[0], jobs[1], result);
    } else {
      Envelope<64> in_first;
      Envelope<64> in_second;
      sum_envelopes(jobs[2], jobs[1], in_first);
      sum_envelopes(jobs[0], jobs[3], in_second);
      unite_envelopes(in_first, in_second, result);
    }
  }

  /// Looks up the entries and signs of eight octets for the scales in `likely`.
  constexpr void choose(std::size_t octet, const std::array<double, Subs>& likely, Codes& codes,
                        std::array<Line, Subs>& lines) const noexcept {
    const Chunk chunk = make_chunk(octet, likely);
    std::array<std::size_t, octets_per_chunk * parts * 2> places{};
    look_up(book_, chunk.all(), [&](std::size_t job, const auto& batch, std::size_t lane) {
      places[job] = batch.place(lane);
    });
    for (std::size_t k = 0; k < octets_per_chunk; ++k) {
      const std::size_t sub = (octet + k) / per_sub;
      // The job that each part is taken from.
      std::array<std::size_t, parts> taken{};
      for (std::size_t p = 0; p < parts; ++p)
        taken[p] = chunk.first[k] + p;
      std::size_t turned = 0;
      if (parts > 1 && chunk.turns(k)) {
        std::array<double, parts> loss{};
        for (std::size_t p = 0; p < parts; ++p)
          loss[p] = cost(chunk, places, taken[p] + parts, likely[sub]) -
                    cost(chunk, places, taken[p], likely[sub]);
        if (loss[parts - 1] < loss[0]) turned = parts - 1;
        taken[turned] += parts;
      }
      unsigned signs = chunk.signs[k];
      if (chunk.turns(k)) {
        const std::size_t job = taken[turned];
        signs ^= 1u << (turned * Book::width + chunk.jobs[job].flipped(book_, places[job]));
      }
      codes.signs[octet + k] = static_cast<std::uint8_t>(signs);
      for (std::size_t p = 0; p < parts; ++p) {
        const std::size_t place = places[taken[p]];
        codes.entries[octet + k][p] = book_.entries[place].index;
        const Line line = chunk.jobs[taken[p]].line(book_, place);
        lines[sub].a += line.a;
        lines[sub].b += line.b;
      }
    }
  }

  constexpr double cost(const Chunk& chunk, const auto& places, std::size_t job,
                        double scale) const noexcept {
    return chunk.jobs[job].line(book_, places[job]).cost(scale);
  }

  const Book& book_;
  std::span<const float, 256> values_;
  std::span<const float> weights_;
  double unit_;
};

/// Runs an OctetSearch.
template <std::size_t Subs, OctetSigns Signs, class Book>
[[nodiscard]] constexpr auto search_octets(const Book& book, std::span<const float, 256> values,
                                           std::span<const float> weights, double unit) noexcept {
  return OctetSearch<Subs, Signs, Book>(book, values, weights, unit).run();
}

} // namespace quern::detail
