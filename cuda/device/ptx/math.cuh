// SPDX-License-Identifier: Apache-2.0
// Arithmetic and conversions that take one instruction. The error bounds are from the PTX manual.
#pragma once
#include "cpp/core/host_device/half.h"

namespace minidnn {

// 2^x with a relative error of at most 2^-22. ex2_approx_ftz() returns 0 if 2^x is below 2^-126.
__device__ __forceinline__ float ex2_approx(float x) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}
// The base-2 logarithm of x, for x >= 2^-126. The absolute error is at most 2^-22 for x between 0.5 and 2. For all
// other x, the relative error is at most 2^-22.
__device__ __forceinline__ float lg2_approx_ftz(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// 1 / x with an error of at most 1 ulp. rcp_approx_ftz() returns 0 if x is above 2^126.
__device__ __forceinline__ float rcp_approx(float x) {
  asm("rcp.approx.f32 %0, %0;" : "+f"(x));
  return x;
}
__device__ __forceinline__ float rcp_approx_ftz(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The product of two 32-bit numbers, in one instruction. The compiler may replace an ordinary product by one of 64-bit
// numbers, which takes two.
__device__ __forceinline__ uint64_t mul_wide(uint32_t a, uint32_t b) {
  uint64_t result;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(a), "r"(b));
  return result;
}

// a * b + c for 32-bit numbers a and b, in one instruction.
__device__ __forceinline__ int64_t mad_wide(int32_t a, int32_t b, int64_t c) {
  int64_t result;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(result) : "r"(a), "r"(b), "l"(c));
  return result;
}
// Adds b to a, which keeps its registers. The compiler may compute several ordinary sums from the first of them.
__device__ __forceinline__ void add_s64(int64_t& a, int64_t b) { asm("add.s64 %0, %0, %1;" : "+l"(a) : "l"(b)); }

// The larger of a and b. The result is NaN if a or b is NaN.
__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
// The maximum of each of the two 16-bit elements in word a and the corresponding element in word b. The maximum of a
// number and NaN is the number.
__device__ __forceinline__ uint32_t max_x2(bfloat16, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ uint32_t max_x2(float16, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
// The maximum of each of the two 16-bit elements in word a and the corresponding element in word b. The maximum of a
// number and NaN is NaN.
__device__ __forceinline__ uint32_t max_nan_x2(bfloat16, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ uint32_t max_nan_x2(float16, uint32_t a, uint32_t b) {
  uint32_t result;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
// a * b + c for each of the two 16-bit elements in the words a, b and c.
__device__ __forceinline__ uint32_t fma_x2(bfloat16, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
__device__ __forceinline__ uint32_t fma_x2(float16, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// Converts two floats to the two 16-bit elements of a word, rounded to nearest even. `low` becomes the element with the
// lower address.
__device__ __forceinline__ uint32_t cvt_rn_x2(bfloat16, float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ __forceinline__ uint32_t cvt_rn_x2(float16, float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
// Rounds a float to the nearest TF32 value. Ties round away from zero; NaN stays NaN.
__device__ __forceinline__ uint32_t cvt_rna_tf32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}

}  // namespace minidnn
