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

// The formulas of an activation in an epilogue whose sums have small errors. Y is the dtype of the result.
template <class Y> MINIDNN_HD constexpr Formula formula_of() {
  return sizeof(Y) == 2 ? Formula::fast_ftz : Formula::accurate;
}

// The number of columns that a warp stores in a step, of 2 * kCount columns: a line of 128 bytes or, if the columns are
// contiguous, 64, 32 or 16 columns.
template <class Y, GemmStore kStore, int kCount> MINIDNN_HD constexpr int columns_of_step() {
  if (kStore == GemmStore::transposed) return kCount % 32 == 0 ? 64 : kCount % 16 == 0 ? 32 : 16;
  return 128 / int(sizeof(Y));
}

// The bias of the columns of a tile, which are stored in steps of kColumns columns. The lanes of a warp load all of it
// together: each lane loads the bias of kColumns / 32 neighbouring columns of each step (at least one). Shuffles then
// give each lane the bias of the columns whose sums it has. If each lane loaded these just before it adds them, it would
// wait for the L1 cache many times in each tile.
template <class T, int kColumns, int kColumnsOfTile> class ColumnBias {
 public:
  // The tile begins at column n. Columns from n_limit on do not exist.
  __device__ __forceinline__ void load(const T* bias, uint32_t n, int64_t n_limit) {
    const int lane = int(threadIdx.x % 32), left = int(n_limit) - int(n);
    bias += n;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      T of[kOfLane]{};
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int column = kColumns * step + lane * kOfLane + i;
        if (lane * kOfLane < kColumns && column < left) of[i] = bias[column];
      }
      if constexpr (kOfLane == 2) packed_[step] = uint32_t(of[0].bits) | uint32_t(of[1].bits) << 16;
      else if constexpr (sizeof(T) == 2) packed_[step] = of[0].bits;
      else packed_[step] = __float_as_uint(of[0]);
    }
  }
  // Adds the bias to the sums of block `block` of eight columns and of the blocks after it, in the layout of wgmma.
  template <int kCount> __device__ __forceinline__ void add(float (&v)[kCount], int step, int block) const {
    const int of_four = int(threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      float of[2];
      if constexpr (kOfLane == 2) {
        const uint32_t pair = __shfl_sync(~0u, packed_[step], 4 * (block + j) + of_four);
        of[0] = value(pair & 0xffff);
        of[1] = value(pair >> 16);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) of[i] = value(__shfl_sync(~0u, packed_[step], 8 * (block + j) + 2 * of_four + i));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) v[4 * j + i] += of[i % 2];
    }
  }

 private:
  static constexpr int kSteps = (kColumnsOfTile + kColumns - 1) / kColumns;
  // Two 16-bit elements share a register.
  static constexpr int kOfLane = kColumns > 32 ? kColumns / 32 : 1;
  static_assert(kOfLane == 1 || (kOfLane == 2 && sizeof(T) == 2));
  __device__ __forceinline__ static float value(uint32_t bits) {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(bits);
    } else {
      T t;
      t.bits = uint16_t(bits);
      return float(t);
    }
  }
  uint32_t packed_[kSteps] = {};
};

// The output of a matrix product as one warp stores it. args.c may be null. T is the dtype of the bias. Y is the dtype
// of y and c. kFormula selects the formulas of activations (cuda/device/fast_activation.cuh).
template <class BiasType, class OutputType, Activation kActivation, bool kHasBias, bool kHasC, GemmStore kStoreOfY,
          Formula kFormula>
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

  // The bias of a tile of 2 * kCount columns, from column n on, where each lane has kCount sums of each 16 rows of a
  // warp. It is loaded if all rows have the same bias, which is contiguous.
  static constexpr bool kTileBias = kBias && (kStore == GemmStore::lines || kStore == GemmStore::summed ||
                                              kStore == GemmStore::boxes || kStore == GemmStore::transposed);
  template <int kCount> using TileBias = ColumnBias<T, columns_of_step<Y, kStore, kCount>(), 2 * kCount>;
  template <int kCount>
  __device__ __forceinline__ static TileBias<kCount> tile_bias(const GemmOutput& o, const GemmArgs& args,
                                                               uint32_t batch, uint32_t n) {
    TileBias<kCount> to;
    if constexpr (kTileBias)
      to.load(static_cast<const T*>(args.bias) + offset_of(o.bias_batch, coordinates_of(o.batch_divisor, batch)), n,
              o.n_limit);
    return to;
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
    return activate<kActivation, kFormula>(sum, activation_alpha);
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
};

}  // namespace minidnn
