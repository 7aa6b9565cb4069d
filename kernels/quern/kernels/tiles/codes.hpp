// floor: 4.3
// Text for several targets: included once for each instruction set, within its namespace.
//
// Unpackers of the formats of 32, 64 and 128 values and of the ternary ones. The packed bytes of
// all rows are transposed before they are taken apart, which costs a fraction of the reverse.

#if defined(QUERN_STEP)

template <BlockFormat F>
using Unit = UnitOf<F, dots_any_byte, lane_bytes>;

/// Byte I of each lane in all bytes of the lane.
template <int I>
QUERN_STEP Integers spread(Integers v) noexcept {
  alignas(16) static constexpr std::uint8_t index[16] = {
      I,     I,     I,     I,     I + 4,  I + 4,  I + 4,  I + 4,
      I + 8, I + 8, I + 8, I + 8, I + 12, I + 12, I + 12, I + 12};
  return look_up(v, table(index));
}
QUERN_STEP Integers low_nibbles(Integers v) noexcept {
  return v & every8(15);
}
QUERN_STEP Integers high_nibbles(Integers v) noexcept {
  return down<4>(v) & every8(15);
}
/// Bits 4 * J to 4 * J + 3 of each lane as bytes of `value` or zero.
template <int J>
QUERN_STEP Integers four_bits(Integers v, int value) noexcept {
  const Integers bits = every32(J % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010));
  return where(spread<J / 2>(v), bits, value);
}

/// The first four of the 16 bytes behind an address in each row, and the last four of the 16 before
/// one. To insert single numbers would cost more than this.
QUERN_STEP Integers first_bytes(const std::byte* at, std::size_t step) noexcept {
  Integers q[4];
  transpose(at, step, q);
  return q[0];
}
QUERN_STEP Integers last_bytes(const std::byte* end, std::size_t step) noexcept {
  Integers q[4];
  transpose(end - 16, step, q);
  return q[3];
}

/// `run(at, step, sink)` takes one block of each row apart. The sink gets `code(i, v)` for each
/// four codes, then, by the kind of the format, `scale(g, v)` and `minimums(p, v)`, `d(u, v)` for
/// each unit and `m(v)`; see TileUnit.
///
/// This one is for formats whose blocks must be taken apart row by row: avx2::Ints does it, the
/// results are transposed.
template <BlockFormat F>
struct Unpacker {
  using T = Unit<F>;
  static constexpr avx2::IntLayout layout = avx2::Ints<F>::layout;
  static_assert(T::unit == 256 && T::groups != 0 && !T::minimum && !layout.negated);

  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    codes<0>(at, step, sink);
    alignas(32) std::byte rows[lanes * 32];
    for (std::size_t i = 0; i < lanes; ++i)
      avx2::store(rows + 32 * i, avx2::Ints<F>::scales(at + i * step));
    // Words of groups 2 * J, 2 * J + 1 (group of 32), or of group 2 * J in the first half and of
    // 2 * J + 1 in the second (group of 16).
    Integers even[4], odd[4];
    transpose(rows, 32, even);
    transpose(rows + 16, 32, odd);
    QUERN_UNROLL
    for (std::size_t k = 0; k < 4; ++k) {
      constexpr std::size_t apart = T::group == 32 ? 1 : 2;
      sink.scale(2 * apart * k, down_signed<16>(up<16>(even[k])));
      if constexpr (apart == 2) sink.scale(4 * k + 1, down_signed<16>(up<16>(odd[k])));
      sink.scale(2 * apart * k + apart, down_signed<16>(even[k]));
      if constexpr (apart == 2) sink.scale(4 * k + 3, down_signed<16>(odd[k]));
    }
    if constexpr (requires { IntegerParts<F>::d_at; }) {
      static_assert(IntegerParts<F>::d_at == 0);
      sink.d(0, mul(halves(first_bytes(at, step)), every(IntegerParts<F>::d_factor)));
    } else {
      alignas(lane_bytes) float values[lanes];
      for (std::size_t i = 0; i < lanes; ++i)
        values[i] = IntegerParts<F>::d(at + i * step, 0);
      sink.d(0, load_floats(values));
    }
  }

private:
  template <int J, class Sink>
  QUERN_STEP static void codes(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    alignas(32) std::byte rows[lanes * 32];
    for (std::size_t i = 0; i < lanes; ++i)
      avx2::store(rows + 32 * i, avx2::Ints<F>::template codes<J>(at + i * step));
    const Integers shift = every8(layout.max_code < 0 ? zero_of<F> : 0);
    QUERN_UNROLL
    for (std::size_t half = 0; half < 2; ++half) {
      Integers v[4];
      transpose(rows + 16 * half, 32, v);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k)
        sink.code(8 * J + 4 * half + k, add8(v[k], shift));
    }
    if constexpr (J < 7) codes<J + 1>(at, step, sink);
  }
};

/// 32 nibbles in 16 bytes, those of the first half below those of the second.
template <class Sink>
QUERN_STEP void take_nibbles(const std::byte* at, std::size_t step, Sink& sink) noexcept {
  Integers q[4];
  transpose(at, step, q);
  QUERN_UNROLL
  for (std::size_t k = 0; k < 4; ++k) {
    sink.code(k, low_nibbles(q[k]));
    sink.code(4 + k, high_nibbles(q[k]));
  }
}
/// The same, looked up in 16 bytes; the first codes are those from `first` on.
template <class Sink>
QUERN_STEP void take_levels(const std::byte* at, std::size_t step, Integers levels,
                            std::size_t first, Sink& sink) noexcept {
  Integers q[4];
  transpose(at, step, q);
  QUERN_UNROLL
  for (std::size_t k = 0; k < 4; ++k) {
    sink.code(first + k, look_up(levels, low_nibbles(q[k])));
    sink.code(first + 4 + k, look_up(levels, high_nibbles(q[k])));
  }
}

template <>
struct Unpacker<Q4_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    take_nibbles(at + 2, step, sink);
    sink.d(0, halves(head));
  }
};

template <>
struct Unpacker<Q4_1> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    take_nibbles(at + 4, step, sink);
    sink.d(0, halves(head));
    sink.m(halves(down<16>(head)));
  }
};

/// Codes of Q5_0 and Q5_1: nibbles with their fifth bits.
template <int K = 0, class Sink>
QUERN_STEP void take_five_bits(const Integers (&q)[4], Integers fifth, Sink& sink) noexcept {
  sink.code(K, low_nibbles(q[K]) | four_bits<K>(fifth, 16));
  sink.code(4 + K, high_nibbles(q[K]) | four_bits<4 + K>(fifth, 16));
  if constexpr (K < 3) take_five_bits<K + 1>(q, fifth, sink);
}

template <>
struct Unpacker<Q5_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    Integers head[4], q[4];
    transpose(at, step, head);
    transpose(at + 6, step, q);
    take_five_bits(q, down<16>(head[0]) | up<16>(head[1]), sink);
    sink.d(0, halves(head[0]));
  }
};

template <>
struct Unpacker<Q5_1> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    Integers head[4], q[4];
    transpose(at, step, head);
    transpose(at + 8, step, q);
    take_five_bits(q, head[1], sink);
    sink.d(0, halves(head[0]));
    sink.m(halves(down<16>(head[0])));
  }
};

template <>
struct Unpacker<Q8_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    QUERN_UNROLL
    for (std::size_t half = 0; half < 2; ++half) {
      Integers q[4];
      transpose(at + 2 + 16 * half, step, q);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k)
        sink.code(4 * half + k, q[k] ^ every8(128));
    }
    sink.d(0, halves(head));
  }
};

/// The levels of IQ4_NL and IQ4_XS plus 128.
QUERN_STEP Integers iq4_codes() noexcept {
  return table(quern::detail::iq4_levels.levels.data()) ^ every8(128);
}

template <>
struct Unpacker<IQ4_NL> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    take_levels(at + 2, step, iq4_codes(), 0, sink);
    sink.d(0, halves(head));
  }
};

template <>
struct Unpacker<MXFP4> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    take_levels(at + 1, step, table(avx2::fp4_codes), 0, sink);
    // quern::detail::e8m0_half(): two denormals, then powers of two.
    const Integers bits = head & every32(0xFF);
    const Integers tiny = up<21>(add32(min32(bits, every32(1)), every32(1)));
    const Integers normal = up<23>(sub32(bits, every32(1)));
    sink.d(0, as_floats(max32(normal, tiny)));
  }
};

template <>
struct Unpacker<NVFP4> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    const Integers levels = table(avx2::fp4_codes);
    QUERN_UNROLL
    for (std::size_t half = 0; half < 2; ++half) {
      Integers q[4];
      transpose(at + 4 + 16 * half, step, q);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t first = 8 * half + k / 2 * 4 + k % 2;
        sink.code(first, look_up(levels, low_nibbles(q[k])));
        sink.code(first + 2, look_up(levels, high_nibbles(q[k])));
      }
    }
    sink.d(0, factor(head));
    sink.d(1, factor(down<8>(head)));
    sink.d(2, factor(down<16>(head)));
    sink.d(3, factor(down<24>(head)));
  }

private:
  /// quern::detail::ue4m3_half() of the lowest bytes.
  QUERN_STEP static Floats factor(Integers scales) noexcept {
    // 0x7F stands for zero, and bit 7 for nothing.
    const Integers other = min32((scales & every32(0xFF)) ^ every32(0x7F), every32(1));
    const Integers kept = scales & every32(0x7F) & sub32(zero(), other);
    const Integers exponent = down<3>(kept);
    const Integers present = min32(exponent, every32(1));
    const Integers mantissa = (kept & every32(7)) | up<3>(present);
    const Integers power = up<23>(add32(max32(exponent, every32(1)), every32(127 - 11)));
    return mul(to_floats(mantissa), as_floats(power));
  }
};

template <>
struct Unpacker<Q1_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    Integers q[4];
    transpose(at + 2, step, q);
    const Floats d = halves(head);
    QUERN_UNROLL
    for (std::size_t u = 0; u < 4; ++u) {
      bits(q[u], 8 * u, sink);
      sink.d(u, d);
    }
  }

private:
  template <int J = 0, class Sink>
  QUERN_STEP static void bits(Integers v, std::size_t first, Sink& sink) noexcept {
    sink.code(first + J, four_bits<J>(v, 2));
    if constexpr (J < 7) bits<J + 1>(v, first, sink);
  }
};

template <>
struct Unpacker<Q2_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers head = first_bytes(at, step);
    Integers q[4];
    transpose(at + 2, step, q);
    QUERN_UNROLL
    for (std::size_t k = 0; k < 4; ++k)
      bytes(q[k], 4 * k, sink);
    const Floats d = halves(head);
    sink.d(0, d);
    sink.d(1, d);
  }

private:
  /// Byte I of each lane becomes four codes: 6 bits more of shift leave each at the bottom.
  template <int I = 0, class Sink>
  QUERN_STEP static void bytes(Integers v, std::size_t first, Sink& sink) noexcept {
    const Integers byte = down<8 * I>(v) & every32(0xFF);
    const Integers two = byte | up<12>(byte);
    sink.code(first + I, (two | up<6>(two)) & every8(3));
    if constexpr (I < 3) bytes<I + 1>(v, first, sink);
  }
};

template <>
struct Unpacker<TQ2_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    QUERN_UNROLL
    for (std::size_t i = 0; i < 4; ++i) {
      Integers q[4];
      transpose(at + 16 * i, step, q);
      const std::size_t first = i / 2 * 32 + i % 2 * 4;
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k) {
        sink.code(first + k, q[k] & every8(3));
        sink.code(first + 8 + k, down<2>(q[k]) & every8(3));
        sink.code(first + 16 + k, down<4>(q[k]) & every8(3));
        sink.code(first + 24 + k, down<6>(q[k]) & every8(3));
      }
    }
    sink.d(0, halves(down<16>(last_bytes(at + 66, step))));
  }
};

template <>
struct Unpacker<TQ1_0> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    Integers q[4];
    QUERN_UNROLL
    for (std::size_t i = 0; i < 3; ++i) {
      transpose(at + 16 * i, step, q);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k)
        digits<5>(q[k], i < 2 ? 4 * i + k : 40 + k, i < 2 ? 8 : 4, sink);
    }
    transpose(at + 38, step, q);
    digits<4>(down<16>(q[2]) | up<16>(q[3]), 60, 1, sink);
    sink.d(0, halves(down<16>(q[3])));
  }

private:
  /// The first N digits of base-3 fractions: 1 from 256 / 3 on, 2 from 512 / 3 on.
  template <int N, class Sink>
  QUERN_STEP static void digits(Integers fraction, std::size_t first, std::size_t apart,
                                Sink& sink) noexcept {
    QUERN_UNROLL
    for (std::size_t n = 0; n < N; ++n) {
      sink.code(first + n * apart, reached(fraction, 86, 171));
      fraction = add8(add8(fraction, fraction), fraction);
    }
  }
};

#endif
