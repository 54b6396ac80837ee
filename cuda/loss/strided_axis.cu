// SPDX-License-Identifier: Apache-2.0
// Cross-entropy along an axis that is not the innermost dimension, such as the classes of each pixel of an image. A
// thread loops once over the classes of four neighbouring rows, with kAhead classes (64 bytes) in flight. In forward,
// it keeps a running maximum and sum of each row (Milakov & Gimelshein 2018, arXiv:1805.02867). It rescales the sum
// once per kAhead classes.
// - Grid: one thread per four rows. Block: 256 threads. Shared memory: 256 bytes.
// - Bytes: x is read once, and dx is written once.
// - Numerics: float32 sums in the order of the classes.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/loss/block_sums.cuh"
#include "cuda/loss/loss_params.h"
#include "cuda/rows/rows.cuh"

namespace minidnn {
namespace {

constexpr int kWidth = kLossColumnsWidth;
// the number of classes that a thread loads at a time
template <class T> constexpr int kAhead = 64 / (kWidth * int(sizeof(T)));

// Loads four neighbouring numbers. If their address is not a multiple of 16 bytes, loads the numbers one by one.
template <class S> __device__ __forceinline__ void load_four(const void* from, int64_t at, S (&to)[kWidth]) {
  const S* const source = static_cast<const S*>(from) + at;
  Vec<S, kWidth> four;
  if (reinterpret_cast<uint64_t>(source) % 16 == 0) {
    four = Vec<S, kWidth>::load(source);
  } else {
#pragma unroll
    for (int w = 0; w < kWidth; ++w) four.put(w, source[w]);
  }
#pragma unroll
  for (int w = 0; w < kWidth; ++w) to[w] = four.get(w);
}
__device__ __forceinline__ void store_four(void* to, int64_t at, const float (&v)[kWidth]) {
  float* const target = static_cast<float*>(to) + at;
  if (reinterpret_cast<uint64_t>(target) % 16 == 0) return Vec<float, kWidth>::pack(v).store(target);
#pragma unroll
  for (int w = 0; w < kWidth; ++w) target[w] = v[w];
}

template <class T> using Four = Vec<T, kWidth>;

// The kWidth neighbouring rows that one thread processes, and their targets.
template <class T> struct Strip {
  // `row` is the index of the first of the rows. `first` is the offset in x of the element of class 0 in that row.
  int64_t row, first;
  int32_t target[kWidth];  // the target of each row, or -1 if the target is not a valid class
  uint32_t ignored = 0;    // bit w is 1 if the target of the w-th row is ignore_index

  __device__ __forceinline__ Strip(const LossColumns& p, const LossArgs& a, uint32_t number) {
    uint32_t outer = number;
    const int64_t at = int64_t(p.strips_of_inner.divmod(outer)) * kWidth;
    row = outer * p.inner + at;
    first = int64_t(outer) * p.classes * p.inner + at;
    int64_t wide[kWidth];
    if (p.narrow_target) {
      int32_t narrow[kWidth];
      load_four(a.target, row, narrow);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) wide[w] = narrow[w];
    } else load_four(a.target, row, wide);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) {
      target[w] = 0 <= wide[w] && wide[w] < p.classes ? int32_t(wide[w]) : -1;
      ignored |= uint32_t(wide[w] == p.ignore_index) << w;
    }
  }
  __device__ __forceinline__ int64_t at(const LossColumns& p, int32_t c) const { return first + c * p.inner; }
  __device__ __forceinline__ void load(const LossColumns& p, const void* x, int32_t c,
                                       Four<T> (&four)[kAhead<T>]) const {
#pragma unroll
    for (int u = 0; u < kAhead<T>; ++u)
      if (c + u < p.classes) four[u] = Four<T>::load(static_cast<const T*>(x) + at(p, c + u), p.policy);
  }
};

}  // namespace

template <class T>
__global__ void __launch_bounds__(kLossColumnsThreads, 4)
    loss_columns_forward(const __grid_constant__ LossColumns p, LossArgs a, float* losses_or_sums) {
  const uint32_t number = blockIdx.x * kLossColumnsThreads + threadIdx.x;
  const bool mine = number < p.strips;
  // All threads of a block take part in its sum. Excess threads repeat the last rows, and are not counted.
  const Strip<T> strip(p, a, mine ? number : p.strips - 1);
  float largest[kWidth], sum[kWidth], logit[kWidth], logits[kWidth];
#pragma unroll
  for (int w = 0; w < kWidth; ++w) {
    largest[w] = -INFINITY;
    sum[w] = logits[w] = 0;
    logit[w] = INFINITY - INFINITY;
  }
#pragma unroll 1
  for (int32_t c = 0; c < p.classes; c += kAhead<T>) {
    Four<T> four[kAhead<T>];
#pragma unroll
    for (Four<T>& each : four) each = Four<T>::filled(kMinusInfinity<T>);
    strip.load(p, a.x, c, four);
    Four<T> most = four[0];
#pragma unroll
    for (int u = 1; u < kAhead<T>; ++u)
#pragma unroll
      for (int i = 0; i < Four<T>::kWords; ++i) most.word[i] = rows::larger(T(), most.word[i], four[u].word[i]);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) {
      const float before = largest[w];
      largest[w] = fmaxf(before, float(most.get(w)));
      const float shift = largest[w] == -INFINITY ? 0 : largest[w];
      sum[w] *= fast::exp_of_negative_ftz<T>(before - shift);
#pragma unroll
      for (int u = 0; u < kAhead<T>; ++u) {
        const float x = float(four[u].get(w));
        if (c + u == strip.target[w]) logit[w] = x;
        if (p.smoothed && c + u < p.classes) logits[w] += x;
        sum[w] += fast::exp_of_negative_ftz<T>(x - shift);
      }
    }
  }
  griddep_launch_dependents();
  float lse[kWidth], loss[kWidth];
#pragma unroll
  for (int w = 0; w < kWidth; ++w) {
    // (largest - largest) is 0, or NaN if `largest` is infinite.
    const float log_sum = maths::log(sum[w]) + (largest[w] - largest[w]);
    lse[w] = largest[w] + log_sum;
    loss[w] =
        detail::loss_of<float>(largest[w], log_sum, logit[w], logits[w], p.classes, p.smoothed, float(a.smoothing));
    if (strip.ignored >> w & 1) loss[w] = 0;
  }
  if (mine) store_four(a.lse, strip.row, lse);
  if (p.reduced) {
    const float all = mine ? (loss[0] + loss[1]) + (loss[2] + loss[3]) : 0;
    store_block_sums(all, mine ? float(kWidth - __popc(strip.ignored)) : 0, losses_or_sums);
  } else if (mine) {
    store_four(losses_or_sums, strip.row, loss);
  }
}

template <class T>
__global__ void __launch_bounds__(kLossColumnsThreads, 4)
    loss_columns_backward(const __grid_constant__ LossColumns p, LossArgs a, const float* gradient) {
  const uint32_t number = blockIdx.x * kLossColumnsThreads + threadIdx.x;
  if (number >= p.strips) return;
  const Strip<T> strip(p, a, number);
  const float each = float(a.smoothing) / float(p.classes), hit = 1 - float(a.smoothing) + each;
  float lse[kWidth], g[kWidth];
  load_four(a.lse, strip.row, lse);
  Four<T> four[kAhead<T>];
  strip.load(p, a.x, 0, four);
  griddep_wait();
  if (!p.reduced) load_four(gradient, strip.row, g);
#pragma unroll
  for (int w = 0; w < kWidth; ++w) {
    if (p.reduced) g[w] = gradient[0];
    if (strip.target[w] < 0) g[w] = INFINITY - INFINITY;
  }
#pragma unroll 1
  for (int32_t c = 0; c < p.classes; c += kAhead<T>) {
    if (c > 0) strip.load(p, a.x, c, four);
#pragma unroll
    for (int u = 0; u < kAhead<T>; ++u) {
      if (c + u >= p.classes) break;
      float dx[kWidth];
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        const float share = fast::exp_of_negative_ftz<T>(float(four[u].get(w)) - lse[w]);
        dx[w] = strip.ignored >> w & 1 ? 0.f : g[w] * (share - (c + u == strip.target[w] ? hit : each));
      }
      Four<T>::pack(dx).store(static_cast<T*>(a.dx) + strip.at(p, c + u));
    }
  }
}

}  // namespace minidnn
