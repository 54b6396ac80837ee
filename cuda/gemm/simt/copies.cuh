// SPDX-License-Identifier: Apache-2.0
// SimtCopies: copies slices of the operands to shared memory, for simt/kernel.cu. A slice is eight values of k for each
// row of a tile.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/gemm/simt/simt_params.h"

namespace minidnn {

struct alignas(16) Four {
  float v[4];
};

__device__ __forceinline__ Four load_four(uint32_t from) {
  const float4 v = ld_shared_v4_f32(from);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ SimtEntry load_entry(uint32_t from) {
  const uint4 words = ld_shared_v4_b32(from);
  return {int64_t(words.y) << 32 | int64_t(words.x), words.z, 0};
}

// One thread's copies for a slice of one operand. kVector == 4: vectors of four rows at one k; the thread keeps its
// rows for several k. kVector == 1: single elements; the thread keeps its k for several rows. along_k: adjacent threads
// read adjacent k instead of adjacent rows.
template <int kLines, int kVector, int kThreads> struct SimtCopies {
  static constexpr int kPitch = kLines + 4, kRuns = kLines / kVector;
  static constexpr int kAcross = kVector == 1 ? kThreads / kSimtTileK : kRuns < kThreads ? kRuns : kThreads;
  static constexpr int kCount = kRuns * kSimtTileK / kThreads, kSteps = 4, kPerStep = (kCount + kSteps - 1) / kSteps;
  static constexpr uint32_t kEntry = sizeof(SimtEntry);
  // Shared-memory addresses of the first row's and the first k's offset and mask, and the destination in the slice.
  uint32_t from_row, from_k, to;
  SimtEntry fixed, varying[kPerStep];

  __device__ __forceinline__ SimtCopies(uint32_t rows, uint32_t ks, bool along_k) {
    uint32_t row = threadIdx.x % kAcross, k = threadIdx.x / kAcross;
    if constexpr (kVector == 1) {
      constexpr int kGroups = 32 / kAcross;
      k = along_k ? threadIdx.x % kSimtTileK : k % kGroups * (kSimtTileK / kGroups) + k / kGroups;
      row = along_k ? threadIdx.x / kSimtTileK : row;
    }
    from_row = rows + row * kVector * kEntry;
    from_k = ks + k * kEntry;
    to = (k * kPitch + row * kVector) * 4;
  }
  // Reads the offsets and masks for copy() with the same `step`. `k` is the byte offset of the slice's first k in the
  // ring buffer of offsets.
  __device__ __forceinline__ void read(int step, uint32_t k) {
    if (step == 0) fixed = load_entry(kVector == 1 ? from_k + k : from_row);
#pragma unroll
    for (int i = step * kPerStep; i < (step + 1) * kPerStep && i < kCount; ++i)
      varying[i % kPerStep] =
          load_entry(kVector == 1 ? from_row + i * kAcross * kEntry : from_k + k + i * (kThreads / kAcross) * kEntry);
  }
  __device__ __forceinline__ void copy(int step, uint32_t slice) {
#pragma unroll
    for (int i = step * kPerStep; i < (step + 1) * kPerStep && i < kCount; ++i) {
      const SimtEntry& entry = varying[i % kPerStep];
      cp_async<4 * kVector>(slice + to + i * (kVector == 1 ? kAcross : kThreads / kAcross * kPitch) * 4,
                            reinterpret_cast<const char*>(fixed.offset + entry.offset), (fixed.mask & entry.mask) == 0);
    }
  }
};

}  // namespace minidnn
