// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for the main loop of sm_90a, and of the number of splits of k. The functions depend only on their
// arguments, such as the GemmTask and the device, and build nothing. Only host code includes this file.
#pragma once
#include <span>

#include "cuda/gemm/sm90/tensor_maps.h"

namespace minidnn {

struct Sm90TileShape {
  int m, n, stages;
  bool ping_pong;
  int cluster;
  constexpr unsigned smem_bytes() const {
    return unsigned(stages * (m + n) * 128 + 1024 + 4 * sm90_warpgroups(m) * kLinesBytes);
  }
};
std::span<const Sm90TileShape> sm90_tile_shapes();

// The number of chunks that k is split into. If in_cluster, the blocks of a cluster compute the chunks and add up the
// sums of the chunks. If not, a second kernel adds up the sums. A cluster that splits k has only two blocks: clusters
// of four or eight blocks do not fill an H100, and were slower.
constexpr int kSm90InCluster = 2;
struct Sm90Split {
  int chunks = 1;
  bool in_cluster = false;
  int cluster() const { return in_cluster ? chunks : 1; }
  // Returns the number of chunks of k whose sums are written to the workspace. It is 1 if the workspace is not used.
  int passes() const { return in_cluster ? 1 : chunks; }
};

struct Sm90Tiling {
  Sm90TileShape tile;
  Sm90Split split;
  double us = 0;  // the estimated time of the product in microseconds; 0 if the tiling was read from a config

  std::string config() const;  // returns the tiling as text
};

// The properties of a GemmTask that decide which tiles it can use.
struct Sm90TileUse {
  DType type;
  bool a_along_rows = false, b_along_rows = false, promote = false, sums = false;
};
// Whether a GemmTask can use a tile.
// In a cluster, each block loads a share of b. If b is contiguous along rows, this share must be a multiple of 64 rows.
// The number of sums per thread is limited more strictly for products that need registers for other values: for TF32
// operands that are contiguous along rows (they pass through registers), for column sums, and for `promote`, which adds
// the sums of wgmma to as many float32 sums.
// One of the two tiles of 128 x 192 has 64 rows per warpgroup. It is for `promote` and for TF32 operands that are
// contiguous along rows. The second one has 128 rows per warpgroup. It is for all other products without column sums.
bool fits(const Sm90TileShape&, const Sm90TileUse&);

// Returns all tilings that a plan can have, sorted by estimated time. The shortest time comes first.
std::vector<Sm90Tiling> sm90_tilings(const GemmTask&, const Device&);
// Returns the tiling that the text `config` describes.
Sm90Tiling sm90_tiling(const std::string& config);

}  // namespace minidnn
