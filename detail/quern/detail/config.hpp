// floor: 0
#pragma once

/// @file
/// Compiler requirements and the few macros the library needs. Every macro is prefixed QUERN_.

#if !defined(__cplusplus) || __cplusplus < 202002L
#if !defined(_MSVC_LANG) || _MSVC_LANG < 202002L
#error "quern: C++20 is required; compile with -std=c++20 or newer"
#endif
#endif

// GCC names the parts of -ffast-math by macros of their own; Clang only names the whole and the
// absence of NaNs.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||           \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error                                                                                             \
    "quern: -ffast-math removes the NaN checks and the exact rounding that packed formats need; compile this translation unit without it"
#endif

// A deleted function that explains itself. Compilers with deleted-function messages print the
// sentence as the reason; older ones quote the line of the declaration, so the sentence must
// stand on the same line as the function's name.
#if defined(__cpp_deleted_function) && __cpp_deleted_function >= 202403L
#define QUERN_DELETED(sentence) = delete (sentence)
#else
#define QUERN_DELETED(sentence) = delete
#endif
