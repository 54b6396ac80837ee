// SPDX-License-Identifier: Apache-2.0
// Softmax along an axis that is not the innermost dimension in memory. A block keeps neighbouring columns in registers.
// Each thread keeps some elements of `width` adjacent columns.
// - Grid: one block per `lanes` vectors of columns. Block: 256 or 1024 threads.
// - Shared memory: softmax_columns_smem() bytes.
// - Bytes: x (in backward, y and dy) is read once, and the result is written once.
// - Numerics: float32 sums, added up pairwise by trees.
#include "cuda/rows/rows.cuh"
#include "cuda/softmax/softmax_params.h"

namespace minidnn {
namespace {

template <class T, int kWidth> struct Vectors {
  using Bits = Vec<T>;
  __device__ static void unpack(Vec<T> v, float* f) { v.unpack(f); }
  __device__ static void store(T* to, const float* f) { Vec<T>::pack(f).store(to); }
};
template <class T> struct Vectors<T, 1> {
  using Bits = T;
  __device__ static void unpack(T v, float* f) { f[0] = float(v); }
  __device__ static void store(T* to, const float* f) { *to = T(f[0]); }
};

// How the threads of a block are divided: rows of `lanes` threads. Threads with the same lane, which is the position in
// the row, share kWidth adjacent columns.
template <int kWidth> struct Columns {
  // A thread has the elements first, first + step, first + 2 * step, and so on, of each of its columns.
  int32_t lane, first, step;
  int32_t lanes;
  bool live;
  int64_t base;

  __device__ explicit Columns(const SoftmaxColumns& p) : lanes(p.lanes) {
    lane = int32_t(threadIdx.x) & (lanes - 1);
    first = int32_t(threadIdx.x) / lanes;
    step = int32_t(blockDim.x) / lanes;
    uint32_t outer = blockIdx.x * uint32_t(lanes) + lane;
    live = outer < uint32_t(p.columns);
    const int32_t column = p.columns_of_outer.divmod(outer);
    base = int64_t(outer) * p.cols * p.inner + int64_t(column) * kWidth;
  }

  // Reduces each v[e] over all threads that share a column, and returns the result to all of them. `shared` has partial
  // results of warps (or of rows of more than 32 threads), and then a result per column.
  template <class Op> __device__ void reduce(float (&v)[kWidth], float* shared) const {
    warp_reduce_strided<Op>(v, lanes);
    const int32_t numbers = lanes * kWidth, groups = int32_t(blockDim.x) / max_of(lanes, 32);
    float* const results = shared + groups * numbers;
    const int32_t group = int32_t(threadIdx.x) / max_of(lanes, 32);
    if (lanes >= 32 || threadIdx.x % 32 < lanes)
#pragma unroll
      for (int e = 0; e < kWidth; ++e) shared[group * numbers + e * lanes + lane] = v[e];
    __syncthreads();
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < numbers; i += blockDim.x) {
      float all = shared[i];
#pragma unroll 4
      for (int32_t j = 1; j < groups; ++j) all = Op::of(all, shared[j * numbers + i]);
      results[i] = all;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kWidth; ++e) v[e] = results[e * lanes + lane];
  }
};

}  // namespace

template <class T, int kWidth>
__global__ void __launch_bounds__(1024)
    softmax_columns_forward(const __grid_constant__ SoftmaxColumns p, SoftmaxArgs a) {
  using F = Vectors<T, kWidth>;
  constexpr int kVectors = kSoftmaxColumnsForward<kWidth>;
  extern __shared__ float shared[];
  const Columns<kWidth> c(p);
  const T* const x = static_cast<const T*>(a.in) + c.base;
  T* const y = static_cast<T*>(a.out) + c.base;
  const float scale = float(a.scale);

  float kept[kVectors][kWidth], largest[kWidth];
  typename F::Bits raw[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t i = c.first + k * c.step;
    if (c.live && i < p.cols) raw[k] = *reinterpret_cast<const typename F::Bits*>(x + i * p.inner);
  }
#pragma unroll
  for (int e = 0; e < kWidth; ++e) largest[e] = -INFINITY;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (!c.live || c.first + k * c.step >= p.cols) continue;
    F::unpack(raw[k], kept[k]);
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      largest[e] = fmaxf(largest[e], kept[k][e] = maths::rounded_product(kept[k][e], scale));
  }
  c.template reduce<MaxOp>(largest, shared);
  float sum[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) sum[e] = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (!c.live || c.first + k * c.step >= p.cols) continue;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float shifted = kept[k][e] - largest[e], term = maths::exp_of_negative(shifted);
      sum[e] += term;
      kept[k][e] = p.log ? shifted : term;
    }
  }
  c.template reduce<SumOp>(sum, shared);
#pragma unroll
  for (int e = 0; e < kWidth; ++e) sum[e] = p.log ? maths::log(sum[e]) : rcp_approx(sum[e]);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t i = c.first + k * c.step;
    if (!c.live || i >= p.cols) continue;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) kept[k][e] = p.log ? kept[k][e] - sum[e] : kept[k][e] * sum[e];
    F::store(y + i * p.inner, kept[k]);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(1024)
    softmax_columns_backward(const __grid_constant__ SoftmaxColumns p, SoftmaxArgs a) {
  using F = Vectors<T, kWidth>;
  constexpr int kVectors = kSoftmaxColumnsBackward<kWidth>;
  extern __shared__ float shared[];
  const Columns<kWidth> c(p);
  const T *const y = static_cast<const T*>(a.in) + c.base, *const dy = static_cast<const T*>(a.dy) + c.base;
  T* const dx = static_cast<T*>(a.out) + c.base;

  typename F::Bits ys[kVectors], dys[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t i = c.first + k * c.step;
    if (!c.live || i >= p.cols) continue;
    dys[k] = *reinterpret_cast<const typename F::Bits*>(dy + i * p.inner);
    ys[k] = *reinterpret_cast<const typename F::Bits*>(y + i * p.inner);
  }
  float sum[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) sum[e] = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (!c.live || c.first + k * c.step >= p.cols) continue;
    float values[kWidth], gradients[kWidth];
    F::unpack(dys[k], gradients);
    F::unpack(ys[k], values);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum[e] += p.log ? gradients[e] : gradients[e] * values[e];
  }
  c.template reduce<SumOp>(sum, shared);
  const float scale = float(a.scale);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t i = c.first + k * c.step;
    if (!c.live || i >= p.cols) continue;
    float values[kWidth], gradients[kWidth];
    F::unpack(dys[k], gradients);
    F::unpack(ys[k], values);
    if (p.log) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        gradients[e] = values[e] == -INFINITY ? 0 : (gradients[e] - maths::exp(values[e]) * sum[e]) * scale;
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) gradients[e] = values[e] * (gradients[e] - sum[e]) * scale;
    }
    F::store(dx + i * p.inner, gradients);
  }
}

}  // namespace minidnn
