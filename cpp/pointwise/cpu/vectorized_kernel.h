// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pointwise.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pointwise/pointwise_math.h"

namespace minidnn {

// The number of elements that are processed at a time. Three operands with this many elements fit the first-level
// cache.
constexpr int64_t kPointwiseSpan = 512;
#define MINIDNN_COUNT(name, group, operands, formula) +1
constexpr int kPointwiseFunctions = MINIDNN_POINTWISE(MINIDNN_COUNT);
#undef MINIDNN_COUNT

// Computes a function for n contiguous elements. Operands and result have the type in which elements of a dtype are
// computed (PointwiseType). `out` may be the same memory as an operand.
using PointwiseFunction = void (*)(const void* a, const void* b, const void* c, void* out, int64_t n);
struct PointwiseTypeKernels {
  // The loop of each function. The pointer is null if the function does not accept the dtype.
  PointwiseFunction function[kPointwiseFunctions];
  void (*read)(const void* from, int64_t stride, int64_t n, void* to);
  // Writes n contiguous elements. If `non_temporal` is set, the stores bypass the caches.
  void (*write)(const void* from, int64_t n, void* to, bool non_temporal);
  void (*write_strided)(const void* from, int64_t n, void* to, int64_t stride);
  void (*write_bool)(const void* from, int64_t n, void* to, int64_t stride);
};
struct PointwiseKernels {
  PointwiseTypeKernels of[9];  // the loops, indexed by DType
  // Orders the non-temporal stores that were made before this call before all stores after it.
  void (*finish)();
};

MINIDNN_PER_ISA(PointwiseKernels, pointwise_kernels)

}  // namespace minidnn
