// SPDX-License-Identifier: Apache-2.0
// The function of cpu.pooling.max_with_indices that updates maxima, compiled once per instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

struct MaxWithIndicesKernels {
  // Compares n elements of x, `step` apart, with n running maxima. An element that is larger than the running maximum
  // replaces it, and the index of the element is stored. The index of the first element is `index`. The index of each
  // next element is larger by index_step. A NaN is larger than every number. Of equal elements, the first is kept.
  // `largest` and `indices` are read and written in whole vectors, so memory after the n-th element is accessed too.
  using UpdateMaxima = void (*)(float* largest, int32_t* indices, int64_t n, const void* x, int64_t step, int32_t index,
                                int32_t index_step);
  UpdateMaxima f32, bf16, f16;
};

MINIDNN_PER_ISA(MaxWithIndicesKernels, max_with_indices_kernels)

}  // namespace minidnn
