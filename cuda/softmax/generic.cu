// SPDX-License-Identifier: Apache-2.0
// Softmax over any axis and strides: one block or one thread computes each row.
// - Grid: blocks that loop over rows. Block: whole warps (1024 threads at most) per row, or 256 threads with one row
//   each.
// - Shared memory: 33 doubles.
// - Bytes: each input is read three times (forward) or twice (backward). If the rows of a block fit the cache, only the
//   first read is from memory.
// - Numerics: the formulas of softmax_math.h, in the accumulator's type.
#include "cpp/softmax/softmax_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {

// The kernel of softmax in which one block computes each row. Blocks may have any number of whole warps.
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
