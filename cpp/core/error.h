// SPDX-License-Identifier: Apache-2.0
// The six error types, and the macro MINIDNN_CHECK. A message names the called function, what was found, and what would
// be accepted.
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
};  // ValueError: shapes, strides, sizes, attributes
struct DTypeError : Error {
  using Error::Error;
};  // TypeError: element types
struct IndexingError : Error {
  using Error::Error;
};  // IndexError: an index beyond its dimension, too many indices
struct NotSupported : Error {
  using Error::Error;
};  // NotImplementedError: no engine fits; lists each reason
struct DeviceError : Error {
  using Error::Error;
};  // RuntimeError: devices, driver, NVRTC, streams
struct OutOfMemory : Error {
  using Error::Error;
};  // MemoryError

// Throws an error if the condition is false, for example:
//   MINIDNN_CHECK(ShapeError, window > 0, "pool_forward: window must be positive; got ", window)
// The text is built only when the condition is false.
#define MINIDNN_CHECK(Kind, condition, ...)    \
  do {                                         \
    if (!(condition)) [[unlikely]]             \
      throw Kind(::minidnn::cat(__VA_ARGS__)); \
  } while (0)

}  // namespace minidnn
