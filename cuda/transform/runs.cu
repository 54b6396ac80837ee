// SPDX-License-Identifier: Apache-2.0
// Copies between tensors that are contiguous along the same dimension. A word is 16 bytes, or the largest power of two
// that divides all runs and addresses. A thread copies four words, all loaded before the first store.
#include "cuda/transform/runs.h"

namespace minidnn {

template <class Word> __global__ void __launch_bounds__(kRunsThreads)
    transform_runs(const __grid_constant__ RunsCopy c, const Word* x, Word* y) {
  const uint32_t first = blockIdx.x * uint32_t(kRunsThreads * kRunsAhead) + threadIdx.x;
  Word words[kRunsAhead];
  int64_t to[kRunsAhead]{};
#pragma unroll
  for (int k = 0; k < kRunsAhead; ++k) {
    uint32_t rest = first + k * kRunsThreads;
    if (rest >= c.words) continue;
    int64_t from = c.run.divmod(rest);
    to[k] = from;
#pragma unroll
    for (int d = 0; d < kRunsOuters; ++d) {
      const int64_t i = c.outer[d].divmod(rest);
      from += i * c.x_outer[d], to[k] += i * c.y_outer[d];
    }
    words[k] = x[from];
  }
#pragma unroll
  for (int k = 0; k < kRunsAhead; ++k)
    if (first + k * kRunsThreads < c.words) y[to[k]] = words[k];
}

}  // namespace minidnn
