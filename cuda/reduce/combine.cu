// SPDX-License-Identifier: Apache-2.0
// Combines the partial results of a reduction, if the elements of each result are divided into chunks.
// - Grid: `lanes` threads per result. Block: kReduceThreads. Shared memory: one partial result per warp.
// - Bytes: each partial result is read once.
// - Numerics: float32, in a fixed order.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/reduce/lanes.cuh"

namespace minidnn {

template <ReduceKind kKind> __global__ void __launch_bounds__(kReduceThreads)
    reduce_combine(const __grid_constant__ ReduceCombine r, const Partial<kKind>* partials, void* y) {
  const int lanes = int(r.lanes), lane = threadIdx.x % lanes;
  const int64_t output = int64_t(blockIdx.x) * (kReduceThreads / lanes) + threadIdx.x / lanes;
  auto s = reduction::identity<kKind, float>();
  griddep_wait();
  if (output < r.outputs)
    for (int64_t chunk = lane; chunk < r.chunks; chunk += lanes)
      s = reduction::combined<kKind, float>(s, partials[output * r.output_step + chunk * r.chunk_step]);
  s = reduce_lanes<kKind, float>(s, lanes);
  if (output < r.outputs && lane == 0) finish<kKind>(r.mode, r.y, y, output, s, r.count);
}

}  // namespace minidnn
