// SPDX-License-Identifier: Apache-2.0
// Recurrent layers with all options and any strides: a thread computes a unit of a step, or a gradient of a weight
// (rnn_math.h). Steps follow each other as launches.
// - Grid: blocks that loop over items. Block: 128 threads.
// - Shared memory: none.
// - Bytes: each step reads the weights again, mostly from the L2.
// - Numerics: those of rnn_math.h, in float32, or float64 for float64.
#include "cpp/rnn/rnn_math.h"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {

template <class T, RnnPass pass>
__global__ void __launch_bounds__(128)
    rnn_pass(const __grid_constant__ RnnProblem p, const __grid_constant__ RnnLayer l, int64_t step, int64_t items) {
  griddep_wait();
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += threads)
    rnn_item<1, T>(pass, p, l, step, i);
}

}  // namespace minidnn
