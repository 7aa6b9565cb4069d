// expect 1: conversion from
// expect 2: quern: a sentence with [out, in] and 'quotes'
// that goes on; it can hold more; write what you need
#include <quern/version.hpp>

struct Label {};
struct Shape {
  int out;
};
constexpr Shape out_in(Label) {
  return {QUERN_VERSION};
}

constexpr Label file{};
constexpr Shape shape = out_in(file);
static_assert(shape.out == QUERN_VERSION);

#if QUERN_MISUSE == 1
constexpr Shape from_label = file;
#endif
#if QUERN_MISUSE == 2
static_assert(sizeof(int) == 1, "quern: a sentence with [out, in] and 'quotes' "
                                "that goes on; it can hold more; write what you need");
#endif
