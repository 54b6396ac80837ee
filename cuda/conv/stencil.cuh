// SPDX-License-Identifier: Apache-2.0
// What the kernels of planes.cu and pixels.cu share: how a block goes through its tiles, and how results are stored.
#pragma once
#include "cuda/conv/stencil.h"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/quad.cuh"

namespace minidnn {

// One filling of shared memory: a tile, a depth of the window, and the channels from `channel` on.
struct StencilStep {
  uint32_t position;
  int32_t z, channel;
  StencilTile tile;
  int32_t depth;  // of in; -1 where there is none

  __device__ __forceinline__ StencilStep(const Stencil& p, const StencilTiles& tiles, uint32_t position, int32_t z,
                                         int32_t channel)
      : position(position),
        z(z),
        channel(channel),
        tile(p, tiles, position),
        depth(p.depth.in_line(tile.depth).index(z)) {}
};

// Two buffers of shared memory: load(step, buffer) fills one while compute(step, buffer) reads the other. next(step) is the
// step after one, and finish(step) follows the last of a tile. All threads of the block come along.
template <class Next, class Load, class Compute, class Finish>
__device__ __forceinline__ void go_through(const StencilStep& first, uint32_t positions, Next next, Load load,
                                           Compute compute, Finish finish) {
  StencilStep loaded = first, step = first;
  bool ready = false;
#pragma unroll 1
  for (int buffer = 0;; buffer ^= 1) {
    const bool more = loaded.position < positions;
    if (more && loaded.depth >= 0) load(loaded, buffer);
    commit_copies();
    if (ready) {
      wait_copies<1>();
      __syncthreads();
      if (step.depth >= 0) compute(step, buffer ^ 1);
      __syncthreads();  // before the next tile but one comes into this buffer
      if (loaded.position != step.position) finish(step);
    }
    if (!more) break;
    ready = true;
    step = loaded;
    loaded = next(step);
  }
}

template <class T> __device__ __forceinline__ void store(const Stencil& p, void* out, int64_t at, float v) {
  if (p.wide) static_cast<float*>(out)[at] = v;
  else static_cast<T*>(out)[at] = T(v);
}
template <class T> __device__ __forceinline__ void store_quad(const Stencil& p, void* out, int64_t at,
                                                              const float (&v)[4]) {
  if (p.wide) write_quad(static_cast<float*>(out) + at, v);
  else write_quad(static_cast<T*>(out) + at, v);
}
template <class T> __device__ __forceinline__ float load_residual(const Stencil& p, const void* residual, int64_t at) {
  return p.wide ? static_cast<const float*>(residual)[at] : float(static_cast<const T*>(residual)[at]);
}

}  // namespace minidnn
