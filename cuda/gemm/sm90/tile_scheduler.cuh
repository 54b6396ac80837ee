// SPDX-License-Identifier: Apache-2.0
// The output tiles of a launch of sm90/kernel.cu.
#pragma once
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/tile_scheduler.cuh"
#include "cuda/gemm/sm90/sm90_params.h"

namespace minidnn {

// An output tile and its range of k. m and n count tiles; k_begin and k_end count 128-byte blocks of k, over all taps.
struct Sm90WorkTile {
  int phase, batch, split, m, n;
  int k_begin, k_end;
};

template <int kCluster, int kSplit>
__device__ __forceinline__ Sm90WorkTile sm90_work_tile(const Sm90Problem& p, int index) {
  Sm90WorkTile t;
  int matrix = int(p.per_matrix.quotient(uint32_t(index)));
  index -= matrix * int(p.per_matrix.divisor);
  int rest = int(p.splits.quotient(uint32_t(matrix)));
  t.split = kSplit > 1 ? int(cluster_ctarank()) : matrix - rest * int(p.splits.divisor);
  matrix = rest;
  t.phase = int(p.batches.quotient(uint32_t(matrix)));
  t.batch = matrix - t.phase * int(p.batches.divisor);
  const int group = int(p.per_group.quotient(uint32_t(index))), first = group * int(p.group_m.divisor);
  index -= group * int(p.per_group.divisor);
  const FastDivmod& rows = p.m_tiles - first < int(p.group_m.divisor) ? p.last_group_m : p.group_m;
  t.n = int(rows.quotient(uint32_t(index)));
  t.m = (first + index - t.n * int(rows.divisor)) * kCluster + int(kCluster > 1 ? cluster_ctarank() : 0);
  if (kSplit == 1 && p.splits.divisor == 1) {
    t.k_begin = 0;
    t.k_end = p.phases[t.phase].blocks;
  } else {
    t.k_begin = t.split * p.k_each + min_of(t.split, p.k_more);
    t.k_end = t.k_begin + p.k_each + (t.split < p.k_more);
  }
  return t;
}

}  // namespace minidnn
