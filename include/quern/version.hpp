// floor: 1
#pragma once

/// @file
/// The version of the library, for the preprocessor. CMakeLists.txt reads the numbers from here.

/// Grows when sources have to change.
#define QUERN_VERSION_MAJOR 0
/// Grows when something is added; below 1.0.0 sources may have to change then, too.
#define QUERN_VERSION_MINOR 1
/// Grows when faults are repaired.
#define QUERN_VERSION_PATCH 0

/// One number that grows with every release: 10000 * major + 100 * minor + patch.
#define QUERN_VERSION                                                                              \
  (QUERN_VERSION_MAJOR * 10000 + QUERN_VERSION_MINOR * 100 + QUERN_VERSION_PATCH)
