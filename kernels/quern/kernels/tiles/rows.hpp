// floor: 4.32
// Text for several targets: included once for each instruction set, within its namespace.
//
// What every loop of the kernels for int8 activations reads: rows of activations, pieces of W.

#if defined(QUERN_STEP)

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

#endif
