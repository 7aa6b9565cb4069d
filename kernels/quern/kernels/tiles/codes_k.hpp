// floor: 4.31
// Text for several targets: included once for each instruction set, within its namespace.
//
// Unpackers of the K formats and of IQ4_XS.

#if defined(QUERN_STEP)

/// The lowest byte of each lane after `Shift` bits, as a number.
template <int Shift>
QUERN_STEP Integers unsigned_byte(Integers v) noexcept {
  return down<Shift>(v) & every32(0xFF);
}
template <int Shift>
QUERN_STEP Integers signed_byte(Integers v) noexcept {
  return down_signed<24>(up<24 - Shift>(v));
}
/// Four scales in the bytes of each lane.
template <class Sink>
QUERN_STEP void take_unsigned_scales(std::size_t i, Integers v, Sink& sink) noexcept {
  sink.scale(i, unsigned_byte<0>(v));
  sink.scale(i + 1, unsigned_byte<8>(v));
  sink.scale(i + 2, unsigned_byte<16>(v));
  sink.scale(i + 3, down<24>(v));
}
template <class Sink>
QUERN_STEP void take_signed_scales(std::size_t i, Integers v, Sink& sink) noexcept {
  sink.scale(i, signed_byte<0>(v));
  sink.scale(i + 1, signed_byte<8>(v));
  sink.scale(i + 2, signed_byte<16>(v));
  sink.scale(i + 3, down_signed<24>(v));
}
/// Four minimums in the bytes of each lane, as pairs of words.
template <class Sink>
QUERN_STEP void take_minimums(std::size_t i, Integers v, Sink& sink) noexcept {
  sink.minimums(i, unsigned_byte<0>(v) | (up<8>(v) & every32(0xFF0000)));
  sink.minimums(i + 1, unsigned_byte<16>(v) | (down<8>(v) & every32(0xFF0000)));
}

/// The first 16 bytes of a block of Q4_K or Q5_K: d, m, and six bits of scale and minimum for each
/// of eight groups.
template <class Sink>
QUERN_STEP void take_six_bit_head(const std::byte* at, std::size_t step, Sink& sink) noexcept {
  Integers head[4];
  transpose(at, step, head);
  const Integers low = every8(15), upper = every8(0x30), six = every8(0x3F);
  take_unsigned_scales(0, head[1] & six, sink);
  take_unsigned_scales(4, (head[3] & low) | (down<2>(head[1]) & upper), sink);
  take_minimums(0, head[2] & six, sink);
  take_minimums(2, (down<4>(head[3]) & low) | (down<2>(head[2]) & upper), sink);
  sink.d(0, halves(head[0]));
  sink.m(halves(down<16>(head[0])));
}

template <>
struct Unpacker<Q4_K> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    QUERN_UNROLL
    for (std::size_t i = 0; i < 8; ++i) {
      Integers q[4];
      transpose(at + 16 + 16 * i, step, q);
      const std::size_t first = i / 2 * 16 + i % 2 * 4;
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k) {
        sink.code(first + k, low_nibbles(q[k]));
        sink.code(first + 8 + k, high_nibbles(q[k]));
      }
    }
    take_six_bit_head(at, step, sink);
  }
};

template <>
struct Unpacker<Q5_K> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    half(at, step, 0, sink);
    half(at + 16, step, 4, sink);
    take_six_bit_head(at, step, sink);
  }

private:
  /// The first or second 16 values of all groups.
  template <class Sink>
  QUERN_STEP static void half(const std::byte* at, std::size_t step, std::size_t first,
                              Sink& sink) noexcept {
    Integers fifth[4];
    transpose(at + 16, step, fifth);
    pair<0>(at, step, fifth, first, sink);
    pair<2>(at, step, fifth, first, sink);
    pair<4>(at, step, fifth, first, sink);
    pair<6>(at, step, fifth, first, sink);
  }
  template <std::size_t G, class Sink>
  QUERN_STEP static void pair(const std::byte* at, std::size_t step, const Integers (&fifth)[4],
                              std::size_t first, Sink& sink) noexcept {
    Integers q[4];
    transpose(at + 48 + 16 * G, step, q);
    QUERN_UNROLL
    for (std::size_t k = 0; k < 4; ++k) {
      sink.code(first + 8 * G + k, low_nibbles(q[k]) | bit<G>(fifth[k]));
      sink.code(first + 8 * G + 8 + k, high_nibbles(q[k]) | bit<G + 1>(fifth[k]));
    }
  }
  /// Bit N of each byte as bit 4.
  template <int N>
  QUERN_STEP static Integers bit(Integers v) noexcept {
    if constexpr (N < 4)
      return up<4 - N>(v) & every8(16);
    else
      return down<N - 4>(v) & every8(16);
  }
};

template <>
struct Unpacker<Q6_K> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    QUERN_UNROLL
    for (std::size_t part = 0; part < 4; ++part) {
      // 16 of each 32 of 128 values.
      const std::size_t half = part / 2, offset = part % 2 * 16;
      const std::size_t first = 32 * half + offset / 4;
      const Integers two = every8(0x30);
      Integers high[4], q[4];
      transpose(at + 128 + 32 * half + offset, step, high);
      transpose(at + 64 * half + offset, step, q);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k) {
        sink.code(first + k, low_nibbles(q[k]) | (up<4>(high[k]) & two));
        sink.code(first + 16 + k, high_nibbles(q[k]) | (high[k] & two));
      }
      transpose(at + 64 * half + 32 + offset, step, q);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k) {
        sink.code(first + 8 + k, low_nibbles(q[k]) | (up<2>(high[k]) & two));
        sink.code(first + 24 + k, high_nibbles(q[k]) | (down<2>(high[k]) & two));
      }
    }
    Integers scales[4];
    transpose(at + 192, step, scales);
    QUERN_UNROLL
    for (std::size_t k = 0; k < 4; ++k)
      take_signed_scales(4 * k, scales[k], sink);
    sink.d(0, halves(down<16>(last_bytes(at + 210, step))));
  }
};

/// Codes of two bits of Q2_K and Q3_K: byte i of each 32 has those of values i, 32 + i, 64 + i and
/// 96 + i. Bits 0 to 3 of `upper`, where there are any, are put above.
template <class Sink>
QUERN_STEP void take_two_bits(const std::byte* at, std::size_t step, std::size_t i,
                              const Integers* upper, Sink& sink) noexcept {
  Integers q[4];
  transpose(at + 16 * i, step, q);
  const std::size_t first = i / 2 * 32 + i % 2 * 4;
  const Integers mask = every8(3), bit = every8(4);
  QUERN_UNROLL
  for (std::size_t k = 0; k < 4; ++k) {
    Integers codes[4] = {q[k] & mask, down<2>(q[k]) & mask, down<4>(q[k]) & mask,
                         down<6>(q[k]) & mask};
    if (upper != nullptr) {
      codes[0] = codes[0] | (up<2>(upper[k]) & bit);
      codes[1] = codes[1] | (up<1>(upper[k]) & bit);
      codes[2] = codes[2] | (upper[k] & bit);
      codes[3] = codes[3] | (down<1>(upper[k]) & bit);
    }
    QUERN_UNROLL
    for (std::size_t n = 0; n < 4; ++n)
      sink.code(first + 8 * n + k, codes[n]);
  }
}

template <>
struct Unpacker<Q2_K> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    QUERN_UNROLL
    for (std::size_t i = 0; i < 4; ++i)
      take_two_bits(at + 16, step, i, nullptr, sink);
    Integers fields[4];
    transpose(at, step, fields);
    QUERN_UNROLL
    for (std::size_t k = 0; k < 4; ++k) {
      take_unsigned_scales(4 * k, low_nibbles(fields[k]), sink);
      take_minimums(2 * k, high_nibbles(fields[k]), sink);
    }
    const Integers both = last_bytes(at + 84, step);
    sink.d(0, halves(both));
    sink.m(halves(down<16>(both)));
  }
};

template <>
struct Unpacker<Q3_K> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    QUERN_UNROLL
    for (std::size_t i = 0; i < 2; ++i) {
      Integers upper[4];
      transpose(at + 16 * i, step, upper);
      take_two_bits(at + 32, step, i, upper, sink);
      QUERN_UNROLL
      for (std::size_t k = 0; k < 4; ++k)
        upper[k] = down<4>(upper[k]);
      take_two_bits(at + 32, step, 2 + i, upper, sink);
    }
    Integers tail[4];
    transpose(at + 94, step, tail);
    const Integers first = down<16>(tail[0]) | up<16>(tail[1]);
    const Integers second = down<16>(tail[1]) | up<16>(tail[2]);
    const Integers bits = down<16>(tail[2]) | up<16>(tail[3]);
    const Integers low = every8(15), upper = every8(0x30), middle = every8(32);
    take_signed_scales(0, sub8((first & low) | (up<4>(bits) & upper), middle), sink);
    take_signed_scales(4, sub8((second & low) | (up<2>(bits) & upper), middle), sink);
    take_signed_scales(8, sub8((down<4>(first) & low) | (bits & upper), middle), sink);
    take_signed_scales(12, sub8((down<4>(second) & low) | (down<2>(bits) & upper), middle), sink);
    sink.d(0, halves(down<16>(tail[3])));
  }
};

template <>
struct Unpacker<IQ4_XS> {
  template <class Sink>
  QUERN_STEP static void run(const std::byte* at, std::size_t step, Sink& sink) noexcept {
    const Integers levels = iq4_codes();
    QUERN_UNROLL
    for (std::size_t g = 0; g < 8; ++g)
      take_levels(at + 8 + 16 * g, step, levels, 8 * g, sink);
    Integers head[4];
    transpose(at, step, head);
    take_scales<0>(head, sink);
    sink.d(0, halves(head[0]));
  }

private:
  template <int G, class Sink>
  QUERN_STEP static void take_scales(const Integers (&head)[4], Sink& sink) noexcept {
    const Integers low = down<4 * G>(head[1]) & every32(15);
    const Integers upper = up<4>(down<16 + 2 * G>(head[0]) & every32(3));
    sink.scale(G, sub32(low | upper, every32(32)));
    if constexpr (G < 7) take_scales<G + 1>(head, sink);
  }
};

#endif
