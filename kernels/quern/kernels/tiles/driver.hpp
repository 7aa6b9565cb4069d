// floor: 4.34
// Text for several targets: included once for each instruction set, within its namespace.
//
// Loops of the kernels for int8 activations. Units of values follow each other in each row; see
// int8_scalar.hpp for the sequence of each sum.

#if defined(QUERN_STEP)
#include <quern/kernels/tiles/one_row.hpp>

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

/// Rows of activations that meet a tile.
template <class T>
using CellRows = RowsOf<T, rows_of_cell, T::values>;

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
