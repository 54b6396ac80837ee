// SPDX-License-Identifier: Apache-2.0
// Cross-entropy along an axis that has others beside it in memory, as pixels of images have: a thread goes through the
// classes of as many neighbouring rows as a vector of 16 bytes holds, some classes ahead, once. Forward a maximum and a sum
// follow each row (Milakov & Gimelshein 2018, arXiv:1805.02867), with one exponential for a class.
#include "cuda/device/elementwise.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/loss/columns_task.h"
#include "cuda/rows/rows.cuh"

namespace minidnn {
namespace {

constexpr int kAhead = 4;                    // classes under way
constexpr float kLargest = 0x1.fffffep127f;  // finite

// Neighbouring numbers, by 16 bytes where they begin so.
template <class S, int n> __device__ __forceinline__ void load_run(const void* from, int64_t at, S (&to)[n]) {
  const S* const source = static_cast<const S*>(from) + at;
  if (reinterpret_cast<uint64_t>(source) % 16 == 0) {
    constexpr int kSome = 16 / int(sizeof(S));
#pragma unroll
    for (int i = 0; i < n; i += kSome) {
      const auto some = *reinterpret_cast<const Items<S, kSome>*>(source + i);
#pragma unroll
      for (int j = 0; j < kSome; ++j) to[i + j] = some.get(j);
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) to[i] = source[i];
  }
}
template <int n> __device__ __forceinline__ void store_run(void* to, int64_t at, const float (&v)[n]) {
  float* const target = static_cast<float*>(to) + at;
  if (reinterpret_cast<uint64_t>(target) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < n; i += 4) *reinterpret_cast<float4*>(target + i) = {v[i], v[i + 1], v[i + 2], v[i + 3]};
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) target[i] = v[i];
  }
}

template <class T> struct Strip {
  static constexpr int W = rows::kWidth<T>;
  int64_t row, first;  // the first row's number, and where its first class lies
  int32_t target[W];   // -1: no class
  uint32_t ignored = 0;

  __device__ __forceinline__ Strip(const LossColumns& p, const LossArgs& a, uint32_t vector) {
    uint32_t outer = vector;
    const int64_t at = int64_t(p.vectors_of_inner.digit(outer)) * W;
    row = outer * p.inner + at, first = int64_t(outer) * p.classes * p.inner + at;
    int64_t wide[W];
    if (p.narrow_target) {
      int32_t narrow[W];
      load_run(a.target, row, narrow);
#pragma unroll
      for (int w = 0; w < W; ++w) wide[w] = narrow[w];
    } else load_run(a.target, row, wide);
#pragma unroll
    for (int w = 0; w < W; ++w) {
      target[w] = 0 <= wide[w] && wide[w] < p.classes ? int32_t(wide[w]) : -1;
      ignored |= uint32_t(wide[w] == p.ignore_index) << w;
    }
  }
  __device__ __forceinline__ void load(const LossColumns& p, const void* x, int32_t c, uint4 (&raw)[kAhead]) const {
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (c + u < p.classes)
        raw[u] = *reinterpret_cast<const uint4*>(static_cast<const T*>(x) + first + (c + u) * p.inner);
  }
};

}  // namespace

template <class T>
__global__ void __launch_bounds__(kLossColumnsThreads, sizeof(T) == 4 ? 3 : 2)
    loss_columns_forward(const __grid_constant__ LossColumns p, LossArgs a, float* losses) {
  constexpr int W = rows::kWidth<T>;
  const uint32_t vector = blockIdx.x * kLossColumnsThreads + threadIdx.x;
  if (vector >= p.vectors) return;
  const Strip<T> strip(p, a, vector);
  float largest[W], sum[W], logit[W], logits[W];
#pragma unroll
  for (int w = 0; w < W; ++w) largest[w] = -kLargest, sum[w] = logits[w] = 0, logit[w] = INFINITY - INFINITY;
#pragma unroll 1
  for (int32_t c = 0; c < p.classes; c += kAhead) {
    uint4 raw[kAhead];
    strip.load(p, a.x, c, raw);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (c + u >= p.classes) break;
      float x[W];
      rows::unpack<T>(raw[u], x);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        const float apart = x[w] - largest[w], smaller = rows::exp_of_negative<T>(-fabsf(apart));
        sum[w] = apart > 0 ? sum[w] * smaller + 1 : sum[w] + smaller;
        largest[w] = fmaxf(largest[w], x[w]);
        if (c + u == strip.target[w]) logit[w] = x[w];
        if (p.smoothed) logits[w] += x[w];
      }
    }
  }
  let_next_grid_start();
  float lse[W], loss[W];
#pragma unroll
  for (int w = 0; w < W; ++w) {
    lse[w] = largest[w] + (maths::log(sum[w]) + (largest[w] - largest[w]));  // NaN where the largest is infinite
    loss[w] = detail::loss_of<float>(lse[w], logit[w], logits[w], p.classes, p.smoothed, float(a.smoothing));
    if (strip.ignored >> w & 1) loss[w] = 0;
  }
  store_run(a.lse, strip.row, lse);
  store_run(losses, strip.row, loss);
}

template <class T>
__global__ void __launch_bounds__(kLossColumnsThreads, 3)
    loss_columns_backward(const __grid_constant__ LossColumns p, LossArgs a, const float* gradient) {
  constexpr int W = rows::kWidth<T>;
  const uint32_t vector = blockIdx.x * kLossColumnsThreads + threadIdx.x;
  if (vector >= p.vectors) return;
  const Strip<T> strip(p, a, vector);
  const float each = float(a.smoothing) / float(p.classes), hit = 1 - float(a.smoothing) + each;
  float lse[W], g[W];
  load_run(a.lse, strip.row, lse);
  uint4 raw[kAhead];
  strip.load(p, a.x, 0, raw);
  wait_for_grid_before();
  if (p.each_gradient) load_run(gradient, strip.row, g);
#pragma unroll
  for (int w = 0; w < W; ++w) {
    if (!p.each_gradient) g[w] = gradient[0];
    if (strip.target[w] < 0) g[w] = INFINITY - INFINITY;
  }
#pragma unroll 1
  for (int32_t c = 0; c < p.classes; c += kAhead) {
    if (c > 0) strip.load(p, a.x, c, raw);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (c + u >= p.classes) break;
      float x[W];
      rows::unpack<T>(raw[u], x);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        const float less = c + u == strip.target[w] ? hit : each;
        x[w] = strip.ignored >> w & 1 ? 0.f : g[w] * (rows::exp_of_negative<T>(x[w] - lse[w]) - less);
      }
      store_sixteen(static_cast<T*>(a.dx) + strip.first + (c + u) * p.inner, rows::pack<T>(x));
    }
  }
}

}  // namespace minidnn
