// SPDX-License-Identifier: Apache-2.0
// Gather of row-major tensors, forward and backward.
// Forward: a thread copies four words of up to 16 bytes each. It loads all four words before it stores the first one.
// Threads of the same row of y use the same index. Backward: index_sort.cu has sorted the indices by row. Each thread
// sums one 16-byte vector of dx. dy is read once and dx is written once, without atomics on floats.
// Grid: enough blocks of 256 threads for all words of the result. No shared memory.
// Numerics: forward is exact. Backward sums in float32 (float64 for float64 tensors), in the order in which the indices
// are given.
#include "cuda/device/vec.cuh"
#include "cuda/gather/gather_params.h"

namespace minidnn {

template <class Word> __global__ void __launch_bounds__(kGatherThreads)
    gather_contiguous_rows(const __grid_constant__ GatherParams w, const __grid_constant__ GatherProblem p,
                           const Word* x, const void* index, Word* y) {
  const int64_t first = int64_t(blockIdx.x) * (kGatherThreads * kGatherAhead) + threadIdx.x;
  int64_t from[kGatherAhead];
#pragma unroll
  // The indices of all words are loaded first, so that all these loads, and then all loads of the words, are in flight
  // at the same time.
  for (int k = 0; k < kGatherAhead; ++k) {
    const int64_t at = first + k * kGatherThreads;
    from[k] = -1;
    if (at >= w.words) continue;
    const int64_t line = w.span.divisor == 1 ? at : w.span.quotient(at);
    uint32_t outer = uint32_t(line);
    const int64_t i = w.inner.divmod(outer), row = gather_row_at(p, index, i);
    if (row >= 0) from[k] = (outer * w.rows + row - line) * int64_t(w.span.divisor) + at;
  }
  Word words[kGatherAhead];
#pragma unroll
  for (int k = 0; k < kGatherAhead; ++k) words[k] = from[k] < 0 ? Word() : x[from[k]];
#pragma unroll
  for (int k = 0; k < kGatherAhead; ++k)
    if (first + k * kGatherThreads < w.words) y[first + k * kGatherThreads] = words[k];
}

// Computes dx. Each thread sums one 16-byte vector.
template <class T> __global__ void __launch_bounds__(kGatherThreads)
    gather_sum_contiguous_rows(const __grid_constant__ GatherParams w, GatherOrder o, const T* dy, T* dx) {
  constexpr int kItems = 16 / int(sizeof(T)), kAhead = 4;
  using Vector = Vec<T, kItems>;
  const int64_t at = int64_t(blockIdx.x) * kGatherThreads + threadIdx.x;
  if (at >= w.words) return;
  const int64_t line = w.span.divisor == 1 ? at : w.span.quotient(at), span = int64_t(w.span.divisor);
  uint32_t outer = uint32_t(line);
  const int32_t row = w.inner.divmod(outer);
  const Vector* from = reinterpret_cast<const Vector*>(dy) + outer * w.indices * span + (at - line * span);
  Accumulator<T> sums[kItems]{};
  const int32_t end = o.starts[row + 1];
  for (int32_t j = o.starts[row]; j < end; j += kAhead) {
    Vector in[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (j + k < end) in[k] = from[o.order[j + k] * span];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (j + k < end)
#pragma unroll
        for (int i = 0; i < kItems; ++i) sums[i] += Accumulator<T>(in[k].get(i));
  }
  Vector out;
#pragma unroll
  for (int i = 0; i < kItems; ++i) out.put(i, T(sums[i]));
  reinterpret_cast<Vector*>(dx)[at] = out;
}

}  // namespace minidnn
