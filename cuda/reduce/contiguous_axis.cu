// SPDX-License-Identifier: Apache-2.0
// Reduces elements that are stored in contiguous spans. An output is one element of the result. If many elements are
// reduced to an output, they are divided into chunks.
// - Grid: `lanes` threads per chunk of an output. Block: kReduceThreads. Shared memory: one partial result per warp.
// - Bytes: each element is read once.
// - Numerics: float32. A thread keeps four partial results. Partial results are combined pairwise, by trees.
#include "cuda/reduce/running_result.cuh"

namespace minidnn {

template <class T, ReduceKind kKind> __global__ void __launch_bounds__(kReduceThreads)
    reduce_contiguous_axis(const __grid_constant__ ReduceRows r, const T* x, void* y, Partial<kKind>* partials) {
  constexpr int kWidth = kVecWidth<T>;
  const int lanes = int(r.lanes), lane = threadIdx.x % lanes;
  const int64_t item = int64_t(blockIdx.x) * (kReduceThreads / lanes) + threadIdx.x / lanes;
  const Map map(r.mode);
  RunningResult<kKind> results[kAhead];
  // The index of the first element of this thread's chunk, among the elements of one result.
  int64_t output = item, chunk = 0, start = 0;
  if (r.chunks > 1) {
    output = item / r.chunks;
    chunk = item - output * r.chunks;
  }
  if (item < r.items) {
    int64_t begin = 0, first = chunk;
    if (r.slices > 1) {
      first = chunk / r.slices;
      begin = (chunk - first * r.slices) * r.slice;
    }
    first *= r.spans_per_chunk;
    start = first * r.span + begin;
    const int64_t n = min_of(r.slice, r.span - begin), spans = r.spans.numel();
    x += r.kept.offset_of(output) + begin;
    for (int64_t span = first, last = min_of(spans, first + r.spans_per_chunk); span < last; ++span) {
      const T* from = x + r.spans.offset_of(span);
      const int32_t index = int32_t((span - first) * r.span);
      const int64_t head = min_of(n, int64_t((16 - reinterpret_cast<uint64_t>(from) % 16) % 16 / sizeof(T)));
      const int64_t vectors = (n - head) / kWidth, tail = head + vectors * kWidth;
      for (int64_t i = lane; i < head; i += lanes) take<kKind>(results[0], float(from[i]), index + int32_t(i), map);
      const T* body = from + head;
      for (int64_t v = lane; v < vectors; v += kAhead * lanes) {
        Vec<T> in[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (v + u * lanes < vectors) in[u] = Vec<T>::load(body + (v + u * lanes) * kWidth, r.policy);
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (v + u * lanes < vectors)
#pragma unroll
            for (int e = 0; e < kWidth; ++e)
              take<kKind>(results[u], float(in[u].get(e)), index + int32_t(head + (v + u * lanes) * kWidth) + e, map);
      }
      for (int64_t i = tail + lane; i < n; i += lanes) take<kKind>(results[0], float(from[i]), index + int32_t(i), map);
    }
  }
  griddep_launch_dependents();
  const auto joined = [&](int u) {
    return reduction::combined<kKind, float>(results[u].from(start), results[u + 1].from(start));
  };
  Partial<kKind> s = reduction::combined<kKind, float>(joined(0), joined(2));
  s = reduce_lanes<kKind, float>(s, lanes);
  if (lane > 0 || item >= r.items) return;
  if (r.chunks > 1) partials[item] = s;
  else finish<kKind>(r.mode, r.y, y, output, s, r.count);
}

}  // namespace minidnn
