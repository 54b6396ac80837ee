// SPDX-License-Identifier: Apache-2.0
// The six error types, and the macro MINIDNN_CHECK. An error message names the called function, what was found, and
// what would be accepted.
#pragma once
#include <stdexcept>
#include <string>

#include "cpp/core/text.h"

namespace minidnn {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ShapeError : Error {
  using Error::Error;
};  // in Python also a ValueError: wrong shapes, strides, sizes or attributes
struct DTypeError : Error {
  using Error::Error;
};  // in Python also a TypeError: wrong element types
struct IndexingError : Error {
  using Error::Error;
};  // in Python also an IndexError: an index beyond its dimension, or too many indices
struct NotSupported : Error {
  using Error::Error;
};  // in Python also a NotImplementedError: no engine can run the problem; the text has the reason of each engine
struct DeviceError : Error {
  using Error::Error;
};  // in Python also a RuntimeError: errors of devices, the driver, NVRTC or streams
struct OutOfMemory : Error {
  using Error::Error;
};  // in Python also a MemoryError: a device does not have enough memory

// Throws an error if the condition is false, for example:
//   MINIDNN_CHECK(ShapeError, window > 0, "pool_forward: window must be positive; got ", window)
// The text of the error is built only if the condition is false.
#define MINIDNN_CHECK(Kind, condition, ...)    \
  do {                                         \
    if (!(condition)) [[unlikely]]             \
      throw Kind(::minidnn::cat(__VA_ARGS__)); \
  } while (0)

}  // namespace minidnn
