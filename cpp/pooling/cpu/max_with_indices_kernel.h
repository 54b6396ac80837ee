// SPDX-License-Identifier: Apache-2.0
// The loop of cpu.pooling.max_with_indices over a line, compiled once per instruction set.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

struct MaxWithIndicesKernels {
  // Updates n running maxima and their indices with n elements of x, one every `step`. The first element has index
  // `index`; each following one has an index that is `index_step` larger. A NaN is larger than every number; of equal
  // elements the first is kept. `largest` and `indices` are accessed in whole vectors, beyond the n-th element too.
  using UpdateMaxima = void (*)(float* largest, int32_t* indices, int64_t n, const void* x, int64_t step, int32_t index,
                                int32_t index_step);
  UpdateMaxima f32, bf16, f16;
};

MINIDNN_PER_ISA(MaxWithIndicesKernels, max_with_indices_kernels)

}  // namespace minidnn
