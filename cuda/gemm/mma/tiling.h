// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for mma/kernel.cu, and of the number of splits of k. The functions depend only on their
// arguments, such as the GemmTask and the device, and build nothing. Only host code includes this file.
#pragma once
#include <span>

#include "cuda/gemm/mma/gather_index.h"

namespace minidnn {

// TF32 products per float32 product; 16-bit operands use `one`.
enum class MmaProducts { one, three };

// The template arguments of MmaTile in kernel.cu: tile, warps along m and n, slices in shared memory, blocks per SM.
struct MmaTileShape {
  int m, n, warps_m, warps_n, stages, blocks;
  int threads() const { return 32 * warps_m * warps_n; }
};
std::span<const MmaTileShape> mma_tile_shapes(bool wide, MmaProducts);

// The shared memory for the tables of k: two buffers for `slices` slices each; `bytes` is their total size, 0 without
// tables.
struct MmaTables {
  int slices = 0, first_b = 0, bytes = 0;

  MmaTables(const MmaTileShape&, const MmaViews&, const MmaParams&);
};

// the shared memory of a block, in bytes
int mma_smem_bytes(const MmaTileShape&, const MmaViews&);
// the number of 64-byte slices of k
int64_t slices_of(const MmaViews&, const GemmView&);
int64_t blocks_of(const MmaTileShape&, const GemmView&);

struct MmaTiling {
  MmaTileShape tile;
  int64_t splits = 0;
  double us = 0;  // the estimated time in microseconds, or 0 if unknown

  std::string config() const;  // returns the tiling as text
};
// All tilings, the preferred one first, the others sorted by estimated time. The preferred number of splits is the same
// for a product and its transpose, so both have the same bits.
std::vector<MmaTiling> mma_tilings(const GemmTask&, const Device&, MmaProducts);
// Returns the tiling that the text `config` describes.
MmaTiling mma_tiling(const MmaViews&, MmaProducts, const std::string& config);

}  // namespace minidnn
