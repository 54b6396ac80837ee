// SPDX-License-Identifier: Apache-2.0
// A switch on the dtype of x. With it, a single kernel supports all nine dtypes of x.
#pragma once
#include "cpp/transform/transform_math.h"

namespace minidnn {

// Calls f(From()), where From is the C++ type of `dtype`. f is a functor and no generic lambda, because NVRTC treats a
// generic lambda as host code.
template <class F> __device__ __forceinline__ void with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32:
      return f(float());
    case DType::float64:
      return f(double());
    case DType::float16:
      return f(float16());
    case DType::bfloat16:
      return f(bfloat16());
    case DType::int8:
      return f(int8_t());
    case DType::uint8:
      return f(uint8_t());
    case DType::int32:
      return f(int32_t());
    case DType::int64:
      return f(int64_t());
    case DType::boolean:
      return f(bool());
  }
}

}  // namespace minidnn
