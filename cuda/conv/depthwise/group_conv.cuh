// SPDX-License-Identifier: Apache-2.0
// Device code that the convolution kernels of this folder and first_layer_filter.cu share: the loop of a block over its
// tiles, and the epilogue (bias, residual, activation, store).
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/vec.cuh"

namespace minidnn {

// read_quad() reads four neighbouring elements as floats, and write_quad() writes them. Each makes one memory access,
// so the address must be a multiple of the size of four elements. The overload for float does not use Vec, which would
// change the kernels' machine code.
template <class T> __device__ __forceinline__ void read_quad(float (&v)[4], const T* from) {
  Vec<T, 4>::load(from).unpack(v);
}
__device__ __forceinline__ void read_quad(float (&v)[4], const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  v[0] = four.x;
  v[1] = four.y;
  v[2] = four.z;
  v[3] = four.w;
}
template <class T> __device__ __forceinline__ void write_quad(T* to, const float (&v)[4]) {
  Vec<T, 4>::pack(v).store(to);
}

// A step of the main loop: which data one buffer in shared memory contains.
struct GroupConvStep {
  uint32_t tile;    // the index of the tile of outputs
  int32_t z;        // the index along the depth of the window
  int32_t channel;  // the index of the first channel within each group
};

// The main loop of a block, with two buffers in shared memory: one is loaded while the other is computed. All threads
// of the block must call it.
// - next(step) returns the step after `step`.
// - load(step, buffer) starts asynchronous copies to the buffer. It returns false if the data is all padding.
// - compute(step, buffer) multiplies a full buffer. It is not called if load() returned false.
// - finish(step) is called after the last step of each tile.
template <class Next, class Load, class Compute, class Finish>
__device__ __forceinline__ void for_each_step(GroupConvStep loaded, uint32_t tiles, Next next, Load load,
                                              Compute compute, Finish finish) {
  GroupConvStep step = loaded;
  // what the buffer that is not being loaded contains
  enum { kEmpty, kPadding, kData } other = kEmpty;
#pragma unroll 1
  for (int buffer = 0;; buffer ^= 1) {
    const bool more = loaded.tile < tiles;
    const auto filled = more && load(loaded, buffer) ? kData : kPadding;
    cp_async_commit_group();
    if (other != kEmpty) {
      cp_async_wait_group<1>();
      __syncthreads();
      if (other == kData) compute(step, buffer ^ 1);
      // The next iteration overwrites the buffer that compute() has read.
      __syncthreads();
      if (loaded.tile != step.tile) finish(step);
    }
    if (!more) break;
    other = filled;
    step = loaded;
    loaded = next(step);
  }
}

template <class T> __device__ __forceinline__ void store(const GroupConv& p, void* out, int64_t at, float v) {
  if (p.wide) static_cast<float*>(out)[at] = v;
  else static_cast<T*>(out)[at] = T(v);
}
template <class T> __device__ __forceinline__ void store_quad(const GroupConv& p, void* out, int64_t at,
                                                              const float (&v)[4]) {
  if (p.wide) write_quad(static_cast<float*>(out) + at, v);
  else write_quad(static_cast<T*>(out) + at, v);
}
namespace detail {
struct ActivateFour {
  float (&v)[4];
  float alpha;
  template <class Mode> __device__ void operator()(Mode) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = activate<Mode::value>(v[i], alpha);
  }
};
}  // namespace detail

// Adds the residual to the n sums of a thread, and applies the activation. add_residual(i, four) adds the residual to
// the sums 4 i to 4 i + 3. Only relu without a residual is unrolled: the unrolled code for all thirteen activations
// would be most of the kernel. All other cases loop over four sums at a time and rotate v, so that register indices are
// constants.
template <int n, class AddResidual>
__device__ __forceinline__ void finish_sums(const GroupConv& p, float (&v)[n], float alpha, AddResidual add_residual) {
  static_assert(n % 4 == 0);
  if (!p.has_residual && p.activation == Activation::identity) return;
  if (!p.has_residual && p.activation == Activation::relu) {
#pragma unroll
    for (int i = 0; i < n; ++i) v[i] = activate<Activation::relu>(v[i], alpha);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < n / 4; ++i) {
    float four[4] = {v[0], v[1], v[2], v[3]};
    if (p.has_residual) add_residual(i, four);
    with_activation(p.activation, detail::ActivateFour{four, alpha});
#pragma unroll
    for (int j = 4; j < n; ++j) v[j - 4] = v[j];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[n - 4 + j] = four[j];
  }
}

template <class T> __device__ __forceinline__ float load_residual(const GroupConv& p, const void* residual,
                                                                  int64_t at) {
  return p.wide ? static_cast<const float*>(residual)[at] : float(static_cast<const T*>(residual)[at]);
}

}  // namespace minidnn
