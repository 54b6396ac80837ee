// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for mma/kernel.cu, and of the number of chunks that k is split into. Pure functions of the
// problem and the device: they build nothing. Host only.
#pragma once
#include <span>

#include "cuda/gemm/mma/gather_index.h"

namespace minidnn {

// How many TF32 products compute one float32 product. 16-bit operands always take one.
enum class MmaProducts { one, three };

// A tile and the warps that share it, as in MmaTile.
struct MmaTileShape {
  int m, n, warps_m, warps_n, stages, blocks;
  int threads() const { return 32 * warps_m * warps_n; }
};
std::span<const MmaTileShape> mma_tile_shapes(bool wide, MmaProducts);

// The tables of k entries, if there are any: those of two groups of slices are in shared memory.
struct MmaTables {
  int slices = 0, first_b = 0, bytes = 0;

  MmaTables(const MmaTileShape&, const MmaViews&, const MmaParams&);
};

// The shared memory that mma/kernel.cu uses.
int mma_smem_bytes(const MmaTileShape&, const MmaViews&);
// Slices of k.
int64_t slices_of(const MmaViews&, const GemmView&);
int64_t blocks_of(const MmaTileShape&, const GemmView&);

struct MmaTiling {
  MmaTileShape tile;
  int64_t splits = 0;
  double us = 0;  // estimate; 0 if it was read from a config

  std::string config() const;  // as text
};
// Best first. The first candidate splits k as it would if a and b were exchanged; an element then has the same sum in a
// product and in the transposed product. Each tile with its own best number of splits follows.
std::vector<MmaTiling> mma_tilings(const GemmTask&, const Device&, MmaProducts);
// The tiling that a config names.
MmaTiling mma_tiling(const MmaViews&, MmaProducts, const std::string& config);

}  // namespace minidnn
