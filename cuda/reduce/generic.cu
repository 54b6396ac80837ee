// SPDX-License-Identifier: Apache-2.0
// Reductions of tensors with any strides and dtypes, for problems that contiguous_axis.cu and strided_axis.cu do not
// support. `lanes` threads compute one element of the result. They read elements of x one by one, with 64-bit index
// arithmetic.
#include "cpp/core/host_device/team.h"
#include "cuda/reduce/lanes.cuh"

namespace minidnn {

// The partial result that a thread accumulates. Sums in float32 are compensated, because they may have many terms.
template <ReduceKind kKind, class Acc> struct RunningResult {
  reduction::State<kKind, Acc> all = reduction::identity<kKind, Acc>();
  __device__ void take(const reduction::State<kKind, Acc>& s) { all = reduction::combined<kKind, Acc>(all, s); }
  __device__ reduction::State<kKind, Acc> result() const { return all; }
};
template <> struct RunningResult<ReduceKind::sum, float> {
  CompensatedSum<float> all;
  __device__ void take(const reduction::State<ReduceKind::sum, float>& s) { all.add(s.value); }
  __device__ reduction::State<ReduceKind::sum, float> result() const { return {all.value()}; }
};

template <ReduceKind kKind, class Acc> __global__ void __launch_bounds__(kReduceThreads)
    reduce_generic(const __grid_constant__ ReduceProblem p, const __grid_constant__ ReduceView v, ReduceArgs a,
                   int lanes) {
  const int64_t outputs = p.y.numel(), count = v.reduced.numel();
  const int at_once = kReduceThreads / lanes;
  for (int64_t first = int64_t(blockIdx.x) * at_once; first < outputs; first += int64_t(gridDim.x) * at_once) {
    const int64_t output = first + threadIdx.x / lanes;
    RunningResult<kKind, Acc> running;
    if (output < outputs) {
      const int64_t from = v.kept.offset_of(output);
      for (int64_t i = threadIdx.x % lanes; i < count; i += lanes)
        running.take(reduction::element<kKind, Acc>(
            p.mode, reduction::load<Acc>(p.x.dtype, a.x, from + v.reduced.offset_of(i)), i));
    }
    const auto state = reduce_lanes<kKind, Acc>(running.result(), lanes);
    if (output < outputs && threadIdx.x % lanes == 0)
      reduction::finish<kKind, Acc>(p.mode, p.y, a.y, p.y.offset_of(output), state, count);
  }
}

}  // namespace minidnn
