// SPDX-License-Identifier: Apache-2.0
// The loop of cpu.pooling.max_with_indices over a line of elements, compiled once per instruction set.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

struct MaxWithIndicesKernels {
  // Compares n elements of x, `step` apart, with n running maxima. A larger element replaces its maximum, and its index
  // is stored. The first element has index `index`, the next has `index` + index_step, and so on. A NaN is larger than
  // every number. If elements are equal, the first is kept. `largest` and `indices` are read and written in whole
  // vectors, so memory after the n-th element is accessed too.
  using UpdateMaxima = void (*)(float* largest, int32_t* indices, int64_t n, const void* x, int64_t step, int32_t index,
                                int32_t index_step);
  UpdateMaxima f32, bf16, f16;
};

MINIDNN_PER_ISA(MaxWithIndicesKernels, max_with_indices_kernels)

}  // namespace minidnn
