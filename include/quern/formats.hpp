// floor: 3
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <quern/block_format.hpp>
#include <quern/formats/bf16.hpp>
#include <quern/formats/f16.hpp>
#include <quern/formats/f32.hpp>
#include <quern/formats/iq1_m.hpp>
#include <quern/formats/iq1_s.hpp>
#include <quern/formats/iq2_s.hpp>
#include <quern/formats/iq2_xs.hpp>
#include <quern/formats/iq2_xxs.hpp>
#include <quern/formats/iq3_s.hpp>
#include <quern/formats/iq3_xxs.hpp>
#include <quern/formats/iq4_nl.hpp>
#include <quern/formats/iq4_xs.hpp>
#include <quern/formats/mxfp4.hpp>
#include <quern/formats/nvfp4.hpp>
#include <quern/formats/q1_0.hpp>
#include <quern/formats/q2_0.hpp>
#include <quern/formats/q2_k.hpp>
#include <quern/formats/q3_k.hpp>
#include <quern/formats/q4_0.hpp>
#include <quern/formats/q4_1.hpp>
#include <quern/formats/q4_k.hpp>
#include <quern/formats/q5_0.hpp>
#include <quern/formats/q5_1.hpp>
#include <quern/formats/q5_k.hpp>
#include <quern/formats/q6_k.hpp>
#include <quern/formats/q8_0.hpp>
#include <quern/formats/tq1_0.hpp>
#include <quern/formats/tq2_0.hpp>
#include <quern/order.hpp>

namespace quern {

/// Every block format, by GGUF type id. Typed tests, kernels and the file reader go through this
/// list, so a format is added here and nowhere else.
using Formats = boost::mp11::mp_list<F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K,
                                     Q6_K, IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S,
                                     IQ4_XS, IQ1_M, BF16, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0>;

/// Both orders.
using Orders = boost::mp11::mp_list<RowMajor, InputBlockMajor>;

/// A format of the list.
template <class F>
concept ListedFormat = boost::mp11::mp_contains<Formats, F>::value;

/// The number of formats.
inline constexpr std::size_t format_count = boost::mp11::mp_size<Formats>::value;

/// The place of the format with this GGUF type id in the list, or nothing: a raw id never indexes.
[[nodiscard]] constexpr std::optional<std::size_t> find_format(std::uint32_t gguf_type) noexcept {
  std::optional<std::size_t> found;
  boost::mp11::mp_for_each<boost::mp11::mp_iota_c<format_count>>([&](auto index) {
    if (boost::mp11::mp_at_c<Formats, index>::gguf_type == gguf_type) found = index;
  });
  return found;
}

/// Calls `f(std::type_identity<F>{})` for the format with this GGUF type id. Returns false without
/// a call when there is none.
template <class Function>
constexpr bool with_format(std::uint32_t gguf_type, Function&& f) {
  const auto index = find_format(gguf_type);
  if (!index) return false;
  boost::mp11::mp_with_index<format_count>(*index, [&](auto i) {
    std::forward<Function>(f)(std::type_identity<boost::mp11::mp_at_c<Formats, i>>{});
  });
  return true;
}

namespace detail {

// Ids ascend, so each stands once; names differ pairwise.
[[nodiscard]] consteval bool formats_are_sorted_and_distinct() {
  bool good = true;
  std::size_t place = 0;
  boost::mp11::mp_for_each<Formats>([&](auto a) {
    std::size_t other = 0;
    boost::mp11::mp_for_each<Formats>([&](auto b) {
      if (place < other && (decltype(a)::gguf_type >= decltype(b)::gguf_type ||
                            decltype(a)::name == decltype(b)::name))
        good = false;
      ++other;
    });
    ++place;
  });
  return good;
}

template <class F>
using IsBlockFormat = std::bool_constant<BlockFormat<F>>;

} // namespace detail

static_assert(boost::mp11::mp_all_of<Formats, detail::IsBlockFormat>::value,
              "quern::Formats: an entry that is not a BlockFormat");
static_assert(detail::formats_are_sorted_and_distinct(),
              "quern::Formats: entries must be sorted by GGUF type id, each id and name once");

} // namespace quern
