// SPDX-License-Identifier: Apache-2.0
// Copies between tensors that are contiguous along the same dimension. A word has 16 bytes or fewer: its size is the
// largest power of two that divides the lengths of all contiguous spans and all addresses. A thread copies four words.
// It loads all four before it stores the first.
#include "cuda/transform/batched_memcpy_params.h"

namespace minidnn {

template <class Word> __global__ void __launch_bounds__(kMemcpyThreads)
    transform_batched_memcpy(const __grid_constant__ BatchedMemcpyParams c, const Word* x, Word* y) {
  const uint32_t first = blockIdx.x * uint32_t(kMemcpyThreads * kMemcpyAhead) + threadIdx.x;
  Word words[kMemcpyAhead];
  int64_t to[kMemcpyAhead]{};
#pragma unroll
  for (int k = 0; k < kMemcpyAhead; ++k) {
    uint32_t rest = first + k * kMemcpyThreads;
    if (rest >= c.words) continue;
    int64_t from = c.span.divmod(rest);
    to[k] = from;
#pragma unroll
    for (int d = 0; d < kMemcpyOuters; ++d) {
      const int64_t i = c.outer[d].divmod(rest);
      from += i * c.x_outer[d];
      to[k] += i * c.y_outer[d];
    }
    words[k] = x[from];
  }
#pragma unroll
  for (int k = 0; k < kMemcpyAhead; ++k)
    if (first + k * kMemcpyThreads < c.words) y[to[k]] = words[k];
}

}  // namespace minidnn
