// SPDX-License-Identifier: Apache-2.0
// Local contrast norm of dense tensors over one or two spatial dimensions. A thread goes down the rows that windows of
// its outputs have, each value read once for all of them; what neighbours read too comes from the L1. Differences to a
// window's mean are squared, never sums subtracted. Backward in two launches: g and dy s^-beta of every element go
// through memory as float32, for a window of windows would be read otherwise.
#include "cpp/norm/local_norm_math.h"
#include "cuda/norm/around.h"
#include "cuda/norm/power.cuh"
#include "cuda/norm/split.cuh"

namespace minidnn {

// Rows below each other that a thread has: as many as its registers take.
template <int V> constexpr int kRows = V == 1 ? 8 : V == 4 ? 4 : 2;

// Which outputs have a row in their windows.
struct Reads {
  int down, behind, ahead;
  __device__ __forceinline__ bool operator()(int k) const { return down - k >= -behind && down - k <= ahead; }
};

// A thread's outputs, which lie below each other, and what their windows read.
template <int V> struct Below {
  const NormAround& r;
  bool inside;
  int64_t at, top, column;  // of the first output: its element, its row in the image, its position in the row

  __device__ __forceinline__ explicit Below(const NormAround& r) : r(r) {
    uint32_t n = blockIdx.x * kAroundThreads + threadIdx.x;
    inside = n < r.threads;
    const int32_t vector = r.by_vectors.digit(n);
    top = int64_t(r.by_groups.digit(n)) * kRows<V>;
    at = (int64_t(n) * r.height + top) * r.row + int64_t(vector) * V;
    column = r.by_step.quotient(uint32_t(vector));
  }
  __device__ __forceinline__ bool has(int k) const { return top + k < r.height; }
  __device__ __forceinline__ int64_t output(int k) const { return at + k * r.row; }

  // Of each row: tap(element, reads) for the positions of windows that x has, then end(reads).
  template <class Tap, class End>
  __device__ __forceinline__ void each(int behind, int ahead, const Tap& tap, const End& end) const {
    const int first = int(max_of(int64_t(-behind), -column)), last = int(min_of(int64_t(ahead), r.width - 1 - column));
    for (int down = -behind; down < kRows<V> + ahead; ++down) {
      if (top + down < 0 || top + down >= r.height) continue;
      const Reads reads{down, behind, ahead};
      const int64_t row = at + down * r.row;
#pragma unroll 5
      for (int o = first; o <= last; ++o) tap(row + o * r.step, reads);
      end(reads);
    }
  }
};

template <int V> __device__ __forceinline__ void store_floats(float* to, const float (&v)[V]) {
  if constexpr (V == 1) *to = v[0];
  else {
#pragma unroll
    for (int e = 0; e < V; e += 4) *reinterpret_cast<float4*>(to + e) = {v[e], v[e + 1], v[e + 2], v[e + 3]};
  }
}

// y, or where weights are wanted g and dy s^-beta, and dmeans.
template <class T, int V, bool weights>
__global__ void __launch_bounds__(kAroundThreads)
    norm_around_forward(const __grid_constant__ NormAround r, LocalNormArgs a, AroundFactors f, float* g, float* own) {
  const Below<V> below(r);
  if (!below.inside) return;
  constexpr int R = kRows<V>;
  const T* x = typed<T>(a.x);
  float squares[R][V]{}, mean[R][V]{}, away[R][V]{}, line[V]{};
  if (a.means) {
#pragma unroll
    for (int k = 0; k < R; ++k)
      if (below.has(k)) {
        Packed<T, V> m;
        m.load(typed<T>(a.means) + below.output(k));
#pragma unroll
        for (int e = 0; e < V; ++e) mean[k][e] = m[e];
      }
    below.each(
        r.behind, r.ahead,
        [&](int64_t at, const Reads& reads) {
          Packed<T, V> v;
          v.load(x + at);
#pragma unroll
          for (int k = 0; k < R; ++k)
            if (reads(k)) {
#pragma unroll
              for (int e = 0; e < V; ++e) {
                const float apart = v[e] - mean[k][e];
                squares[k][e] += apart * apart;
                if (weights) away[k][e] += apart;
              }
            }
        },
        [](const Reads&) {});
  } else {
    below.each(
        r.behind, r.ahead,
        [&](int64_t at, const Reads&) {
          Packed<T, V> v;
          v.load(x + at);
#pragma unroll
          for (int e = 0; e < V; ++e) line[e] += v[e] * v[e];
        },
        [&](const Reads& reads) {
#pragma unroll
          for (int e = 0; e < V; ++e) {
#pragma unroll
            for (int k = 0; k < R; ++k)
              if (reads(k)) squares[k][e] += line[e];
            line[e] = 0;
          }
        });
  }
#pragma unroll
  for (int k = 0; k < R; ++k)
    if (below.has(k)) {
      const int64_t at = below.output(k);
      Packed<T, V> v, dy;
      v.load(x + at);
      if (weights) dy.load(typed<T>(a.dy) + at);
      float result[V], of_g[V];
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float s = f.k + f.scale * squares[k][e], p = power_of<T>(s, f.beta);
        result[e] = (weights ? dy[e] : v[e]) * p;
        if (weights) of_g[e] = result[e] * __fdividef(v[e], s);
      }
      if constexpr (weights) {
        store_floats(own + at, result);
        store_floats(g + at, of_g);
        if (a.dmeans) {
#pragma unroll
          for (int e = 0; e < V; ++e) result[e] = f.slope * of_g[e] * away[k][e];
          Packed<T, V>::store(static_cast<T*>(a.dmeans) + at, result);
        }
      } else Packed<T, V>::store(static_cast<T*>(a.out) + at, result);
    }
}

template <int V> __device__ __forceinline__ void load_floats(float (&v)[V], const float* from) {
  if constexpr (V == 1) v[0] = *from;
  else {
#pragma unroll
    for (int e = 0; e < V; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + e);
      v[e] = four.x, v[e + 1] = four.y, v[e + 2] = four.z, v[e + 3] = four.w;
    }
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kAroundThreads)
    norm_around_gradient(const __grid_constant__ NormAround r, LocalNormArgs a, AroundFactors f, const float* g,
                         const float* own) {
  const Below<V> below(r);
  if (!below.inside) return;
  constexpr int R = kRows<V>;
  Packed<T, V> x[R]{};
#pragma unroll
  for (int k = 0; k < R; ++k)
    if (below.has(k)) x[k].load(typed<T>(a.x) + below.output(k));
  float sum[R][V]{}, line[V]{};
  if (a.means) {
    below.each(
        r.ahead, r.behind,
        [&](int64_t at, const Reads& reads) {
          Packed<T, V> m;
          float some[V];
          m.load(typed<T>(a.means) + at);
          load_floats(some, g + at);
#pragma unroll
          for (int k = 0; k < R; ++k)
            if (reads(k)) {
#pragma unroll
              for (int e = 0; e < V; ++e) sum[k][e] += some[e] * (x[k][e] - m[e]);
            }
        },
        [](const Reads&) {});
  } else {
    below.each(
        r.ahead, r.behind,
        [&](int64_t at, const Reads&) {
          float some[V];
          load_floats(some, g + at);
#pragma unroll
          for (int e = 0; e < V; ++e) line[e] += some[e];
        },
        [&](const Reads& reads) {
#pragma unroll
          for (int e = 0; e < V; ++e) {
#pragma unroll
            for (int k = 0; k < R; ++k)
              if (reads(k)) sum[k][e] += line[e] * x[k][e];
            line[e] = 0;
          }
        });
  }
#pragma unroll
  for (int k = 0; k < R; ++k)
    if (below.has(k)) {
      float dx[V];
      load_floats(dx, own + below.output(k));
#pragma unroll
      for (int e = 0; e < V; ++e) dx[e] -= f.slope * sum[k][e];
      Packed<T, V>::store(static_cast<T*>(a.out) + below.output(k), dx);
    }
}

}  // namespace minidnn
