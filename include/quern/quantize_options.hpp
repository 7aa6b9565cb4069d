// floor: 3.1
#pragma once

#include <cstdint>
#include <span>

#include <quern/executor.hpp>
#include <quern/isas.hpp>

namespace quern {

/// What quantize() spends time on.
enum class QuantizeMode : std::uint8_t {
  /// The lowest error that a search finds.
  best,
  /// The rule by which files in use are written where a format has one (Q4_0, Q4_1, Q5_0, Q5_1,
  /// Q8_0, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0), byte for byte; a short search for Q4_K and
  /// Q5_K; the search of `best` for the others, and for those of a rule that are given importances,
  /// which no rule knows.
  fast,
};

/// How quantize() runs. Which executor and which instruction set are used changes no byte.
struct QuantizeOptions {
  /// Which codes and scales are chosen; both modes give blocks of the same size.
  QuantizeMode mode = QuantizeMode::best;
  /// How much the squared error in each column matters, `in` numbers, finite and not negative, in
  /// any unit; empty: all alike. A block whose importances are all zero counts as unweighted.
  /// Without effect on formats that have nothing to choose: F32, F16, BF16, and Q8_0, whose scale
  /// is that of the largest value.
  std::span<const float> importance = {};
  /// Runs pieces of whole rows; empty: all of them on the calling thread.
  ExecutorRef executor = {};
  /// The best instruction set to use.
  IsaLimit max_isa = {};
};

} // namespace quern
