// SPDX-License-Identifier: Apache-2.0
// The few things that code may use if both g++ and NVRTC compile it: fixed-width integers, MINIDNN_HD and maths
// functions, but nothing from std. Headers that include only headers of this kind are compiled into CPU engines and
// into CUDA kernels.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;  // long has 64 bits (LP64) on every host that runs NVRTC for this library
typedef unsigned long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#else
#include <cmath>
#include <cstdint>
#endif

#ifdef __CUDACC__
#define MINIDNN_HD __host__ __device__ __forceinline__
#else
#define MINIDNN_HD inline __attribute__((always_inline))
#endif

namespace minidnn {

template <class T> MINIDNN_HD T min_of(T a, T b) { return b < a ? b : a; }
template <class T> MINIDNN_HD T max_of(T a, T b) { return a < b ? b : a; }
template <class T> MINIDNN_HD T ceil_div(T a, T b) { return (a + b - 1) / b; }
// The least multiple of `unit` that is not below n.
MINIDNN_HD int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

}  // namespace minidnn
