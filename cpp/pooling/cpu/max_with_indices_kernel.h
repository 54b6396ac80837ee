// SPDX-License-Identifier: Apache-2.0
// The function of cpu.pooling.max_with_indices that updates maxima, compiled once per instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

struct MaxWithIndicesKernels {
  // Updates n running maxima and their indices by elements of x, `step` apart. The elements have the indices `index`,
  // index + index_step, ... A NaN is larger than every number. Of equal elements, the first is kept. `largest` and
  // `indices` are accessed in whole vectors.
  using UpdateMaxima = void (*)(float* largest, int32_t* indices, int64_t n, const void* x, int64_t step, int32_t index,
                                int32_t index_step);
  UpdateMaxima f32, bf16, f16;
};

MINIDNN_PER_ISA(MaxWithIndicesKernels, max_with_indices_kernels)

}  // namespace minidnn
