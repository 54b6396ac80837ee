// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for mma/kernel.cu, and of the number of splits of k. The functions depend only on their
// arguments, such as the GemmTask and the device, and build nothing. Only host code includes this file.
#pragma once
#include <span>

#include "cuda/gemm/mma/gather_index.h"

namespace minidnn {

// The number of TF32 products that compute one float32 product. 16-bit operands always use MmaProducts::one.
enum class MmaProducts { one, three };

// The size of a tile, and the number of warps along m and n that compute it. `blocks` is the number of blocks that an
// SM should be able to run at the same time. See MmaTile in kernel.cu.
struct MmaTileShape {
  int m, n, warps_m, warps_n, stages, blocks;
  int threads() const { return 32 * warps_m * warps_n; }
};
std::span<const MmaTileShape> mma_tile_shapes(bool wide, MmaProducts);

// The shared memory for the offsets and masks of k: two buffers, each for `slices` slices of k (64 bytes each). `bytes`
// is the size of both. It is 0 if GatherOperand::table is set for no operand.
struct MmaTables {
  int slices = 0, first_b = 0, bytes = 0;

  MmaTables(const MmaTileShape&, const MmaViews&, const MmaParams&);
};

// The number of bytes of shared memory that a block of mma/kernel.cu uses.
int mma_smem_bytes(const MmaTileShape&, const MmaViews&);
// The number of slices (64 bytes along k each) into which k is divided.
int64_t slices_of(const MmaViews&, const GemmView&);
int64_t blocks_of(const MmaTileShape&, const GemmView&);

struct MmaTiling {
  MmaTileShape tile;
  int64_t splits = 0;
  double us = 0;  // the estimated time of the product in microseconds; 0 if the tiling was read from a config

  std::string config() const;  // returns the tiling as text
};
// Returns all tilings that a plan can have. The preferred tiling comes first. It has as many splits of k as the
// preferred tiling of the transposed product, in which a and b are exchanged. An element therefore has the same sum in
// both products. After the preferred tiling, each tile follows with its own best number of splits, sorted by estimated
// time.
std::vector<MmaTiling> mma_tilings(const GemmTask&, const Device&, MmaProducts);
// Returns the tiling that the text `config` describes.
MmaTiling mma_tiling(const MmaViews&, MmaProducts, const std::string& config);

}  // namespace minidnn
