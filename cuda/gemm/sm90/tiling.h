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

// The number of splits of k. Their sums are added up by a cluster, or by a second kernel. Clusters have two blocks:
// larger ones do not fill an H100, and were slower.
constexpr int kSm90InCluster = 2;
struct Sm90Split {
  int chunks = 1;
  bool in_cluster = false;
  int cluster() const { return in_cluster ? chunks : 1; }
  // the number of splits in the workspace; 1 without a workspace
  int passes() const { return in_cluster ? 1 : chunks; }
};

struct Sm90Tiling {
  Sm90TileShape tile;
  Sm90Split split;
  double us = 0;  // the estimated time in microseconds, or 0 if unknown

  std::string config() const;  // returns the tiling as text
};

// The properties of a GemmTask that decide which tiles it can use.
struct Sm90TileUse {
  DType type;
  bool a_along_rows = false, b_along_rows = false, promote = false, sums = false;
};
// Whether a GemmTask can use a tile.
// - Each block of a cluster loads a share of b, which must be a multiple of 64 rows if b is contiguous along rows.
// - TF32 operands that pass through registers, column sums and `promote` leave fewer registers for sums.
// - Of the two tiles of 128 x 192, the one without ping-pong is for `promote` and for TF32 operands contiguous along
//   rows.
bool fits(const Sm90TileShape&, const Sm90TileUse&);

// Whether a block stores whole lines of 128 bytes in each row of y, as GemmStore::boxes needs. The rows of a lane must
// be those of wgmma.
bool has_boxes(const Sm90TileShape&, const Sm90Split&, DType type, DType y, bool a_along_rows);

// All tilings, the fastest (estimated) first.
std::vector<Sm90Tiling> sm90_tilings(const GemmTask&, const Device&);
// Returns the tiling that the text `config` describes.
Sm90Tiling sm90_tiling(const std::string& config);

}  // namespace minidnn
