// SPDX-License-Identifier: Apache-2.0
// The end of a reduction: neighbouring threads combine their partial results in a fixed order, and the first of these
// threads stores the result.
#pragma once
#include "cuda/device/reduce.cuh"
#include "cuda/reduce/reduce_params.h"

namespace minidnn {

template <ReduceKind kKind> using Partial = reduction::State<kKind, float>;

template <ReduceKind kKind, class Acc> struct ShuffleState {
  using State = reduction::State<kKind, Acc>;
  __device__ __forceinline__ State operator()(const State& s, int offset) const {
    State other;
    other.value = shuffle_down(s.value, offset);
    if constexpr (kKind == ReduceKind::arg) other.index = shuffle_down(s.index, offset);
    return other;
  }
};

// Combines the partial results of each group of `lanes` adjacent threads, where `lanes` is a power of two up to
// kReduceThreads. The first thread of a group gets the result. All threads of the block must call this function.
template <ReduceKind kKind, class Acc>
__device__ __forceinline__ reduction::State<kKind, Acc> reduce_lanes(reduction::State<kKind, Acc> s, int lanes) {
  using State = reduction::State<kKind, Acc>;
  __shared__ State warps[kReduceThreads / 32];
  const auto combine = [](const State& a, const State& b) { return reduction::combined<kKind, Acc>(a, b); };
  s = warp_reduce_down(s, min_of(lanes, 32), combine, ShuffleState<kKind, Acc>());
  if (lanes <= 32) return s;
  __syncthreads();  // Waits, because other threads may still read the results of the previous reduction.
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) warps[warp] = s;
  __syncthreads();
  if (threadIdx.x % lanes == 0)
    for (int i = 1; i < lanes / 32; ++i) s = reduction::combined<kKind, Acc>(s, warps[warp + i]);
  return s;
}

template <ReduceKind kKind>
__device__ __forceinline__ void finish(ReduceMode mode, const TensorDesc& y, void* to, int64_t output,
                                       const Partial<kKind>& s, int64_t count) {
  reduction::finish<kKind, float>(mode, y, to, y.offset_of(output), s, count);
}

}  // namespace minidnn
