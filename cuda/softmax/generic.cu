// SPDX-License-Identifier: Apache-2.0
// Softmax over any axis and strides: a block or a thread per row.
// Grid: blocks that loop over rows. Block: whole warps, up to 1024 threads, or 256 threads with a row each. Shared
// memory: 33 doubles. Bytes: each input is read three times (forward) or twice (backward), from the cache after the
// first time if a block's rows fit it. Numerics: those of softmax_math.h, in the accumulator's type.
#include "cpp/softmax/softmax_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {

// Blocks have any number of whole warps.
template <class T, SoftmaxDirection kDirection, bool kLog>
__global__ void __launch_bounds__(1024) softmax_block_per_row(const __grid_constant__ SoftmaxProblem p, SoftmaxArgs a) {
  BlockReduce team;
  for (int64_t row = blockIdx.x, rows = p.rows(); row < rows; row += gridDim.x)
    softmax_row<T, kDirection, kLog>(p, a, row, team);
}

template <class T, SoftmaxDirection kDirection, bool kLog>
__global__ void __launch_bounds__(256) softmax_thread_per_row(const __grid_constant__ SoftmaxProblem p, SoftmaxArgs a) {
  SingleThread team;
  grid_stride(p.rows(), [&](int64_t row) { softmax_row<T, kDirection, kLog>(p, a, row, team); });
}

}  // namespace minidnn
