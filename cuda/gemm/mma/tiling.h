// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for mma/kernel.cu, and of the number of splits of k. These are pure functions of the problem and
// the device: they build nothing. Host only.
#pragma once
#include <span>

#include "cuda/gemm/mma/gather_index.h"

namespace minidnn {

// How many TF32 products compute one float32 product. 16-bit operands always use MmaProducts::one.
enum class MmaProducts { one, three };

// The size of a tile, and the number of warps that share it along m and n. `blocks` is the number of blocks that an SM
// should hold. See MmaTile in kernel.cu.
struct MmaTileShape {
  int m, n, warps_m, warps_n, stages, blocks;
  int threads() const { return 32 * warps_m * warps_n; }
};
std::span<const MmaTileShape> mma_tile_shapes(bool wide, MmaProducts);

// The tables of the entries of k in shared memory, which hold two groups of `slices` slices. `bytes` is 0 if no operand
// has a table.
struct MmaTables {
  int slices = 0, first_b = 0, bytes = 0;

  MmaTables(const MmaTileShape&, const MmaViews&, const MmaParams&);
};

// The bytes of shared memory that a block of mma/kernel.cu uses.
int mma_smem_bytes(const MmaTileShape&, const MmaViews&);
// Slices of k.
int64_t slices_of(const MmaViews&, const GemmView&);
int64_t blocks_of(const MmaTileShape&, const GemmView&);

struct MmaTiling {
  MmaTileShape tile;
  int64_t splits = 0;
  double us = 0;  // estimated time in microseconds; 0 if the tiling was read from a config

  std::string config() const;  // this tiling as text
};
// The candidates; the preferred one is the first. It splits k into the same number of parts as for the product with a
// and b exchanged; an element then has the same sum in a product and in the transposed product. Each tile with its own
// best number of splits follows, sorted by estimated time.
std::vector<MmaTiling> mma_tilings(const GemmTask&, const Device&, MmaProducts);
// The tiling that the text `config` describes.
MmaTiling mma_tiling(const MmaViews&, MmaProducts, const std::string& config);

}  // namespace minidnn
