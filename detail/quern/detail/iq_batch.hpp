// floor: 0.3
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <quern/detail/arithmetic.hpp>
#include <quern/detail/iq_book.hpp>
#include <quern/detail/iq_envelope.hpp>
#include <quern/detail/iq_sweep.hpp>

/// @file
/// Looking groups of values up in a code book, eight groups at a time, in 16-bit integers: a
/// register of 128 bits holds the same step for all eight, and integers give the same choice
/// everywhere.

namespace quern::detail {

/// What is to be looked up: the values of a group and how the entries are meant.
template <std::size_t Width>
struct GridJob {
  std::array<double, Width> pulls{};  ///< weighted values, or their magnitudes
  std::array<float, Width> weights{}; ///< 1 when all weigh the same
  double likely =
      0.0; ///< the scale that entries are judged at; 0: only by how they follow the values
  std::size_t variant = 0;
  bool flip = false; ///< one value, the one that costs least, has its sign turned

  constexpr GridJob() noexcept = default;
  constexpr GridJob(std::span<const float, Width> values, std::span<const float> importance,
                    bool signs_apart) noexcept {
    for (std::size_t j = 0; j < Width; ++j) {
      weights[j] = weight_at(importance, j);
      pulls[j] = pull_at(signs_apart ? magnitude(values[j]) : values[j], weights[j]);
    }
  }

  /// The value whose sign costs least to turn if the entry at `place` is used.
  template <class Book>
  [[nodiscard]] constexpr std::size_t flipped(const Book& book, std::size_t place) const noexcept {
    std::size_t best = 0;
    for (std::size_t j = 1; j < Width; ++j)
      if (pulls[j] * book.level(variant, place, j) < pulls[best] * book.level(variant, place, best))
        best = j;
    return best;
  }

  /// The line of the entry at `place`.
  template <class Book>
  [[nodiscard]] constexpr Line line(const Book& book, std::size_t place) const noexcept {
    Line result;
    for (std::size_t j = 0; j < Width; ++j) {
      const int level = book.level(variant, place, j);
      result.a += pulls[j] * level;
      result.b += static_cast<double>(weights[j]) * (level * level);
    }
    if (flip) {
      const std::size_t j = flipped(book, place);
      result.a -= 2.0 * (pulls[j] * book.level(variant, place, j));
    }
    return result;
  }
};

/// A guess of the scale of values under a book: their root mean square over that of the levels.
template <class Book>
[[nodiscard]] constexpr double likely_scale(const Book& book, std::span<const float> values,
                                            std::span<const float> importance) noexcept {
  double squares = 0.0;
  double weight = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float own = weight_at(importance, i);
    squares += rounded_product(pull_at(values[i], own), values[i]);
    weight += own;
  }
  if (squares == 0.0) return 0.0;
  const double target = squares / rounded_product(weight, book.mean_square);
  // Newton's steps towards the root, from a start with half the exponent.
  double root =
      std::bit_cast<double>((std::bit_cast<std::uint64_t>(target) >> 1) + 0x1FF8000000000000u);
  for (int step = 0; step < 4; ++step)
    root = 0.5 * (root + target / root);
  return root;
}

/// The least error lies within these multiples of the likely scale, save for odd values.
inline constexpr double range_low = 0.45;
inline constexpr double range_high = 2.5;

/// Up to eight jobs, looked up.
template <class Book>
class GridBatch {
public:
  static constexpr std::size_t lanes = 8;
  using Job = GridJob<Book::width>;

  constexpr GridBatch(const Book& book, std::span<const Job> jobs) noexcept
      : book_(book), jobs_(jobs) {
    for (std::size_t lane = 0; lane < jobs.size(); ++lane) {
      load(lane);
      flips_ = flips_ || jobs[lane].flip;
    }
    grow(0, low_, flip_low_);
    grow(Book::width / 2, high_, flip_high_);
    if (flips_)
      run<true>();
    else
      run<false>();
  }

  /// The lower envelope of the job in a lane over the best entries of all classes. With weights,
  /// the lines are those of a class on average.
  template <std::size_t Capacity>
  constexpr void envelope(std::size_t lane, double low, double high,
                          Envelope<Capacity>& result) const noexcept {
    const Job& job = jobs_[lane];
    const auto& variant = book_.variants[job.variant];
    double weight = 0.0;
    for (const float own : job.weights)
      weight += own;
    weight /= Book::width;
    // Only the lines between the best ones at the ends of the range can be best within.
    std::array<double, Book::most_classes> line_a;
    std::array<double, Book::most_classes> line_b;
    if (std::is_constant_evaluated()) line_a = line_b = {};
    std::size_t first = 0;
    std::size_t last = 0;
    double first_worth = -1e300;
    double last_worth = -1e300;
    for (std::size_t i = 0; i < book_.class_count; ++i) {
      const std::size_t c = variant.order[i];
      line_b[i] = rounded_product(weight, variant.squares[c]);
      line_a[i] = rounded_product(best_[c].at[lane], unit_[lane]) +
                  rounded_product(0.5 * job.likely, line_b[i]);
      const double at_low = line_a[i] - rounded_product(0.5 * low, line_b[i]);
      const double at_high = line_a[i] - rounded_product(0.5 * high, line_b[i]);
      first = at_low >= first_worth ? i : first;
      first_worth = at_low >= first_worth ? at_low : first_worth;
      last = at_high > last_worth ? i : last;
      last_worth = at_high > last_worth ? at_high : last_worth;
    }
    result.size = 0;
    for (std::size_t i = first; i <= std::max(first, last); ++i)
      result.push(line_a[i], line_b[i]);
    result.finish();
  }

  /// The place of the best entry for the job in a lane, judged at its likely scale.
  [[nodiscard]] constexpr std::size_t place(std::size_t lane) const noexcept {
    std::size_t best = 0;
    for (std::size_t c = 1; c < book_.class_count; ++c)
      if (best_[c].at[lane] > best_[best].at[lane]) best = c;
    std::size_t at = best == 0 ? 0 : book_.class_end[best - 1];
    while (worth(at, lane) != best_[best].at[lane])
      ++at;
    return at;
  }

private:
  // Plain arrays: in a constant expression each element of a std::array costs a call.
  struct Lanes {
    std::int16_t at[lanes];
  };
  struct Half {
    Lanes of[Book::halves];
  };

  static constexpr Lanes all(std::int16_t value) noexcept {
    Lanes result{};
    for (std::int16_t& lane : result.at)
      lane = value;
    return result;
  }

  /// Writes what each value of a job adds, for each digit, into the first entries of the tables.
  constexpr void load(std::size_t lane) noexcept {
    const Job& job = jobs_[lane];
    const auto& levels = book_.variants[job.variant].levels;
    std::array<std::array<double, Book::base>, Book::width> gains{};
    double most = 0.0;
    double most_turned = 0.0;
    for (std::size_t j = 0; j < Book::width; ++j) {
      double largest = 0.0;
      const double penalty = rounded_product(0.5 * job.likely, job.weights[j]);
      for (std::size_t digit = 0; digit < Book::base; ++digit) {
        const int level = levels[digit];
        const double follow = job.pulls[j] * level; // exact
        const double gain = follow - rounded_product(penalty, level * level);
        gains[j][digit] = gain;
        largest = std::max(largest, gain < 0.0 ? -gain : gain);
        if (job.flip) most_turned = std::max(most_turned, follow);
      }
      most += largest;
    }
    most += 2.0 * most_turned;
    unit_[lane] = most / 32000.0;
    const double steps = most == 0.0 ? 0.0 : 32000.0 / most;
    for (std::size_t j = 0; j < Book::width; ++j)
      for (std::size_t digit = 0; digit < Book::base; ++digit) {
        digit_gains_[j][digit].at[lane] = static_cast<std::int16_t>(gains[j][digit] * steps);
        if (job.flip)
          digit_flips_[j][digit].at[lane] =
              static_cast<std::int16_t>(job.pulls[j] * levels[digit] * 2.0 * steps);
      }
  }

  /// Fills the tables of the half that starts with value `first`: sums of gains, and the least cost
  /// of turning a sign.
  constexpr void grow(std::size_t first, Half& half, Half& flip) const noexcept {
    half.of[0] = all(0);
    flip.of[0] = all(32767);
    std::size_t size = 1;
    for (std::size_t j = first; j < first + Book::width / 2; ++j) {
      for (std::size_t digit = Book::base; digit-- > 0;) {
        // Copies, for compilers can't know that the tables do not overlap.
        const Lanes gain = digit_gains_[j][digit];
        const Lanes turn = digit_flips_[j][digit];
        for (std::size_t i = 0; i < size; ++i) {
          Lanes sum = half.of[i];
          for (std::size_t lane = 0; lane < lanes; ++lane)
            sum.at[lane] = static_cast<std::int16_t>(sum.at[lane] + gain.at[lane]);
          half.of[digit * size + i] = sum;
          if (!flips_) continue;
          Lanes least = flip.of[i];
          for (std::size_t lane = 0; lane < lanes; ++lane)
            least.at[lane] = std::min(least.at[lane], turn.at[lane]);
          flip.of[digit * size + i] = least;
        }
      }
      size *= Book::base;
    }
  }

  template <bool Flips>
  constexpr void run() noexcept {
    std::size_t at = 0;
    for (std::size_t c = 0; c < book_.class_count; ++c) {
      Lanes best = all(-32768);
      for (; at < book_.class_end[c]; ++at) {
        const auto& entry = book_.entries[at];
        const Lanes& low = low_.of[entry.low];
        const Lanes& high = high_.of[entry.high];
        const Lanes& flip_low = flip_low_.of[entry.low];
        const Lanes& flip_high = flip_high_.of[entry.high];
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          int worth = low.at[lane] + high.at[lane];
          if constexpr (Flips) worth -= std::min(flip_low.at[lane], flip_high.at[lane]);
          best.at[lane] = std::max(best.at[lane], static_cast<std::int16_t>(worth));
        }
      }
      best_[c] = best;
    }
  }

  [[nodiscard]] constexpr std::int16_t worth(std::size_t at, std::size_t lane) const noexcept {
    const auto& entry = book_.entries[at];
    const int sum = low_.of[entry.low].at[lane] + high_.of[entry.high].at[lane];
    const int turned =
        std::min(flip_low_.of[entry.low].at[lane], flip_high_.of[entry.high].at[lane]);
    return static_cast<std::int16_t>(jobs_[lane].flip ? sum - turned : sum);
  }

  const Book& book_;
  std::span<const Job> jobs_;
  bool flips_ = false; // in any lane
  std::array<double, lanes> unit_{};
  std::array<std::array<Lanes, Book::base>, Book::width> digit_gains_{};
  std::array<std::array<Lanes, Book::base>, Book::width> digit_flips_{};
  Half low_{};
  Half high_{};
  Half flip_low_{};
  Half flip_high_{};
  std::array<Lanes, Book::most_classes> best_{};
};

/// Looks up any number of jobs and calls `use(job, batch, lane)` for each.
template <class Book, class Use>
constexpr void look_up(const Book& book, std::span<const GridJob<Book::width>> jobs,
                       Use use) noexcept {
  constexpr std::size_t lanes = GridBatch<Book>::lanes;
  for (std::size_t first = 0; first < jobs.size(); first += lanes) {
    const std::size_t count = std::min(lanes, jobs.size() - first);
    const GridBatch<Book> batch(book, jobs.subspan(first, count));
    for (std::size_t lane = 0; lane < count; ++lane)
      use(first + lane, batch, lane);
  }
}

} // namespace quern::detail
