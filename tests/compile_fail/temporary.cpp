// expect 1: quern::PackedView: a view of a temporary would dangle; keep the bytes in a variable
// that outlives the view
// expect 2: quern::PackedView: a view of a temporary would dangle; keep the bytes in a variable
// that outlives the view
// expect 3: quern::PackedView: a view of a temporary would dangle; keep the bytes in a variable
// that outlives the view
// expect 4: quern::PackedWeight::view: a view of a temporary would dangle; keep the weight in a
// variable that outlives the view
// expect 5: quern::PackedWeight::view: a view of a temporary would dangle; keep the weight in a
// variable that outlives the view
// expect 6: quern::PackedWeight::bytes: bytes of a temporary would dangle; keep the weight in a
// variable that outlives the span
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <quern/formats/q4_0.hpp>
#include <quern/packed_view.hpp>
#include <quern/packed_weight.hpp>

using View = quern::PackedView<quern::Q4_0, quern::RowMajor>;
using Weight = quern::PackedWeight<quern::Q4_0, quern::RowMajor>;

std::vector<std::byte> read_bytes();
const Weight read_weight();

void control(std::vector<std::byte>& bytes, Weight& weight) {
  constexpr quern::OutIn shape{2, 96};
  const std::array<std::byte, 108> array{};
  (void)View{bytes, shape};
  (void)View{array, shape};
  (void)View{std::span{bytes}, shape};
  (void)View{std::as_const(bytes), shape};
  (void)weight.view();
  (void)weight.bytes();

#if QUERN_MISUSE == 1
  View view{read_bytes(), shape};
#elif QUERN_MISUSE == 2
  View view(std::vector<std::byte>(108), shape);
#elif QUERN_MISUSE == 3
  View view{std::array<std::byte, 108>{}, shape};
#elif QUERN_MISUSE == 4
  View view = Weight{bytes, shape}.view();
#elif QUERN_MISUSE == 5
  View view = read_weight().view();
#elif QUERN_MISUSE == 6
  auto span = Weight{bytes, shape}.bytes();
#endif
}
