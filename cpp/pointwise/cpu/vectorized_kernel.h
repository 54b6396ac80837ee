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
struct PointwiseKernels {
  PointwiseTypeKernels of[9];  // the loops, indexed by DType
  // Orders the non-temporal stores that were made before this call before all stores after it.
  void (*finish)();
};

MINIDNN_PER_ISA(PointwiseKernels, pointwise_kernels)

}  // namespace minidnn
