// floor: 4.32
// Text for several targets: included once for each instruction set, within its namespace.
//
// Loops of the kernels for int8 activations. Units of values follow each other in each row; see
// int8_scalar.hpp for the sequence of each sum.

#if defined(QUERN_STEP)

/// A sink that writes the units of a block down.
template <class T>
struct TileSink {
  std::byte* to;

  QUERN_STEP void code(std::size_t i, Integers v) noexcept {
    store(to + i / (T::unit / 4) * T::bytes + i % (T::unit / 4) * lane_bytes, v);
  }
  QUERN_STEP void scale(std::size_t g, Integers v) noexcept {
    store(to + T::scales + g * lane_bytes, v);
  }
  QUERN_STEP void minimums(std::size_t p, Integers v) noexcept {
    store(to + T::minimums + p * lane_bytes, v);
  }
  QUERN_STEP void d(std::size_t u, Floats v) noexcept { store_floats(to + u * T::bytes + T::d, v); }
  QUERN_STEP void m(Floats v) noexcept { store_floats(to + T::m, v); }
};

/// Up to R rows of activations, `Values` values of each.
template <class T, std::size_t R, std::size_t Values>
struct RowsOf {
  static constexpr std::size_t folds = (Values / T::fold + lanes - 1) / lanes * lanes;

  const std::int8_t* codes[R];
  const float* scales[R];
  /// Groups with minimums: sums of two neighbouring groups as int16.
  const std::byte* pairs[R];
  /// What the sum of each fold starts from: the codes of weights are `zero` too large.
  alignas(lane_bytes) std::int32_t starts[R][folds];
  alignas(lane_bytes) std::int16_t group_sums[T::minimum ? R : 1][folds];
  /// A minimum without groups: the sum of a unit.
  alignas(lane_bytes) float unit_sums[T::minimum ? R : 1][folds];

  QUERN_CALL void take(const Activations& x, std::size_t first, std::size_t count,
                       std::size_t value, std::size_t length, int zero_code) noexcept {
    const Integers factor = every32(-zero_code);
    for (std::size_t r = 0; r < count; ++r) {
      codes[r] = x.codes_of(first + r, value);
      scales[r] = x.scales_of(first + r, value);
      const std::int16_t* sums = x.sums_of(first + r, value);
      pairs[r] =
          reinterpret_cast<const std::byte*>(T::fold == 32 ? group_sums[T::minimum ? r : 0] : sums);
      if constexpr (T::fold == 256) {
        for (std::size_t f = 0; f < length / 256; ++f) {
          int sum = 0;
          for (std::size_t i = 0; i < 16; ++i)
            sum += sums[16 * f + i];
          starts[r][f] = -zero_code * sum;
        }
      } else {
        for (std::size_t i = 0; i < length / T::fold; i += lanes) {
          // Reads on into the scales of the row, at most.
          const Integers all_sums = T::fold == 32 ? add_pairs(load(sums + 2 * i)) : widen(sums + i);
          store(starts[r] + i, mul32(all_sums, factor));
          if constexpr (T::minimum && T::groups != 0) store_words(group_sums[r] + i, all_sums);
          if constexpr (T::minimum && T::groups == 0)
            store_floats(unit_sums[r] + i, to_floats(all_sums));
        }
      }
    }
  }
};

/// Rows of activations that meet a tile, and a single row.
template <class T>
using CellRows = RowsOf<T, rows_of_cell, T::values>;
template <class T>
using LoneRow = RowsOf<T, 1, 2048>;

/// Integer sums of R rows of activations and C registers of outputs.
template <std::size_t R, std::size_t C>
struct Cell {
  Integers sum[R][C];
};

/// Adds the products of one fold to `sums`, from where they start. `at` counts values in the unit.
template <class T, std::size_t R, std::size_t C>
QUERN_STEP void sum_fold(Cell<R, C>& sums, const std::byte* const (&w)[C], const CellRows<T>& x,
                         std::size_t value, std::size_t at) noexcept {
  QUERN_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    const Integers start = broadcast(&x.starts[r][(value + at) / T::fold]);
    QUERN_UNROLL
    for (std::size_t c = 0; c < C; ++c)
      sums.sum[r][c] = start;
  }
  constexpr std::size_t part = (T::fold < 32 ? T::fold : 32) / 4;
  for (std::size_t i = at / 4; i < (at + T::fold) / 4; i += part) {
    QUERN_UNROLL
    for (std::size_t k = 0; k < part; ++k) {
      Integers codes[C];
      QUERN_UNROLL
      for (std::size_t c = 0; c < C; ++c)
        codes[c] = load(w[c] + (i + k) * lane_bytes);
      QUERN_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        const Integers four = broadcast(x.codes[r] + value + 4 * (i + k));
        QUERN_UNROLL
        for (std::size_t c = 0; c < C; ++c)
          sums.sum[r][c] = dot_bytes<T::wide>(sums.sum[r][c], codes[c], four);
      }
    }
  }
}

/// Makes an address one that the compiler has not seen: it would carry values from a store to the
/// next load in registers that it does not have.
template <class P>
QUERN_STEP P* fresh(P* at) noexcept {
  __asm__("" : "+r"(at));
  return at;
}

/// Adds one unit to the outputs y. `value` counts from the start of the tile.
template <class T, std::size_t R, std::size_t C>
QUERN_STEP void add_unit(const std::byte* const (&w)[C], const CellRows<T>& x, std::size_t value,
                         std::size_t width, float* y) noexcept {
  Cell<R, C> n;
  if constexpr (T::groups == 0) {
    sum_fold<T, R, C>(n, w, x, value, 0);
  } else {
    // Sums of many registers wait in memory, those of few stay where they are.
    constexpr bool wait = R * C > 12;
    alignas(lane_bytes) std::byte memory[wait ? R * C * lane_bytes : 1];
    std::byte* waiting = memory;
    for (std::size_t g = 0; g < T::groups; ++g) {
      waiting = fresh(waiting);
      Cell<R, C> fold;
      sum_fold<T, R, C>(fold, w, x, value, g * T::group);
      QUERN_UNROLL
      for (std::size_t c = 0; c < C; ++c) {
        const Integers scale = load(w[c] + T::scales + g * lane_bytes);
        QUERN_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          const Integers scaled = mul32(fold.sum[r][c], scale);
          std::byte* const place = waiting + (wait ? (r * C + c) * lane_bytes : 0);
          if constexpr (wait)
            store(place, g == 0 ? scaled : add32(load(place), scaled));
          else
            n.sum[r][c] = g == 0 ? scaled : add32(n.sum[r][c], scaled);
        }
      }
    }
    if constexpr (wait) {
      QUERN_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        QUERN_UNROLL
        for (std::size_t c = 0; c < C; ++c)
          n.sum[r][c] = load(waiting + (r * C + c) * lane_bytes);
      }
    }
  }
  y = fresh(y);
  QUERN_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    const Floats scale = every(x.scales[r][value / width]);
    QUERN_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      Floats t = mul(to_floats(n.sum[r][c]), load_floats(w[c] + T::d));
      if constexpr (T::minimum && T::groups == 0)
        t = fma(every(x.unit_sums[r][value / T::unit]), load_floats(w[c] + T::m), t);
      if constexpr (T::pairs != 0) {
        Integers k = zero();
        QUERN_UNROLL
        for (std::size_t p = 0; p < T::pairs; ++p)
          k = dot_words(k, load(w[c] + T::minimums + p * lane_bytes),
                        broadcast(x.pairs[r] + value / T::group * 2 + 4 * p));
        t = fnma(to_floats(k), load_floats(w[c] + T::m), t);
      }
      float* const to = y + (r * C + c) * lanes;
      store_floats(to, fma(t, scale, load_floats(to)));
    }
  }
}

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

/// Blocks b to b + count - 1 of rows o to o + lanes - 1. Rows that do not exist are zeros, for
/// which all are copied.
template <class T>
class PiecesOf {
public:
  QUERN_STEP PiecesOf(const Grid& w, std::size_t block_bytes, std::size_t o, std::size_t b,
                      std::size_t count) noexcept {
    if (o + lanes <= w.rows) {
      pieces = {w.at(o, b), w.row_step, w.block_step, count, w.data};
      return;
    }
    std::memset(copy_, 0, sizeof copy_);
    for (std::size_t r = 0; o + r < w.rows; ++r)
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(copy_ + r * most + i * block_bytes, w.at(o + r, b + i), block_bytes);
    pieces = {copy_, most, block_bytes, count, w.data};
  }
  Pieces pieces;

private:
  /// Bytes of the values of a tile: the largest blocks have 34 bytes for 32 values.
  static constexpr std::size_t most = T::values / 32 * 34;
  std::byte copy_[lanes * most];
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

/// R rows of activations against the units of a tile; `y` are R rows of C registers of outputs.
template <class T, std::size_t R>
QUERN_CALL void multiply_cell(const std::byte* const (&columns)[columns_of_cell], std::size_t units,
                              const CellRows<T>& x, std::size_t width, float* y) noexcept {
  const std::byte* w[columns_of_cell];
  QUERN_UNROLL
  for (std::size_t c = 0; c < columns_of_cell; ++c)
    w[c] = columns[c];
  for (std::size_t u = 0; u < units; ++u) {
    add_unit<T, R, columns_of_cell>(w, x, u * T::unit, width, y);
    QUERN_UNROLL
    for (std::size_t c = 0; c < columns_of_cell; ++c)
      w[c] += T::bytes;
  }
}

/// Any number of rows of activations, in either order: a tile of W is unpacked once and meets all
/// of them. The sums wait in y between the tiles of a row.
template <class T>
QUERN_CALL void by_tiles(const Grid& w, const Packed<LoneRow<T>>& packed, const Activations& x,
                         float* y, std::size_t y_step) noexcept {
  constexpr std::size_t column_bytes = T::values / T::unit * T::bytes;
  constexpr std::size_t outputs_of_cell = columns_of_cell * lanes;
  using Multiply = void (*)(const std::byte* const(&)[columns_of_cell], std::size_t,
                            const CellRows<T>&, std::size_t, float*) noexcept;
  static constexpr Multiply multiply[] = {&multiply_cell<T, 1>, &multiply_cell<T, 2>,
                                          &multiply_cell<T, 3>, &multiply_cell<T, 4>};
  static_assert(std::size(multiply) == rows_of_cell);
  const std::size_t pieces = T::values / packed.block_size;
  alignas(64) std::byte tile[columns_of_cell * column_bytes];
  // Rows of y lie far apart, often in the same few sets of a cache: the sums of many wait here.
  constexpr std::size_t rows_at_once = 192;
  alignas(64) float sums[rows_at_once][outputs_of_cell];
  CellRows<T> part;
  for (std::size_t first = 0; first < x.rows; first += rows_at_once) {
    const std::size_t x_rows = std::min(rows_at_once, x.rows - first);
    for (std::size_t o = 0; o < w.rows; o += outputs_of_cell) {
      const std::size_t outputs = std::min(outputs_of_cell, w.rows - o);
      std::fill_n(&sums[0][0], x_rows * outputs_of_cell, 0.0f);
      for (std::size_t b = 0; b < w.blocks; b += pieces) {
        const std::size_t count = std::min(pieces, w.blocks - b);
        const std::size_t length = count * packed.block_size;
        const std::byte* columns[columns_of_cell];
        for (std::size_t c = 0; c < columns_of_cell; ++c) {
          // Registers without outputs repeat the first; their sums are left alone.
          columns[c] = c * lanes < outputs ? tile + c * column_bytes : tile;
          if (c * lanes < outputs) {
            const PiecesOf<T> here(w, packed.block_bytes, o + c * lanes, b, count);
            packed.unpack(here.pieces, tile + c * column_bytes);
          }
        }
        // As even as possible: a cell of few rows is slow.
        std::size_t cells = (x_rows + rows_of_cell - 1) / rows_of_cell;
        for (std::size_t r = 0; r < x_rows; --cells) {
          const std::size_t rows = (x_rows - r + cells - 1) / cells;
          part.take(x, first + r, rows, b * packed.block_size, length, packed.zero);
          multiply[rows - 1](columns, length / T::unit, part, x.width, sums[r]);
          r += rows;
        }
      }
      for (std::size_t r = 0; r < x_rows; ++r)
        std::copy_n(sums[r], outputs, y + (first + r) * y_step + o);
    }
  }
}

template <BlockFormat F>
QUERN_CALL void unpack_pieces(const Pieces& pieces, std::byte* to) noexcept {
  using T = Unit<F>;
  const std::byte* at = pieces.at;
  for (std::size_t i = 0; i < pieces.count; ++i, at += pieces.step) {
    TileSink<T> sink{to + i * (F::block_size / T::unit * T::bytes)};
    Unpacker<F>::run(at, pieces.row_step, sink);
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

/// y = x * W^T for any number of rows of x, in either order.
template <BlockFormat F>
void int8_matmul(const Grid& w, const Int8For<F>& x, float* y, std::size_t y_step) noexcept {
  using T = Unit<F>;
  static constexpr Packed<LoneRow<T>> packed{&unpack_pieces<F>, &multiply_pieces<F>, F::block_size,
                                             F::bytes_per_block, zero_of<F>};
  if (w.rows == 0 || x.rows() == 0) return;
  if (w.blocks == 0) {
    for (std::size_t r = 0; r < x.rows(); ++r)
      std::fill_n(y + r * y_step, w.rows, 0.0f);
    return;
  }
  if (x.rows() > 1)
    by_tiles<T>(w, packed, Activations(x), y, y_step);
  else if (w.block_step == F::bytes_per_block || w.blocks == 1)
    by_rows<T>(w, packed, Activations(x), y);
  else
    by_columns<T>(w, packed, Activations(x), y);
}

#endif
