// SPDX-License-Identifier: Apache-2.0
// What C++ tests share: CHECK() counts and prints failures, error_of() returns the text of an error.
#pragma once
#include <atomic>
#include <iostream>
#include <string>

#include "cpp/core/error.h"
#include "cpp/core/text.h"

inline std::atomic<int> failures = 0;
// CHECK(condition, values...): if the condition is false, the test fails and prints the values.
#define CHECK(condition, ...)                                                                                     \
  do {                                                                                                            \
    if (!(condition) && ++failures < 50)                                                                          \
      std::cout << __FILE__ << ':' << __LINE__ << ": " #condition ": " << minidnn::cat(__VA_ARGS__) << std::endl; \
  } while (0)

inline bool has(const std::string& text, const std::string& words) { return text.find(words) != text.npos; }

// Returns the text of the error of type Kind that f() throws, or a text that says what happens instead.
template <class Kind = minidnn::Error, class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const Kind& e) {
    return e.what();
  } catch (const std::exception& e) {
    return minidnn::cat("another kind of error: ", e.what());
  }
  return "no error";
}
