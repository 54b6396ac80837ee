// SPDX-License-Identifier: Apache-2.0
// What kernels over rows share: where the vectors of a row begin, and sums and maxima over the threads that share a row
// (rows_params.h). There are no atomic operations, so the order of additions depends only on the shape.
#pragma once
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/rows/exponentials_math.h"
#include "cuda/rows/rows_params.h"

namespace minidnn::rows {

// Returns the sum of kN numbers, where kN is a power of two. The array f is overwritten.
template <int kN> __device__ __forceinline__ float take_sum(float (&f)[kN]) {
#pragma unroll
  for (int half = kN / 2; half > 0; half /= 2)
#pragma unroll
    for (int e = 0; e < half; ++e) f[e] += f[e + half];
  return f[0];
}

// Returns the element-wise maximum of two words of one float or two 16-bit numbers, ignoring NaN.
__device__ __forceinline__ uint32_t larger(float, uint32_t a, uint32_t b) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
template <class T> __device__ __forceinline__ uint32_t larger(T, uint32_t a, uint32_t b) { return max_x2(T(), a, b); }
// Returns the largest element of kN vectors, ignoring NaN.
template <class T, int kN> __device__ __forceinline__ float largest_of(const Vec<T> (&raw)[kN]) {
  Vec<T> largest = raw[0];
  auto take = [](uint32_t& word, uint32_t other) { word = larger(T(), word, other); };
#pragma unroll
  for (int k = 1; k < kN; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) take(largest.word[i], raw[k].word[i]);
  take(largest.word[0], largest.word[1]);
  take(largest.word[2], largest.word[3]);
  take(largest.word[0], largest.word[2]);
  float f[4 / sizeof(T)];
  Vec<T, 4 / sizeof(T)>{largest.word[0]}.unpack(f);
  return sizeof(T) == 4 ? f[0] : fmaxf(f[0], f[4 / sizeof(T) - 1]);
}

// The threads that share a row, from the view of one of them: its position among these threads, and reductions over
// them. A kernel has at most kReductions reductions.
template <int kReductions> class RowTeam {
 public:
  int64_t row;
  int32_t chunk, rank, threads;

  __device__ explicit RowTeam(const Shape& s) : threads(s.threads), chunks_(s.chunks), clustered_(s.clustered) {
    const int32_t group = s.chunks == 1 ? int32_t(blockIdx.x) : int32_t(blockIdx.x) / s.chunks;
    chunk = int32_t(blockIdx.x) - group * s.chunks;
    // If a block has more than two rows, the number of threads of a row is a power of two.
    team_ = s.teams <= 2 ? int32_t(threadIdx.x) >= threads : int32_t(threadIdx.x) >> (31 - __clz(threads));
    rank = int32_t(threadIdx.x) - team_ * threads;
    row = int64_t(group) * s.teams + team_;
#if __CUDA_ARCH__ >= 900
    // A block must not write to the shared memory of another block before that block has started. So each block arrives
    // at the cluster barrier here, and the first reduction waits for it.
    if (clustered_ && threadIdx.x == 0) {
#pragma unroll
      for (int slot = 0; slot < kReductions; ++slot) exchange_of(slot).init();
      fence_mbarrier_init();
    }
    if (clustered_) cluster_arrive_relaxed();
#endif
  }

  // Combines the Exponentials of all threads of the row (of the calling block, if the row has several blocks without a
  // cluster), and returns the result to all of them. If all numbers are -inf, the sum is 0. If a number is NaN, the sum
  // is NaN. `index` counts the calls in a kernel; even and odd calls use different buffers, because a warp may be one
  // call ahead of another. `scale` is the factor in the exponentials.
  template <class T> __device__ Exponentials join(Exponentials e, int index = 0, float scale = 1) const {
    const int lanes = threads < 32 ? threads : 32, lane = threadIdx.x % 32, warps = threads / 32;
    e = join_lanes<T>(e, lanes, scale);
    if (threads <= 32) return e;
    __shared__ Exponentials of_warp[2][32];
    const int slot = index % 2;
    if (lane == 0) of_warp[slot][threadIdx.x / 32] = e;
    named_barrier_sync(team_ + 1, threads);
    e = lane < warps ? of_warp[slot][team_ * warps + lane] : Exponentials{-INFINITY, 0};
    e = join_lanes<T>(e, 32, scale);
#if __CUDA_ARCH__ >= 900
    if (clustered_) {
      const float4* of_block = exchange<0>({e.largest, e.sum, 0, 0});
      const int block = lane % kMaxCluster;
      e = block < chunks_ ? Exponentials{of_block[block].x, of_block[block].y} : Exponentials{-INFINITY, 0};
      e = join_lanes<T>(e, kMaxCluster, scale);
    }
#endif
    return e;
  }

  // Reduces each v[i] over all threads of the row (of the calling block, if the row has several blocks without a
  // cluster). kSlot is the number of the reduction in the kernel, from 0 on.
  template <class Op, int kSlot, int kN> __device__ void reduce(float (&v)[kN]) const {
    static_assert(kSlot < kReductions && kN <= 4);
#pragma unroll
    for (int i = 0; i < kN; ++i) v[i] = warp_reduce<Op>(v[i], threads < 32 ? threads : 32);
    if (threads <= 32) return;
    __shared__ float of_warp[kReductions][kN][32];
    const int lane = threadIdx.x % 32, warps = threads / 32;
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kN; ++i) of_warp[kSlot][i][threadIdx.x / 32] = v[i];
    }
    named_barrier_sync(team_ + 1, threads);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      v[i] = lane < warps ? of_warp[kSlot][i][team_ * warps + lane] : Op::identity();
      v[i] = warp_reduce<Op>(v[i]);
    }
#if __CUDA_ARCH__ >= 900
    if (clustered_) {
      float4 mine{};
#pragma unroll
      for (int i = 0; i < kN; ++i) (&mine.x)[i] = v[i];
      const float4* of_block = exchange<kSlot>(mine);
#pragma unroll
      for (int i = 0; i < kN; ++i) v[i] = (&of_block[0].x)[i];
#pragma unroll 1
      for (int block = 1; block < chunks_; ++block)
#pragma unroll
        for (int i = 0; i < kN; ++i) v[i] = Op::of(v[i], (&of_block[block].x)[i]);
    }
#endif
  }
  template <class Op, int kSlot> __device__ float reduce(float v) const {
    float all[1]{v};
    reduce<Op, kSlot>(all);
    return all[0];
  }

 private:
#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ static ClusterExchange<kMaxCluster>& exchange_of(int slot) {
    __shared__ ClusterExchange<kMaxCluster> all[kReductions];
    return all[slot];
  }
  // Sends v to all blocks of the cluster. Returns the values of all blocks, ordered by the rank of the block.
  template <int kSlot> __device__ __forceinline__ const float4* exchange(float4 v) const {
    ClusterExchange<kMaxCluster>& slot_exchange = exchange_of(kSlot);
    if (kSlot == 0) cluster_wait();
    return slot_exchange.all_gather(chunks_, v);
  }
#endif
  template <class T> __device__ static Exponentials join_lanes(Exponentials e, int lanes, float scale) {
    const float largest = warp_reduce<MaxOp>(e.largest, lanes);
    return {largest, warp_reduce<SumOp>(e.moved<T>(largest, scale), lanes)};
  }

  int32_t team_, chunks_, clustered_;
};
using RowReduce = RowTeam<3>;

// The aligned 16-byte vectors that cover a row of a tensor. `width` is the number of elements in a vector. Vector v
// begins at element v * width - skip of the row.
template <class T> struct RowVectors {
  int64_t first;  // the index of the row's first vector among the vectors of the whole tensor
  int32_t skip, cols, vectors;

  __device__ RowVectors(const Shape& s, int64_t row) : cols(s.cols) {
    const int64_t begin = row * s.cols;
    skip = int32_t(begin % kVecWidth<T>);
    first = (begin - skip) / kVecWidth<T>;
    vectors = row < s.rows ? (skip + cols + kVecWidth<T> - 1) / kVecWidth<T> : 0;
  }
  __device__ bool holds(int32_t v, int32_t e) const { return uint32_t(v * kVecWidth<T> + e - skip) < uint32_t(cols); }
  __device__ bool holds_all(int32_t v) const { return holds(v, 0) && holds(v, kVecWidth<T> - 1); }
  // Whether the row consists of whole vectors. If so, no vector has elements of two rows.
  __device__ bool whole() const { return skip == 0 && cols % kVecWidth<T> == 0; }
  __device__ const Vec<T>* at(const void* tensor, int32_t v) const {
    return static_cast<const Vec<T>*>(tensor) + first + v;
  }
  __device__ Vec<T> load(const void* tensor, int32_t v) const { return Vec<T>::load(at(tensor, v)); }
  // Returns vector v of the row. Elements of other rows are replaced by -inf.
  __device__ Vec<T> own(const Vec<T>& vector, int32_t v) const {
    float x[kVecWidth<T>];
    vector.unpack(x);
#pragma unroll
    for (int e = 0; e < kVecWidth<T>; ++e) x[e] = holds(v, e) ? x[e] : -INFINITY;
    return Vec<T>::pack(x);
  }
  __device__ void store(void* tensor, int32_t v, const float* f) const {
    Vec<T>* to = static_cast<Vec<T>*>(tensor) + first + v;
    if (holds_all(v)) Vec<T>::pack(f).store(to);
    else {
#pragma unroll
      for (int e = 0; e < kVecWidth<T>; ++e)
        if (holds(v, e)) reinterpret_cast<T*>(to)[e] = T(f[e]);
    }
  }
};

}  // namespace minidnn::rows
