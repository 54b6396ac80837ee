// SPDX-License-Identifier: Apache-2.0
// Moments that can be joined (Chan, Golub & LeVeque 1979), and sums of gradients. Batch norm and layer norm share them.
#pragma once
#include "cuda/device/reduce.cuh"
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// The moments of n values: their number n, their mean, and squares = sum((x - mean)^2). The members have no
// initialisers, because __shared__ variables must not have any.
template <class F> struct Moments {
  F n, mean, squares;
  __device__ __forceinline__ void join(const Moments& o) {
    const F all = n + o.n, difference = o.mean - mean, weight = all > F(0) ? o.n / all : F(0);
    mean += difference * weight;
    squares += o.squares + difference * difference * (n * weight);
    n = all;
  }
  // Joins the moments of all lanes of a warp. Every lane obtains the result.
  __device__ __forceinline__ void join_warp() {
#pragma unroll 1  // not unrolled, as each step has two divisions
    for (int lane = 1; lane < 32; lane *= 2) {
      Moments o;
      o.n = shuffle_xor(n, lane);
      o.mean = shuffle_xor(mean, lane);
      o.squares = shuffle_xor(squares, lane);
      // Both lanes take the lower lane's moments first, so that their results have the same bits.
      if (threadIdx.x & lane) {
        const Moments mine = *this;
        *this = o;
        join(mine);
      } else join(o);
    }
  }
};

// Two sums for the gradients of a norm: the sum of dy, and the sum of dy times another factor (`product`).
template <class F> struct Gradients {
  F dy, product;
  __device__ __forceinline__ void join(const Gradients& o) {
    dy += o.dy;
    product += o.product;
  }
  // Adds up the sums of the lanes of a warp whose indices are equal modulo kFirst, a power of two.
  template <int kFirst = 1> __device__ __forceinline__ void join_warp() {
#pragma unroll
    for (int lane = kFirst; lane < 32; lane *= 2) {
      dy += shuffle_xor(dy, lane);
      product += shuffle_xor(product, lane);
    }
  }
};

// Joins the sums of the kJoinWarps warps of a block, separately for each lane. The first warp obtains the result.
template <class Sums> __device__ __forceinline__ Sums join_warps(Sums total) {
  __shared__ Sums of_warp[kJoinWarps][32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (uint32_t half = kJoinWarps / 2; half > 0; half /= 2) {
    of_warp[warp][lane] = total;
    __syncthreads();
    if (warp < half) total.join(of_warp[warp + half][lane]);
    __syncthreads();
  }
  return total;
}

}  // namespace minidnn
