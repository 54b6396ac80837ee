// SPDX-License-Identifier: Apache-2.0
// The arithmetic of values in registers: elements of 16-byte words, reciprocals of divisors, and accumulators of maxima
// and sums. NVRTC compiles this file into the kernels, and g++ into a test that runs the kernels on the CPU.
#pragma once
#include "cuda/device/fast_math.cuh"
#include "cuda/pooling/window_params.h"

#ifdef __CUDACC__
#include "cuda/device/ptx/ld_st.cuh"
#define MINIDNN_UNROLL _Pragma("unroll")
#define MINIDNN_UNROLL_4 _Pragma("unroll 4")
#else
#define MINIDNN_UNROLL
#define MINIDNN_UNROLL_4
#endif

namespace minidnn::cuda::pooling {

// Returns 1 / v, rounded, for v from 1 to 2^48, by an approximation and one Newton step.
MINIDNN_HD float reciprocal(float v) {
  const float r = fast::reciprocal_ftz(v);
  return ::fmaf(::fmaf(-v, r, 1.f), r, r);
}
// Returns the reciprocal of the number of elements that a mean counts, along one dimension. A tile computes it once per
// row and column.
template <class S> MINIDNN_HD float axis_mean_factor(const Windows& axis, int at, bool exclude_padding) {
  const int first = at * S::stride - axis.before, low = exclude_padding ? 0 : -axis.before;
  const int high = axis.size + (exclude_padding ? 0 : axis.after);
  return reciprocal(float(max_of(min_of(first + S::window, high) - max_of(first, low), 1)));
}
// Returns 1 / divisor for the mean of window (p, q): s.mean_factor unless that is 0.
template <class S, class Params> MINIDNN_HD float mean_factor_of(const Params& s, int p, int q) {
  if (s.mean_factor != 0) return s.mean_factor;
  if constexpr (S::window > 0) {
    return axis_mean_factor<S>(s.h, p, s.exclude_padding) * axis_mean_factor<S>(s.w, q, s.exclude_padding);
  } else {
    const float n = float(s.h.counted(p, s.exclude_padding)) * float(s.w.counted(q, s.exclude_padding));
    return reciprocal(max_of(n, 1.f));
  }
}

struct alignas(16) Words {
  uint32_t word[4];
};
MINIDNN_HD Words load_words(const void* from) {
#ifdef __CUDA_ARCH__
  uint4 v = *static_cast<const uint4*>(from);
  return {v.x, v.y, v.z, v.w};
#else
  return *static_cast<const Words*>(from);
#endif
}
MINIDNN_HD void store_words(void* to, const Words& v) {
#ifdef __CUDA_ARCH__
  st_global_v4(to, {v.word[0], v.word[1], v.word[2], v.word[3]});
#else
  *static_cast<Words*>(to) = v;
#endif
}

template <class T> MINIDNN_HD void store_if(bool condition, T* to, T v) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) st_global_if(condition, to, uint32_t(detail::bits_of(v)));
  else st_global_if(condition, to, v.bits);
#else
  if (condition) *to = v;
#endif
}

template <class T> constexpr int kLanes = 16 / sizeof(T);
template <class T> constexpr bool kIsFloat16 = false;
template <> constexpr bool kIsFloat16<float16> = true;

MINIDNN_HD uint32_t word_of(float v) { return detail::bits_of(v); }
MINIDNN_HD uint32_t word_of(float16 a, float16 b) { return a.bits | uint32_t(b.bits) << 16; }
MINIDNN_HD uint32_t word_of(bfloat16 a, bfloat16 b) { return a.bits | uint32_t(b.bits) << 16; }
template <class T> MINIDNN_HD float lane(const Words& v, int i) {
  if constexpr (sizeof(T) == 4) {
    return detail::float_of(v.word[i]);
  } else {
    T t;
    t.bits = uint16_t(v.word[i / 2] >> (i % 2 * 16));
    return float(t);
  }
}
template <class T> MINIDNN_HD Words words_of(const float (&v)[kLanes<T>]) {
  Words w;
  MINIDNN_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) w.word[i] = word_of(v[i]);
    else w.word[i] = word_of(T(v[2 * i]), T(v[2 * i + 1]));
  }
  return w;
}

// Returns the larger of two numbers, or NaN if either of them is NaN. This is one instruction on a GPU.
MINIDNN_HD float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  return max_nan(a, b);
#else
  return max_or_nan(a, b);
#endif
}
template <class T> MINIDNN_HD uint32_t larger_in(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) return __float_as_uint(max_nan(__uint_as_float(a), __uint_as_float(b)));
  else return max_nan_x2(T(), a, b);
#else
  if constexpr (sizeof(T) == 4) {
    return word_of(larger(detail::float_of(a), detail::float_of(b)));
  } else {
    Words x{{a}}, y{{b}};
    return word_of(T(larger(lane<T>(x, 0), lane<T>(y, 0))), T(larger(lane<T>(x, 1), lane<T>(y, 1))));
  }
#endif
}

// Accumulators for the lanes of a 16-byte word: maxima (of type T) or sums (of type float). result() multiplies a sum
// by the rounded reciprocal of the divisor, because a division takes about ten instructions.
template <class T> struct MaxLanes {
  static constexpr bool has_indices = false;
  Words v;
  MINIDNN_HD void clear() {
    // the bits of -inf, for each element of a 32-bit word
    const uint32_t none = sizeof(T) == 4 ? 0xff800000 : kIsFloat16<T> ? 0xfc00fc00 : 0xff80ff80;
    for (int i = 0; i < 4; ++i) v.word[i] = none;
  }
  MINIDNN_HD void join(const Words& w) {
    MINIDNN_UNROLL
    for (int i = 0; i < 4; ++i) v.word[i] = larger_in<T>(v.word[i], w.word[i]);
  }
  MINIDNN_HD void join(const MaxLanes& o) { join(o.v); }
  MINIDNN_HD void begin(int32_t) {}
  MINIDNN_HD void next(const Words& w, int32_t) { join(w); }
  MINIDNN_HD Words result(float) const { return v; }
};
template <class T> struct SumLanes {
  static constexpr bool has_indices = false;
  float v[kLanes<T>];
  MINIDNN_HD void clear() {
    for (int i = 0; i < kLanes<T>; ++i) v[i] = 0;
  }
  MINIDNN_HD void join(const Words& w) {
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) v[i] += lane<T>(w, i);
  }
  MINIDNN_HD void join(const SumLanes& o) {
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) v[i] += o.v[i];
  }
  MINIDNN_HD void begin(int32_t) {}
  MINIDNN_HD void next(const Words& w, int32_t) { join(w); }
  MINIDNN_HD Words result(float factor) const {
    float out[kLanes<T>];
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) out[i] = v[i] * factor;
    return words_of<T>(out);
  }
};

// The first maximum of some elements, and its index. join() accepts elements in any order. NaN is larger than every
// number.
struct Best {
  float value = -INFINITY;
  int32_t index = 0x7fffffff;  // the index of the maximum, or 0x7fffffff if no element has been added
  // Adds an element to the maximum. The index of the element must be larger than the indices of all previous elements.
  MINIDNN_HD void next(float v, int32_t at) {
    bool take = index == 0x7fffffff || (!(v <= value) && value == value);
    value = take ? v : value;
    index = take ? at : index;
  }
  MINIDNN_HD void join(float v, int32_t at) {
    bool nan = v != v, was_nan = value != value;
    bool take = nan != was_nan ? nan : !nan && v != value ? v > value : at < index;
    value = take ? v : value;
    index = take ? at : index;
  }
};

// Largest, FirstLargest and Total accumulate each row of a window, and then the rows from top to bottom. begin() starts
// a row with the index of its first element, or -1 if it is empty. next() adds an element to the row. join() adds the
// row to the window.
struct Largest {
  float value = -INFINITY;
  MINIDNN_HD void begin(int32_t) {}
  MINIDNN_HD void next(float v, int32_t) { value = larger(value, v); }
  MINIDNN_HD void join(const Largest& o) { value = larger(value, o.value); }
  MINIDNN_HD int32_t at() const { return -1; }
};
struct FirstLargest {
  float value = -INFINITY;
  int32_t index = -1;
  MINIDNN_HD void begin(int32_t at) { index = at; }
  MINIDNN_HD void next(float v, int32_t at) {
    const bool take = !(v <= value) && value == value;
    value = take ? v : value;
    index = take ? at : index;
  }
  MINIDNN_HD void join(const FirstLargest& o) {
    const bool take = index < 0 || (!(o.value <= value) && value == value);
    value = take ? o.value : value;
    index = take ? o.index : index;
  }
  MINIDNN_HD int32_t at() const { return index; }
};
struct Total {
  float value = 0;
  MINIDNN_HD void begin(int32_t) {}
  MINIDNN_HD void next(float v, int32_t) { value += v; }
  MINIDNN_HD void join(const Total& o) { value += o.value; }
  MINIDNN_HD int32_t at() const { return -1; }
};

template <class T> struct FirstLargestLanes {
  static constexpr bool has_indices = true;
  FirstLargest of[kLanes<T>];
  MINIDNN_HD void clear() {}
  MINIDNN_HD void begin(int32_t at) {
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) of[i].begin(at);
  }
  MINIDNN_HD void next(const Words& w, int32_t at) {
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) of[i].next(lane<T>(w, i), at);
  }
  MINIDNN_HD void join(const FirstLargestLanes& o) {
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) of[i].join(o.of[i]);
  }
  MINIDNN_HD Words result(float) const {
    float out[kLanes<T>];
    MINIDNN_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) out[i] = of[i].value;
    return words_of<T>(out);
  }
};

// Converts float32 sums to 16 bytes of type T. The address `from` must be a multiple of 16 bytes.
template <class T> MINIDNN_HD Words words_of_sums(const float* from) {
  float v[kLanes<T>];
  MINIDNN_UNROLL
  for (int i = 0; i < kLanes<T>; i += 4) {
    const Words some = *reinterpret_cast<const Words*>(from + i);
    MINIDNN_UNROLL
    for (int k = 0; k < 4; ++k) v[i + k] = detail::float_of(some.word[k]);
  }
  return words_of<T>(v);
}

}  // namespace minidnn::cuda::pooling
