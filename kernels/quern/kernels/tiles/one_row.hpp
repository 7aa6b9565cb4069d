// floor: 4.33
// Text for several targets: included once for each instruction set, within its namespace.
//
// Loops for one row of int8 activations: W is read in the order of memory and never written down.

#if defined(QUERN_STEP)
#include <quern/kernels/tiles/rows.hpp>

/// A single row of activations.
template <class T>
using LoneRow = RowsOf<T, 1, 2048>;

/// A sink that multiplies with one row of activations on the way, without a tile. Meanwhile it asks
/// for `Bytes` bytes that come later, a little with each code: many requests at once would wait for
/// each other.
template <class T, std::size_t Values, std::size_t Bytes>
struct DotSink {
  static constexpr std::size_t units = Values / T::unit;
  static constexpr bool halved = T::groups == 0;

  const LoneRow<T>& x;
  std::size_t value;     ///< first of the block, in `x`
  const std::byte* next; ///< where those bytes are
  Integers sum[Values / T::fold];
  /// The second halves of folds, where few sums would wait for each other.
  Integers second[Values / T::fold];
  Integers n;
  Integers k;
  Floats factor[units];
  Floats minimum_factor;

  QUERN_STEP DotSink(const LoneRow<T>& row, std::size_t first, const std::byte* later) noexcept
      : x(row), value(first), next(later) {
    QUERN_UNROLL
    for (std::size_t i = 0; i < Values / T::fold; ++i) {
      sum[i] = broadcast(&x.starts[0][value / T::fold + i]);
      second[i] = zero();
    }
    n = k = zero();
  }
  QUERN_STEP void code(std::size_t i, Integers v) noexcept {
    const std::size_t from = fetched(i), end = fetched(i + 1);
    if (from < end) _mm_prefetch(reinterpret_cast<const char*>(next + from), _MM_HINT_T0);
    if (from + 64 < end) _mm_prefetch(reinterpret_cast<const char*>(next + from + 64), _MM_HINT_T0);
    Integers& to =
        halved && i * 8 / T::fold % 2 == 1 ? second[4 * i / T::fold] : sum[4 * i / T::fold];
    to = dot_bytes<T::wide>(to, v, broadcast(x.codes[0] + value + 4 * i));
  }
  QUERN_STEP void scale(std::size_t g, Integers v) noexcept { n = add32(n, mul32(sum[g], v)); }
  QUERN_STEP void minimums(std::size_t p, Integers v) noexcept {
    k = dot_words(k, v, broadcast(x.pairs[0] + value / T::fold * 2 + 4 * p));
  }
  QUERN_STEP void d(std::size_t u, Floats v) noexcept { factor[u] = v; }
  QUERN_STEP void m(Floats v) noexcept { minimum_factor = v; }

  /// Adds the units of the block to the outputs y.
  QUERN_STEP void add_to(float* y, std::size_t width) const noexcept {
    Floats total = load_floats(y);
    QUERN_UNROLL
    for (std::size_t u = 0; u < units; ++u) {
      Floats t = mul(to_floats(halved ? add32(sum[u], second[u]) : n), factor[u]);
      if constexpr (T::pairs != 0)
        t = fnma(to_floats(k), minimum_factor, t);
      else if constexpr (T::minimum)
        t = fma(every(x.unit_sums[0][value / T::unit + u]), minimum_factor, t);
      total = fma(t, every(x.scales[0][(value + u * T::unit) / width]), total);
    }
    store_floats(y, total);
  }

private:
  /// Bytes asked for before code i.
  static_assert(Bytes <= 32 * Values);
  static constexpr std::size_t fetched(std::size_t i) noexcept {
    return (Bytes + 63) / 64 * i / (Values / 4) * 64;
  }
};

/// One row of activations, rows of W contiguous: a register of outputs at a time. The next rows are
/// fetched meanwhile, in the order of memory.
template <class T>
QUERN_CALL void by_rows(const Grid& w, const Packed<LoneRow<T>>& packed, const Activations& x,
                        float* y) noexcept {
  const std::size_t pieces = T::values / packed.block_size;
  LoneRow<T> row;
  for (std::size_t o = 0; o < w.rows; o += lanes) {
    alignas(lane_bytes) float sums[lanes] = {};
    const std::byte* next = w.at(o + lanes, 0);
    const std::size_t taken = 2048 / packed.block_size;
    for (std::size_t b = 0; b < w.blocks; b += pieces) {
      const std::size_t count = std::min(pieces, w.blocks - b);
      if (b % taken == 0)
        row.take(x, 0, 1, b * packed.block_size, std::min(taken, w.blocks - b) * packed.block_size,
                 packed.zero);
      PiecesOf<T> here(w, packed.block_bytes, o, b, count);
      here.pieces.next = next + b * packed.block_bytes * lanes;
      packed.multiply(here.pieces, row, x.width, b % taken * packed.block_size, packed.block_size,
                      sums, 0);
    }
    store_some(y + o, load_floats(sums), std::min(lanes, w.rows - o));
  }
}

/// One row of activations, columns of blocks contiguous: block after block in the order of memory,
/// the sums of a strip of outputs waiting.
template <class T>
QUERN_CALL void by_columns(const Grid& w, const Packed<LoneRow<T>>& packed, const Activations& x,
                           float* y) noexcept {
  constexpr std::size_t strip = 2048;
  const std::size_t pieces = T::values / packed.block_size;
  alignas(64) float sums[strip];
  LoneRow<T> row;
  for (std::size_t first = 0; first < w.rows; first += strip) {
    const std::size_t end = std::min(w.rows, first + strip);
    std::fill_n(sums, strip, 0.0f);
    for (std::size_t b = 0; b < w.blocks; ++b) {
      row.take(x, 0, 1, b * packed.block_size, packed.block_size, packed.zero);
      for (std::size_t o = first; o < end;) {
        const std::size_t count = std::min(pieces, (end - o) / lanes);
        if (count == 0) {
          const PiecesOf<T> last(w, packed.block_bytes, o, b, 1);
          packed.multiply(last.pieces, row, x.width, 0, 0, sums + (o - first), 0);
          break;
        }
        packed.multiply({w.at(o, b), w.row_step, lanes * w.row_step, count, w.at(o, b) + 4096}, row,
                        x.width, 0, 0, sums + (o - first), lanes);
        o += count * lanes;
      }
    }
    std::copy_n(sums, end - first, y + first);
  }
}

template <BlockFormat F>
QUERN_CALL void multiply_pieces(const Pieces& pieces, const LoneRow<Unit<F>>& x, std::size_t width,
                                std::size_t first, std::size_t value_step, float* y,
                                std::size_t y_step) noexcept {
  const std::byte* at = pieces.at;
  constexpr std::size_t bytes = lanes * F::bytes_per_block;
  for (std::size_t i = 0; i < pieces.count; ++i, at += pieces.step, y += y_step) {
    DotSink<Unit<F>, F::block_size, bytes> sink(x, first + i * value_step, pieces.next + i * bytes);
    Unpacker<F>::run(at, pieces.row_step, sink);
    sink.add_to(y, width);
  }
}

#endif
