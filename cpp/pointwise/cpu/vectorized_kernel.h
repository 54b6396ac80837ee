// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pointwise.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pointwise/pointwise_math.h"

namespace minidnn {

// The number of elements that are processed at a time. Three operands of this size stay in the first-level cache.
constexpr int64_t kPointwiseSpan = 512;
#define MINIDNN_COUNT(name, group, operands, formula) +1
constexpr int kPointwiseFunctions = MINIDNN_POINTWISE(MINIDNN_COUNT);
#undef MINIDNN_COUNT

// Computes n contiguous elements. Operands and result have the type in which the dtype is computed (PointwiseType).
// `out` may be one of the operands.
using PointwiseFunction = void (*)(const void* a, const void* b, const void* c, void* out, int64_t n);
struct PointwiseTypeKernels {
  PointwiseFunction function[kPointwiseFunctions];  // null for functions that do not accept the dtype
  void (*read)(const void* from, int64_t stride, int64_t n, void* to);
  void (*write)(const void* from, int64_t n, void* to, bool non_temporal);  // writes contiguous elements
  void (*write_strided)(const void* from, int64_t n, void* to, int64_t stride);
  void (*write_bool)(const void* from, int64_t n, void* to, int64_t stride);
};
struct PointwiseKernels {
  PointwiseTypeKernels of[9];  // indexed by DType
  void (*finish)();            // must be called after stores that bypass the caches
};

MINIDNN_PER_ISA(PointwiseKernels, pointwise_kernels)

}  // namespace minidnn
