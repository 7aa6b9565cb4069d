// expect 1: std::span<std::byte, 18> writable = view.block(0, 0);
// expect 2: view.block(0, 0)[0] = std::byte{1};
// expect 3: std::byte* bytes = view.data();
// expect 4: *view.block_data(0, 0) = std::byte{1};
// expect 5: std::span<std::byte> bytes = weight.bytes();
// expect 6: quern::PackedView::set: a view is read-only; pack the new values with
// quantize<Format>()
//
// The first five sentences are the lines at fault: that bytes are const is said by the compiler.
#include <cstddef>
#include <span>

#include <quern/formats/q4_0.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>

void control(quern::PackedView<quern::Q4_0, quern::RowMajor> view,
             const quern::PackedWeight<quern::Q4_0, quern::RowMajor>& weight) {
  std::span<const std::byte, 18> readable = view.block(0, 0);
  const std::byte* first = view.data();
  std::span<const std::byte> all = weight.bytes();
  (void)readable, (void)first, (void)all;

#if QUERN_MISUSE == 1
  std::span<std::byte, 18> writable = view.block(0, 0);
#elif QUERN_MISUSE == 2
  view.block(0, 0)[0] = std::byte{1};
#elif QUERN_MISUSE == 3
  std::byte* bytes = view.data();
#elif QUERN_MISUSE == 4
  *view.block_data(0, 0) = std::byte{1};
#elif QUERN_MISUSE == 5
  std::span<std::byte> bytes = weight.bytes();
#elif QUERN_MISUSE == 6
  view.set(0, 0, 1.0f);
#endif
}
