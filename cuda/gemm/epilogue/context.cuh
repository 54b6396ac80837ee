// SPDX-License-Identifier: Apache-2.0
// GemmEpilogueContext: what all ways to store the sums of a matrix product (GemmStore) share. It has the output as one
// warp sees it, and arithmetic on the warp's accumulators.
// Accumulators are in the layout of mma.sync and wgmma: in each lane, acc[4 j + i] is the sum in row lane / 4 + 8 (i /
// 2) and column 8 j + 2 (lane % 4) + i % 2.
#pragma once
#include "cuda/device/fast_activation.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

template <class V> __device__ __forceinline__ V& shared_at(uint32_t address) {
  return *static_cast<V*>(__cvta_shared_to_generic(address));
}

// The output of a matrix product as one warp stores it. args.c may be null. T is the dtype of the bias. Y is the dtype
// of y and c. kFast selects the short formulas of activations (cuda/device/fast_activation.cuh).
template <class BiasType, class OutputType, Activation kActivation, bool kHasBias, bool kHasC, GemmStore kStoreOfY,
          bool kFast>
struct GemmEpilogueContext {
  using T = BiasType;
  using Y = OutputType;
  static constexpr bool kBias = kHasBias, kC = kHasC;
  static constexpr GemmStore kStore = kStoreOfY;

  const GemmOutput& output;
  const GemmOutputBounds& bounds;
  float* const column_sums;
  const float alpha, beta, activation_alpha;
  const uint32_t buffer;
  Y* y;
  const Y* c;
  const T* bias;

  // output_bounds replaces the bounds in `o`. `warp_buffer`: kLinesBytes bytes of shared memory, aligned to 128 bytes.
  // The buffers of a warpgroup's four warps are contiguous.
  __device__ GemmEpilogueContext(const GemmOutput& o, const GemmOutputBounds& output_bounds, const GemmArgs& args,
                                 uint32_t batch, uint32_t warp_buffer)
      : output(o),
        bounds(output_bounds),
        column_sums(args.sums),
        alpha(args.alpha),
        beta(args.beta),
        activation_alpha(args.activation_alpha),
        buffer(warp_buffer) {
    const GemmCoordinates32 at = coordinates_of(o.batch_divisor, batch);
    y = static_cast<Y*>(args.y) + output_bounds.y_offset + offset_of(o.y_batch, at);
    c = kC && args.c ? static_cast<const Y*>(args.c) + offset_of(o.c_batch, at) : nullptr;
    bias = kBias ? static_cast<const T*>(args.bias) + offset_of(o.bias_batch, at) : nullptr;
  }

  struct Row {
    bool exists;
    // Offsets in elements. The offset in bias is 0 if there is one bias per column.
    int64_t y, c, bias;
  };
  __device__ __forceinline__ Row row(uint32_t m) const {
    if (int(output.m.first) == kDigits - 1)
      return {m < uint32_t(bounds.limit[3]), int64_t(m) * output.y_m.of[3], kC ? int64_t(m) * output.c_m.of[3] : 0,
              kBias && output.bias_by_row ? int64_t(m) * output.bias.of[3] : 0};
    const GemmCoordinates32 at = coordinates_of(output.m_divisor, m);
    bool exists = true;
#pragma unroll
    for (int j = 0; j < kDigits; ++j) exists &= at.at[j] < uint32_t(bounds.limit[j]);
    return {exists, offset_of(output.y_m, at), kC ? offset_of(output.c_m, at) : 0,
            kBias && output.bias_by_row ? offset_of(output.bias, at) : 0};
  }

  __device__ __forceinline__ float activated(float sum) const {
    return ActivationMaths<kActivation, kFast>::value(sum, activation_alpha);
  }

  __device__ __forceinline__ static void wait_for_warpgroup() { named_barrier_sync(2 + int(threadIdx.x) / 128, 128); }

  template <int kCount> __device__ __forceinline__ void scale(float (&acc)[kCount]) const {
    // Keeps the caller's test for alpha != 1 a branch. Otherwise, the compiler emits a select for each sum.
    asm volatile("");
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] *= alpha;
  }

  // The lane's accumulators of two blocks of eight columns.
  template <int kCount> __device__ __forceinline__ static float (&sixteen(float (&acc)[kCount], int block))[8] {
    return reinterpret_cast<float(&)[8]>(acc[4 * block]);
  }

  // Adds the bias of each column. `left` is the number of columns from the lane's first column to the edge of y. For
  // GemmStore::lines and summed, y has a multiple of eight columns.
  template <int kCount>
  __device__ __forceinline__ static void add_bias(float (&v)[kCount], const T* bias, int left) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int at = i / 2 * 8 + i % 2;
      if ((kStore == GemmStore::lines || kStore == GemmStore::summed ? at - i % 2 : at) >= left) continue;
      const float of_column = float(bias[at]);
      v[i / 2 * 4 + i % 2] += of_column;
      v[i / 2 * 4 + 2 + i % 2] += of_column;
    }
  }
};

}  // namespace minidnn
