// SPDX-License-Identifier: Apache-2.0
// Attention with all options and any strides: a block of threads computes one row (attention_math.h).
// - Grid: blocks that loop over rows. Block: 128 threads.
// - Shared memory: 256 accumulators, and the 33 of a reduction.
// - Bytes: k and v are read again for each row, mostly from the L2.
// - Numerics: those of attention_math.h, in float32, or float64 for float64.
#include "cpp/attention/attention_math.h"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {
namespace {

template <class Acc> struct Team : BlockReduce {
  static constexpr int kThreads = 128, kElements = (kAttentionMostHead + kThreads - 1) / kThreads;
  __device__ Acc* scratch() {
    __shared__ Acc numbers[2 * AttentionTeam::kColumns];
    return numbers;
  }
  __device__ void sync() { __syncthreads(); }
};

template <class Body> __device__ __forceinline__ void each_row(int64_t rows, Body body) {
  griddep_wait();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(row);
}

}  // namespace

// Rows of o and lse, or of dq.
template <class T>
__global__ void __launch_bounds__(128) attention_q_rows(const __grid_constant__ AttentionProblem p, AttentionArgs a) {
  Team<Accumulator<T>> team;
  each_row(p.q.numel() / p.head_size(), [&](int64_t row) { attention_q_row<T>(p, a, row, team); });
}
// Rows of dk and dv.
template <class T>
__global__ void __launch_bounds__(128) attention_kv_rows(const __grid_constant__ AttentionProblem p, AttentionArgs a) {
  Team<Accumulator<T>> team;
  each_row(p.k.numel() / p.head_size(), [&](int64_t row) { attention_kv_row<T>(p, a, row, team); });
}
template <class T>
__global__ void __launch_bounds__(128) attention_dbias(const __grid_constant__ AttentionProblem p, AttentionArgs a) {
  Team<Accumulator<T>> team;
  each_row(p.dbias.numel(), [&](int64_t index) { attention_dbias_element<T>(p, a, index, team); });
}
// As attention_dbias(), with one thread for each element.
template <class T>
__global__ void __launch_bounds__(128)
    attention_dbias_by_threads(const __grid_constant__ AttentionProblem p, AttentionArgs a) {
  griddep_wait();
  SingleThread team;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.dbias.numel(); i += step)
    attention_dbias_element<T>(p, a, i, team);
}
template <class T>
__global__ void __launch_bounds__(128) attention_dsinks(const __grid_constant__ AttentionProblem p, AttentionArgs a) {
  Team<Accumulator<T>> team;
  each_row(p.heads(), [&](int64_t h) { attention_dsink<T>(p, a, h, team); });
}

}  // namespace minidnn
