// SPDX-License-Identifier: Apache-2.0
// Reductions, shared by CPU and CUDA. A reduction maps each element, combines the mapped values, and computes the
// result from the combined value. There are 13 modes, but only 4 ways to combine. For example, a minimum is a maximum
// of negated elements, and `all` is true if no element is zero.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

enum class ReduceMode : int64_t { sum, mean, max, min, prod, norm1, norm2, sumsq, amax, any, all, argmax, argmin };
enum class ReduceKind : int64_t { sum, prod, max, arg };

struct ReduceProblem {
  ReduceMode mode{};
  int64_t axes = 0;        // bit i is 1 if dimension i of x is reduced
  int64_t alignment = 16;  // the bytes to which the address of x is aligned, at most 16
  TensorDesc x, y;         // y has the dimensions of x that are not reduced
};

struct ReduceArgs {
  const void* x = nullptr;
  void* y = nullptr;
};

// The shape and strides of x: `kept` has the dimensions that are not reduced, and `reduced` those that are.
struct ReduceView {
  TensorDesc kept, reduced;
};

MINIDNN_HD ReduceView reduce_view(const ReduceProblem& p) {
  ReduceView v;
  for (int i = 0; i < p.x.rank; ++i) {
    TensorDesc& d = p.axes >> i & 1 ? v.reduced : v.kept;
    d.shape[d.rank] = p.x.shape[i];
    d.stride[d.rank++] = p.x.stride[i];
  }
  return v;
}

MINIDNN_HD constexpr ReduceKind kind_of(ReduceMode m) {
  switch (m) {
    case ReduceMode::prod:
      return ReduceKind::prod;
    case ReduceMode::max:
    case ReduceMode::min:
    case ReduceMode::amax:
    case ReduceMode::any:
    case ReduceMode::all:
      return ReduceKind::max;
    case ReduceMode::argmax:
    case ReduceMode::argmin:
      return ReduceKind::arg;
    default:
      return ReduceKind::sum;
  }
}

namespace reduction {

template <class Acc> constexpr bool is_integer = false;
template <> inline constexpr bool is_integer<int64_t> = true;

template <class Acc> MINIDNN_HD Acc negated(Acc v) {
  if constexpr (is_integer<Acc>) return Acc(0 - uint64_t(v));
  else return -v;
}

// The largest integer of a dtype. amax() returns it for the least integer, whose magnitude the dtype cannot hold.
MINIDNN_HD int64_t largest_of(DType t) {
  switch (t) {
    case DType::int8:
      return 0x7f;
    case DType::uint8:
      return 0xff;
    case DType::int32:
      return 0x7fffffff;
    default:
      return 0x7fffffffffffffff;
  }
}

// Maps an element to the value that is combined. For norm2, for example, it is the square of the element.
template <class Acc> MINIDNN_HD Acc mapped(ReduceMode mode, Acc v) {
  switch (mode) {
    case ReduceMode::amax:
      if constexpr (is_integer<Acc>)
        if (v == Acc(-0x7fffffffffffffff - 1)) return Acc(0x7fffffffffffffff);
      [[fallthrough]];
    case ReduceMode::norm1:
      return v < 0 ? negated(v) : v == 0 ? Acc(0) : v;  // also maps -0.0 to 0.0
    case ReduceMode::norm2:
    case ReduceMode::sumsq:
      if constexpr (is_integer<Acc>) return Acc(uint64_t(v) * uint64_t(v));
      else return v * v;
    case ReduceMode::min:
    case ReduceMode::argmin:
      // ~v reverses the order of integers. -v would overflow for the least value.
      if constexpr (is_integer<Acc>) return ~v;
      else return -v;
    case ReduceMode::any:
      return Acc(v != 0);
    case ReduceMode::all:
      return Acc(v == 0);
    default:
      return v;
  }
}

template <ReduceKind kind, class Acc> struct State {
  Acc value;
};
template <class Acc> struct State<ReduceKind::arg, Acc> {
  Acc value;
  // The index of an element among those that are reduced together, or -1 if there is none yet.
  int64_t index;
};

template <ReduceKind kind, class Acc> MINIDNN_HD State<kind, Acc> identity() {
  if constexpr (kind == ReduceKind::sum) return {Acc(0)};
  else if constexpr (kind == ReduceKind::prod) return {Acc(1)};
  else {
    Acc least;
    if constexpr (is_integer<Acc>) least = -9223372036854775807 - 1;
    else least = Acc(-INFINITY);
    if constexpr (kind == ReduceKind::arg) return {least, -1};
    else return {least};
  }
}

// Combines two partial results. Integers wrap around on overflow. A NaN is larger than any number. Of equal elements,
// argmax and argmin choose the first.
template <ReduceKind kind, class Acc>
MINIDNN_HD State<kind, Acc> combined(const State<kind, Acc>& a, const State<kind, Acc>& b) {
  if constexpr (kind == ReduceKind::sum) {
    if constexpr (is_integer<Acc>) return {Acc(uint64_t(a.value) + uint64_t(b.value))};
    else return {a.value + b.value};
  } else if constexpr (kind == ReduceKind::prod) {
    if constexpr (is_integer<Acc>) return {Acc(uint64_t(a.value) * uint64_t(b.value))};
    else return {a.value * b.value};
  } else if constexpr (kind == ReduceKind::max) {
    return a.value < b.value || b.value != b.value ? b : a;
  } else {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return a.value < b.value ? b : a;
    return a.index < b.index ? a : b;
  }
}

template <ReduceKind kind, class Acc>
MINIDNN_HD State<kind, Acc> element(ReduceMode mode, Acc v, int64_t index) {
  if constexpr (kind == ReduceKind::arg) return {mapped(mode, v), index};
  else return {mapped(mode, v)};
}

// Converts v to the dtype of y, and stores it at offset `at`.
template <class Acc> MINIDNN_HD void write(const TensorDesc& y, void* to, int64_t at, Acc v) {
  switch (y.dtype) {
    case DType::float32:
      static_cast<float*>(to)[at] = float(v);
      break;
    case DType::float64:
      static_cast<double*>(to)[at] = double(v);
      break;
    case DType::float16:
      static_cast<float16*>(to)[at] = float16(float(v));
      break;
    case DType::bfloat16:
      static_cast<bfloat16*>(to)[at] = bfloat16(float(v));
      break;
    case DType::int32:
      static_cast<int32_t*>(to)[at] = int32_t(int64_t(v));
      break;
    case DType::int64:
      static_cast<int64_t*>(to)[at] = int64_t(v);
      break;
    case DType::boolean:
      static_cast<uint8_t*>(to)[at] = v != 0;
      break;
    default:
      static_cast<uint8_t*>(to)[at] = uint8_t(int64_t(v));
  }
}
MINIDNN_HD float root(float v) { return ::sqrtf(v); }
MINIDNN_HD double root(double v) { return ::sqrt(v); }

template <ReduceKind kind, class Acc>
MINIDNN_HD auto finished(ReduceMode mode, const State<kind, Acc>& s, int64_t count) {
  if constexpr (kind == ReduceKind::arg) {
    return s.index;
  } else {
    Acc v = s.value;
    if constexpr (kind == ReduceKind::sum && !is_integer<Acc>) {
      if (mode == ReduceMode::mean) v /= Acc(count);
      if (mode == ReduceMode::norm2) v = root(v);
    }
    if constexpr (kind == ReduceKind::max) {
      // For `min`, mapping a value again restores it.
      if (mode == ReduceMode::min) v = mapped(mode, v);
      // For `any` and `all`, v is a maximum of zeros and ones. If no elements are reduced, v is the least value of its
      // type, which is negative. Then `any` is false and `all` is true.
      if (mode == ReduceMode::any) v = Acc(v > 0);
      if (mode == ReduceMode::all) v = Acc(!(v > 0));
    }
    return v;
  }
}
template <ReduceKind kind, class Acc>
MINIDNN_HD void finish(ReduceMode mode, const TensorDesc& y, void* to, int64_t at, const State<kind, Acc>& s,
                       int64_t count) {
  auto v = finished(mode, s, count);
  if constexpr (is_integer<Acc> && kind == ReduceKind::max)
    if (mode == ReduceMode::amax) v = min_of(v, Acc(largest_of(y.dtype)));
  write(y, to, at, v);
}

// Loads an element of any dtype and converts it to Acc.
template <class Acc> MINIDNN_HD Acc load(DType t, const void* from, int64_t at) {
  if constexpr (is_integer<Acc>) {
    switch (t) {
      case DType::int8:
        return static_cast<const int8_t*>(from)[at];
      case DType::uint8:
        return static_cast<const uint8_t*>(from)[at];
      case DType::int32:
        return static_cast<const int32_t*>(from)[at];
      case DType::boolean:
        return static_cast<const uint8_t*>(from)[at] != 0;
      default:
        return static_cast<const int64_t*>(from)[at];
    }
  } else if constexpr (sizeof(Acc) == 8) {
    return t == DType::float64 ? static_cast<const double*>(from)[at] : Acc(load<int64_t>(t, from, at));
  } else {
    return t == DType::float32   ? static_cast<const float*>(from)[at]
           : t == DType::float16 ? float(static_cast<const float16*>(from)[at])
                                 : float(static_cast<const bfloat16*>(from)[at]);
  }
}

}  // namespace reduction

// The type in which the elements of a dtype are combined. It is float64 for float64, and float32 for all other floating
// dtypes. For integers, it is float64 in the modes mean, norm1 and norm2, and int64 in all other modes.
enum class ReduceIn : int64_t { float32, float64, int64 };
MINIDNN_HD constexpr ReduceIn reduced_in(ReduceMode m, DType t) {
  if (t == DType::float64) return ReduceIn::float64;
  if (t <= DType::bfloat16) return ReduceIn::float32;
  return m == ReduceMode::mean || m == ReduceMode::norm1 || m == ReduceMode::norm2 ? ReduceIn::float64
                                                                                   : ReduceIn::int64;
}

}  // namespace minidnn
