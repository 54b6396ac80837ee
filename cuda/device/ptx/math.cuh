// SPDX-License-Identifier: Apache-2.0
// Arithmetic and conversions of one instruction. Error bounds are those of the PTX manual.
#pragma once
#include "cpp/core/half.h"

namespace minidnn {

// 2^x with a relative error of at most 2^-22. With ftz, a result below 2^-126 becomes 0.
__device__ __forceinline__ float ex2_approx(float x) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}
// The base-2 logarithm of x >= 2^-126. The relative error is at most 2^-22 if x is not between 0.5 and 2.
__device__ __forceinline__ float lg2_approx_ftz(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// 1 / x within 1 ulp. With ftz, 0 where x is above 2^126.
__device__ __forceinline__ float rcp_approx(float x) {
  asm("rcp.approx.f32 %0, %0;" : "+f"(x));
  return x;
}
__device__ __forceinline__ float rcp_approx_ftz(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The larger number; NaN if either is NaN.
__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
// The maximum of the lower and of the upper elements of two words. T is the type of the 16-bit elements. If one element
// is NaN, the result is the other.
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
// The same; NaN if either is NaN.
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
// a b + c for pairs.
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

// Two floats as a pair of 16-bit elements, rounded to nearest even. `low` has the lower address.
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
// The nearest TF32 value, ties away from zero. NaN stays NaN.
__device__ __forceinline__ uint32_t cvt_rna_tf32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}

}  // namespace minidnn
