#pragma once

#include <cstddef>
#include <iterator>
#include <vector>

namespace support {

/// The sizes that every kernel is tried with: outputs around multiples of 8 and 32, odd counts of
/// blocks. Rows of x vary along, so that each count meets many shapes. Fewer with
/// QUERN_TEST_FEW_FORMATS, for builds that run slowly.
struct Size {
  std::size_t out;
  std::size_t blocks;
  std::size_t rows;
};
[[nodiscard]] inline std::vector<Size> sizes() {
#if defined(QUERN_TEST_FEW_FORMATS)
  const std::vector<std::size_t> outs{1, 3, 7, 8, 9, 17, 33};
#else
  std::vector<std::size_t> outs;
  for (std::size_t out = 1; out <= 17; ++out)
    outs.push_back(out);
  outs.insert(outs.end(), {31, 33, 63, 65});
#endif
  static constexpr std::size_t rows[] = {1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1, 11, 13, 16, 17, 33};
  std::vector<Size> all;
  std::size_t turn = 0;
  for (const std::size_t out : outs)
    for (const std::size_t blocks : {1u, 2u, 3u, 5u, 18u})
      all.push_back({out, blocks, rows[turn++ % std::size(rows)]});
  return all;
}

/// Marks places that a kernel must not write.
inline constexpr float canary = -12345.678f;

} // namespace support
