// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pointwise.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pointwise/pointwise_math.h"
#include "cpp/simd/element_spans.h"

namespace minidnn {

#define MINIDNN_COUNT(name, group, operands, formula) +1
constexpr int kPointwiseFunctions = MINIDNN_POINTWISE(MINIDNN_COUNT);
#undef MINIDNN_COUNT

struct PointwiseTypeKernels : ElementSpans {
  // The loop of each function. The pointer is null if the function does not accept the dtype.
  PointwiseFunction function[kPointwiseFunctions];
};
// Loops over elements as they are in memory, for dtypes that are computed in a wider type. Results of tests are bools. A
// pointer is null if the function has no such loop.
struct DirectFunctions {
  PointwiseFunction function[kPointwiseFunctions];
};
struct PointwiseKernels {
  PointwiseTypeKernels of[9];  // the loops, indexed by DType
  DirectFunctions direct[4];   // of float16, bfloat16, int8 and uint8
  // Copies contiguous bytes by non-temporal stores.
  void (*copy_non_temporal)(const void* from, void* to, int64_t bytes);
  // Orders the non-temporal stores that were made before this call before all stores after it.
  void (*finish)();
};

MINIDNN_PER_ISA(PointwiseKernels, pointwise_kernels)

}  // namespace minidnn
