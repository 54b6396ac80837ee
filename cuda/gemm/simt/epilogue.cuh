// SPDX-License-Identifier: Apache-2.0
// The epilogue of simt/kernel.cu. The sums of a tile pass through shared memory. If a cluster has split k, its blocks
// add up the sums in the shared memory of all blocks.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/gemm/simt/copies.cuh"

namespace minidnn {

// The byte offsets of a tile's rows (or columns) in y, c and bias, and the number of rows (or columns) that exist.
struct SimtOutSide {
  const int64_t *y, *c, *bias;
  int left;
};

// The blocks that share a tile, each with a part of k: a cluster, or a single block.
struct SimtSplitBlocks {
  uint32_t count = 1, rank = 0;

  __device__ __forceinline__ explicit SimtSplitBlocks(const SimtParams& p) {
#if __CUDA_ARCH__ >= 900
    if (p.flags & kSimtCluster) {
      count = p.splits.divisor;
      rank = cluster_ctarank();
    }
#endif
  }
  // Barriers of these blocks: written() after writes to shared memory that other blocks read, read() before the next
  // writes.
  __device__ __forceinline__ void written() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) return cluster_sync();
#endif
    __syncthreads();
  }
  __device__ __forceinline__ void read() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) return cluster_sync_relaxed();
#endif
    __syncthreads();
  }
  template <int kVector> __device__ __forceinline__ Four sum(const float* at) const {
    Four v;
#if __CUDA_ARCH__ >= 900
    if (count > 1) {
      const uint32_t address = cvta_to_shared(at);
      ld_cluster<kVector>(v.v, address, 0);
#pragma unroll 4
      for (uint32_t block = 1; block < count; ++block) {
        Four more;
        ld_cluster<kVector>(more.v, address, block);
#pragma unroll
        for (int i = 0; i < kVector; ++i) v.v[i] += more.v[i];
      }
      return v;
    }
#endif
    if constexpr (kVector == 4) v = *reinterpret_cast<const Four*>(at);
    else v.v[0] = *at;
    return v;
  }
};

// Adds beta * c and bias to the sums, which include alpha, applies ReLU, and stores them to y. The sums are in shared
// memory as [kAcross][kAlong + padding], and adjacent in y along kAlong. The blocks of a cluster store a share each.
template <int kVector, int kThreads, int kAlong, int kAcross>
__device__ __forceinline__ void store(const float* sums, const SimtParams& p, char* y, const char* c, const char* bias,
                                      const SimtOutSide& at_along, const SimtOutSide& at_across,
                                      const SimtSplitBlocks& sharers) {
  constexpr int kRuns = kAlong / kVector, kPitch = kAlong + 4;
  const bool extras = c || bias || p.flags & kSimtRelu;
  // A plain copy of the sums, with a fifth of the instructions of the general loop below.
  if (kThreads % kRuns == 0 && !extras && sharers.count == 1) {
    const int along = threadIdx.x % kRuns * kVector;
    const int end = along < at_along.left ? min(at_across.left, kAcross) : 0;
    char* to = y + at_along.y[along];
#pragma unroll 4
    for (int across = threadIdx.x / kRuns; across < end; across += kThreads / kRuns) {
      const float* from = sums + across * kPitch + along;
      if constexpr (kVector == 4)
        *reinterpret_cast<Four*>(to + at_across.y[across]) = *reinterpret_cast<const Four*>(from);
      else *reinterpret_cast<float*>(to + at_across.y[across]) = *from;
    }
    return;
  }
#pragma unroll 1
  for (uint32_t e = sharers.rank * kThreads + threadIdx.x; e < kRuns * kAcross; e += sharers.count * kThreads) {
    const int along = e % kRuns * kVector, across = e / kRuns;
    if (along >= at_along.left || across >= at_across.left) continue;
    Four v = sharers.sum<kVector>(sums + across * kPitch + along);
    // One branch for all three. With separate branches, three quarters of the loop would be branches.
    if (extras)
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (c) v.v[i] += p.args.beta * *reinterpret_cast<const float*>(c + at_along.c[along + i] + at_across.c[across]);
        if (bias) v.v[i] += *reinterpret_cast<const float*>(bias + at_along.bias[along + i] + at_across.bias[across]);
        if (p.flags & kSimtRelu) v.v[i] = activate<Activation::relu>(v.v[i], 0.0f);
      }
    char* to = y + at_along.y[along] + at_across.y[across];
    if constexpr (kVector == 4) *reinterpret_cast<Four*>(to) = v;
    else *reinterpret_cast<float*>(to) = v.v[0];
  }
}

// Writes a thread's sums, multiplied by alpha, to shared memory in the order of y.
template <class Tile>
__device__ __forceinline__ void write_sums(const float (&sums)[Tile::kSumsM][Tile::kSumsN], float alpha, bool along_m,
                                           int at_m, int column, float* to) {
  constexpr int kColumns = SimtSharedOut<Tile::kM, Tile::kN>::kColumns;
  constexpr int kPitchM = Tile::kM + Tile::kPad, kPitchN = kColumns + Tile::kPad;
#pragma unroll
  for (int i = 0; i < Tile::kSumsM; i += 4)
#pragma unroll
    for (int j = 0; j < Tile::kSumsN; j += 4) {
      if (along_m) {
        float* at = to + (column + j / 4 * Tile::kGroupN) * kPitchM + at_m + i / 4 * Tile::kGroupM;
#pragma unroll
        for (int l = 0; l < 4; ++l)
          *reinterpret_cast<Four*>(at + l * kPitchM) = {alpha * sums[i][j + l], alpha * sums[i + 1][j + l],
                                                        alpha * sums[i + 2][j + l], alpha * sums[i + 3][j + l]};
      } else {
        float* at = to + (at_m + i / 4 * Tile::kGroupM) * kPitchN + column + j / 4 * Tile::kGroupN;
#pragma unroll
        for (int l = 0; l < 4; ++l)
          *reinterpret_cast<Four*>(at + l * kPitchN) = {alpha * sums[i + l][j], alpha * sums[i + l][j + 1],
                                                        alpha * sums[i + l][j + 2], alpha * sums[i + l][j + 3]};
      }
    }
}

// Writes the offsets of a tile's rows and columns in y, c and bias to shared memory.
template <class Tile>
__device__ void write_offsets(const SimtParams& p, const SimtPhase& of, const SimtBlock& block,
                              SimtSharedOut<Tile::kM, Tile::kN>& out) {
  constexpr int kTileM = Tile::kM, kTileN = Tile::kN, kThreads = Tile::kThreads;
#pragma unroll 1
  for (int i = threadIdx.x; i < kTileM; i += kThreads) {
    const GemmCoordinates32 d = of.m.coordinates(block.first_m + i);
    out.y_m[i] = offset_of(of.y_m, d);
    if (p.args.c) out.c_m[i] = offset_of(p.c_m, d);
    if (p.args.bias) out.bias_m[i] = offset_of(p.bias_m, d);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < kTileN; i += kThreads) {
    const GemmCoordinates32 d = of.n.coordinates(block.first_n + i);
    out.y_n[i] = offset_of(of.y_n, d);
    if (p.args.c) out.c_n[i] = offset_of(p.c_n, d);
    if (p.args.bias) out.bias_n[i] = offset_of(p.bias_n, d);
  }
}

}  // namespace minidnn
