#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <quern/error.hpp>

namespace support {

/// The message of the quern::Error that `call` throws with `code`; a failed expectation when it
/// throws another or none.
template <class Call>
[[nodiscard]] std::string error_of(quern::ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const quern::Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not a quern::Error: " << other.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

[[nodiscard]] inline testing::AssertionResult contains(std::string_view text,
                                                       std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
}

} // namespace support
