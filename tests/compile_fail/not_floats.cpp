// expect 1: quern::PackedView: packed blocks are not floats; decode them with to_floats(),
// decode(view, matrix) or to_eigen(view)
// expect 2: quern::PackedView: packed blocks are not floats; decode them with to_floats(),
// decode(view, matrix) or to_eigen(view)
// expect 3: quern::PackedView: packed blocks are not floats; decode them with to_floats(),
// decode(view, matrix) or to_eigen(view)
#include <vector>

#include <quern/formats/q4_0.hpp>
#include <quern/packed_view.hpp>

void sgemm(const float* a);

void control(quern::PackedView<quern::Q4_0, quern::RowMajor> view) {
  const std::vector<float> values = view.to_floats();
  sgemm(values.data());

#if QUERN_MISUSE == 1
  const float* floats = view;
#elif QUERN_MISUSE == 2
  sgemm(view);
#elif QUERN_MISUSE == 3
  float* writable = view;
#endif
}
