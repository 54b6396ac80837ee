// SPDX-License-Identifier: Apache-2.0
// Element types: their names, sizes and C++ types, from one table.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

std::string name(DType);        // the name of a dtype in Python, such as "float32"
std::string short_name(DType);  // the short name of a dtype, such as "f32", which problem texts use
// The name of a dtype in CUDA source, such as "minidnn::float16". It becomes a template argument of kernels.
std::string cuda_name(DType);
std::optional<DType> find_dtype(const std::string& name);  // finds a dtype by its name() or short_name()
std::string dtype_names();  // the names of all dtypes for error messages: "float32, float64, ..."
size_t itemsize(DType);
double epsilon(DType);  // the machine epsilon: the distance from 1 to the next larger number; 0 for integers
constexpr bool is_floating(DType t) { return t <= DType::bfloat16; }
// Returns the dtype of sums over elements of a floating dtype, and of statistics and parameters that belong to them.
constexpr DType sum_dtype(DType t) { return t == DType::float64 ? t : DType::float32; }
// Returns whether a dtype can represent the integer. The dtype must be an integer dtype or bool.
bool holds(DType, int64_t);
// Returns the dtype of the result of an operation on two dtypes, as in NumPy. This library has no int16: where NumPy
// gives int16, this function returns int32.
DType promoted(DType, DType);
constexpr DType kFloatingDTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};
constexpr DType kDTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int8,
                             DType::uint8,   DType::int32,   DType::int64,   DType::boolean};

template <class T> struct Type {
  using type = T;
};

// Calls f(Type<T>{}), where T is the C++ type of a floating dtype. The caller must exclude all other dtypes.
template <class F> decltype(auto) with_floating(DType t, F&& f) {
  switch (t) {
    case DType::float64:
      return f(Type<double>{});
    case DType::float16:
      return f(Type<float16>{});
    case DType::bfloat16:
      return f(Type<bfloat16>{});
    default:
      return f(Type<float>{});
  }
}
template <class F> decltype(auto) with_any(DType t, F&& f) {
  switch (t) {
    case DType::int8:
      return f(Type<int8_t>{});
    case DType::uint8:
      return f(Type<uint8_t>{});
    case DType::int32:
      return f(Type<int32_t>{});
    case DType::int64:
      return f(Type<int64_t>{});
    case DType::boolean:
      return f(Type<bool>{});
    default:
      return with_floating(t, std::forward<F>(f));
  }
}
// Calls f(Type<T>{}), where T is the unsigned integer type with the given number of bytes. It serves code that only
// moves elements.
template <class F> void with_word(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

}  // namespace minidnn
