// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for the main loop of sm_90a, and of the number of splits of k. These are pure functions of the
// problem and the device: they build nothing. Host only.
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

// The number of chunks that k is split into. If in_cluster, the blocks of a cluster compute the chunks and add up their
// sums; otherwise a second kernel adds them up. A cluster has only two blocks: clusters of four or eight do not fill an
// H100, and took up to twice the time.
constexpr int kSm90InCluster = 2;
struct Sm90Split {
  int chunks = 1;
  bool in_cluster = false;
  int cluster() const { return in_cluster ? chunks : 1; }
  // number of chunks whose sums are written to the workspace; 1 if there is no workspace
  int passes() const { return in_cluster ? 1 : chunks; }
};

struct Sm90Tiling {
  Sm90TileShape tile;
  Sm90Split split;
  double us = 0;  // estimated time in microseconds; 0 if the tiling was read from a config

  std::string config() const;  // this tiling as text
};

// The properties of a problem that decide which tiles are possible.
struct Sm90TileUse {
  DType type;
  bool a_along_rows = false, b_along_rows = false, promote = false, sums = false;
};
// Whether a problem can use a tile. There are two limits.
// In a cluster, each block loads a part of b. If b is contiguous along rows, this part must be a multiple of 64 rows.
// These problems need more registers than others, so the number of sums of a thread is limited: TF32 operands that are
// contiguous along rows (a is read into registers; b is transposed through registers), column sums, and `promote`
// (adding the sums of wgmma to float32 sums), which needs as many registers again as the sums. Of the two tiles of 128
// x 192, TF32 along rows and `promote` can use only the one whose warpgroups have 64 rows each. All other problems use
// the one with 128 rows.
bool fits(const Sm90TileShape&, const Sm90TileUse&);

// All tilings that a plan can have, the shortest estimated time first.
std::vector<Sm90Tiling> sm90_tilings(const GemmTask&, const Device&);
// The tiling that the text `config` describes.
Sm90Tiling sm90_tiling(const std::string& config);

}  // namespace minidnn
