// expect 1: quern::OutIn: the extents are swapped; write OutIn{Out{rows}, In{columns}}
// expect 2: quern::OutIn: the extents are swapped; write OutIn{Out{rows}, In{columns}}
// expect 3: quern::OutIn: the extents are swapped; write OutIn{Out{rows}, In{columns}}
// expect 4: quern::OutIn: the extents are swapped; write OutIn{Out{rows}, In{columns}}
#include <quern/formats/q4_0.hpp>
#include <quern/packed_weights.hpp>
#include <quern/shape.hpp>

using quern::In;
using quern::Out;
using quern::OutIn;

void control(Out rows, In columns) {
  OutIn shape{rows, columns};
  (void)quern::blocks_per_row<quern::Q4_0>(columns);

#if QUERN_MISUSE == 1
  OutIn swapped{columns, rows};
#elif QUERN_MISUSE == 2
  constexpr OutIn swapped{In{96}, Out{2}};
#elif QUERN_MISUSE == 3
  shape.out = columns;
#elif QUERN_MISUSE == 4
  (void)quern::blocks_per_row<quern::Q4_0>(rows);
#endif
  (void)shape;
}
