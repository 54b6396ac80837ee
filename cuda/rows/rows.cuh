// SPDX-License-Identifier: Apache-2.0
// What kernels over rows share: vectors of 16 bytes as floats, the position of vectors in a row, and sums and maxima
// over the threads that hold a row (rows.h). Nothing is atomic; the order of additions depends only on the shape.
#pragma once
#include "cuda/device/cluster.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/quad.cuh"
#include "cuda/rows/exponentials.h"
#include "cuda/rows/rows.h"

namespace minidnn::rows {

template <class T> constexpr int kWidth = 16 / int(sizeof(T));

// Converts between a word and its two 16-bit numbers (lower half first) or its one float32 number.
template <class T> __device__ __forceinline__ void unpack_word(uint32_t word, float* f) {
  if constexpr (sizeof(T) == 4) f[0] = __uint_as_float(word);
  else {
    T low, high;
    low.bits = uint16_t(word), high.bits = uint16_t(word >> 16);
    f[0] = float(low), f[1] = float(high);
  }
}
template <> __device__ __forceinline__ void unpack_word<bfloat16>(uint32_t word, float* f) {
  f[0] = __uint_as_float(word << 16), f[1] = __uint_as_float(word & 0xffff0000);
}
template <class T> __device__ __forceinline__ uint32_t pack_word(const float* f) {
  if constexpr (sizeof(T) == 4) return __float_as_uint(f[0]);
  else return cvt_rn_x2(T(), f[0], f[1]);
}
template <class T> __device__ __forceinline__ void unpack(uint4 v, float* f) {
  constexpr int kStep = kWidth<T> / 4;
  unpack_word<T>(v.x, f), unpack_word<T>(v.y, f + kStep);
  unpack_word<T>(v.z, f + 2 * kStep), unpack_word<T>(v.w, f + 3 * kStep);
}
// A word of -inf.
template <class T> constexpr uint32_t kNothing = 0xff800000;
template <> constexpr uint32_t kNothing<bfloat16> = 0xff80ff80;
template <> constexpr uint32_t kNothing<float16> = 0xfc00fc00;
template <class T> __device__ __forceinline__ uint4 pack(const float* f) {
  constexpr int kStep = kWidth<T> / 4;
  return {pack_word<T>(f), pack_word<T>(f + kStep), pack_word<T>(f + 2 * kStep), pack_word<T>(f + 3 * kStep)};
}

// The sum of n numbers, n a power of two, by halves. Destroys f.
template <int n> __device__ __forceinline__ float take_sum(float (&f)[n]) {
#pragma unroll
  for (int half = n / 2; half > 0; half /= 2)
#pragma unroll
    for (int e = 0; e < half; ++e) f[e] += f[e + half];
  return f[0];
}

// The larger number in each position of two words. Ignores NaN.
__device__ __forceinline__ uint32_t larger(float, uint32_t a, uint32_t b) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
template <class T> __device__ __forceinline__ uint32_t larger(T, uint32_t a, uint32_t b) { return max_x2(T(), a, b); }
// The largest number of n vectors. Ignores NaN.
template <class T, int n> __device__ __forceinline__ float largest_of(const uint4 (&raw)[n]) {
  uint4 most = raw[0];
  auto take = [](uint32_t& word, uint32_t other) { word = larger(T(), word, other); };
#pragma unroll
  for (int k = 1; k < n; ++k)
    take(most.x, raw[k].x), take(most.y, raw[k].y), take(most.z, raw[k].z), take(most.w, raw[k].w);
  take(most.x, most.y), take(most.z, most.w), take(most.x, most.z);
  float f[4 / sizeof(T)];
  unpack_word<T>(most.x, f);
  return sizeof(T) == 4 ? f[0] : fmaxf(f[0], f[4 / sizeof(T) - 1]);
}

struct Sum {
  __device__ static float nothing() { return 0; }
  __device__ static float of(float a, float b) { return a + b; }
};
// Ignores NaN.
struct Max {
  __device__ static float nothing() { return -INFINITY; }
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

// The threads that hold a row, from the view of one of them.
class Team {
 public:
  int64_t row;
  int32_t piece, rank, threads;

  __device__ explicit Team(const Shape& s) : threads(s.threads), pieces_(s.pieces), clustered_(s.clustered) {
    const int32_t group = blockIdx.x / s.pieces;
    piece = int32_t(blockIdx.x) - group * s.pieces;
    team_ = int32_t(threadIdx.x) / threads;
    rank = int32_t(threadIdx.x) - team_ * threads;
    row = int64_t(group) * (int32_t(blockDim.x) / threads) + team_;
#if __CUDA_ARCH__ >= 900
    // A block must have started before others write to its shared memory. The first reduction therefore waits for this
    // arrival of all blocks.
    if (clustered_ && threadIdx.x == 0) {
#pragma unroll
      for (int slot = 0; slot < kReductions; ++slot) mbarrier_init(cvta_to_shared(&given(slot).come), 1);
      fence_mbarrier_init();
    }
    if (clustered_) cluster_arrive_relaxed();
#endif
  }

  // Joins the Exponentials of all threads of the row, or of the piece if pieces are not clustered. All threads receive
  // the result. If all numbers are -inf, the sum is 0. A NaN need not be the largest, but it appears in the sum. `turn`
  // is the number of this join. Consecutive joins use different buffers, because a warp may be one join ahead while
  // others still read; it can not be two ahead. `scale` is the factor of the numbers in their exponentials.
  template <class T> __device__ Exponentials join(Exponentials e, int turn = 0, float scale = 1) const {
    const int lanes = threads < 32 ? threads : 32, lane = threadIdx.x % 32, warps = threads / 32;
    e = join_lanes<T>(e, lanes, scale);
    if (threads <= 32) return e;
    __shared__ Exponentials of_warp[2][32];
    const int slot = turn % 2;
    if (lane == 0) of_warp[slot][threadIdx.x / 32] = e;
    named_barrier_sync(team_ + 1, threads);
    e = lane < warps ? of_warp[slot][team_ * warps + lane] : Exponentials{-INFINITY, 0};
    e = join_lanes<T>(e, 32, scale);
#if __CUDA_ARCH__ >= 900
    if (clustered_) {
      const float4* of_block = exchange<0>({e.largest, e.sum, 0, 0});
      const int block = lane % kMostOfCluster;
      e = block < pieces_ ? Exponentials{of_block[block].x, of_block[block].y} : Exponentials{-INFINITY, 0};
      e = join_lanes<T>(e, kMostOfCluster, scale);
    }
#endif
    return e;
  }

  static constexpr int kReductions = 3;  // most reductions in one kernel
  // Reduces v over the row, or over the piece if pieces are not clustered. `slot`: 0 for the first reduction of a
  // kernel, 1 for the next, and so on.
  template <class Op, int slot> __device__ float reduce(float v) const {
#pragma unroll 1
    for (int offset = (threads < 32 ? threads : 32) / 2; offset > 0; offset /= 2)
      v = Op::of(v, __shfl_xor_sync(0xffffffff, v, offset));
    if (threads <= 32) return v;
    __shared__ float of_warp[kReductions][32];
    const int lane = threadIdx.x % 32, warps = threads / 32;
    if (lane == 0) of_warp[slot][threadIdx.x / 32] = v;
    named_barrier_sync(team_ + 1, threads);
    v = lane < warps ? of_warp[slot][team_ * warps + lane] : Op::nothing();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v = Op::of(v, __shfl_xor_sync(0xffffffff, v, offset));
#if __CUDA_ARCH__ >= 900
    if (clustered_) {
      const float4* of_block = exchange<slot>({v, 0, 0, 0});
      v = of_block[0].x;
#pragma unroll 1
      for (int i = 1; i < pieces_; ++i) v = Op::of(v, of_block[i].x);
    }
#endif
    return v;
  }

 private:
#if __CUDA_ARCH__ >= 900
  // The values that the blocks of a cluster send to each other in one reduction, and the mbarrier that counts them.
  struct Given {
    float4 of_block[1][kMostOfCluster];
    uint64_t come;
  };
  __device__ __forceinline__ static Given& given(int slot) {
    __shared__ Given all[kReductions];
    return all[slot];
  }
  // Sends v to all blocks of the cluster and returns the values of all blocks.
  template <int slot> __device__ __forceinline__ const float4* exchange(float4 v) const {
    Given& g = given(slot);
    if (slot == 0) cluster_wait();
    const float4 mine[1]{v};
    cluster_all_gather(pieces_, g.of_block, g.come, 0, mine);
    return g.of_block[0];
  }
#endif
  template <class T> __device__ static Exponentials join_lanes(Exponentials e, int lanes, float scale) {
    float largest = e.largest;
#pragma unroll 1
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      largest = Max::of(largest, __shfl_xor_sync(0xffffffff, largest, offset));
    e.sum = e.moved<T>(largest, scale);
#pragma unroll 1
    for (int offset = lanes / 2; offset > 0; offset /= 2) e.sum += __shfl_xor_sync(0xffffffff, e.sum, offset);
    return {largest, e.sum};
  }

  int32_t team_, pieces_, clustered_;
};

// The vectors of a row: vector v begins at element v * width - skip of the row.
template <class T> struct Line {
  int64_t first;  // index of the first vector in the tensor
  int32_t skip, cols, vectors;

  __device__ Line(const Shape& s, int64_t row) : cols(s.cols) {
    const int64_t begin = row * s.cols;
    skip = int32_t(begin % kWidth<T>);
    first = (begin - skip) / kWidth<T>;
    vectors = row < s.rows ? (skip + cols + kWidth<T> - 1) / kWidth<T> : 0;
  }
  __device__ bool holds(int32_t v, int32_t e) const { return uint32_t(v * kWidth<T> + e - skip) < uint32_t(cols); }
  __device__ bool holds_all(int32_t v) const { return holds(v, 0) && holds(v, kWidth<T> - 1); }
  // no vector is shared with a neighbouring row
  __device__ bool whole() const { return skip == 0 && cols % kWidth<T> == 0; }
  __device__ const uint4* at(const void* tensor, int32_t v) const {
    return static_cast<const uint4*>(tensor) + first + v;
  }
  __device__ uint4 load(const void* tensor, int32_t v) const { return *at(tensor, v); }
  // The vector with -inf in place of elements of other rows.
  __device__ uint4 own(uint4 vector, int32_t v) const {
    float x[kWidth<T>];
    unpack<T>(vector, x);
#pragma unroll
    for (int e = 0; e < kWidth<T>; ++e) x[e] = holds(v, e) ? x[e] : -INFINITY;
    return pack<T>(x);
  }
  __device__ void store(void* tensor, int32_t v, const float* f) const {
    uint4* to = static_cast<uint4*>(tensor) + first + v;
    if (holds_all(v)) st_global_v4(to, pack<T>(f));
    else {
#pragma unroll
      for (int e = 0; e < kWidth<T>; ++e)
        if (holds(v, e)) reinterpret_cast<T*>(to)[e] = T(f[e]);
    }
  }
};

}  // namespace minidnn::rows
