// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for the main loop of sm_90a, and of the number of chunks that k is split into. Pure functions of
// the problem and the device: they build nothing. Host only.
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

// How many chunks k is split into, and whether a cluster computes and adds them or a second kernel adds them. Clusters
// have two blocks: an H100 holds too few clusters of four or eight to fill it, and those took up to twice the time.
constexpr int kSm90InCluster = 2;
struct Sm90Split {
  int chunks = 1;
  bool in_cluster = false;
  int cluster() const { return in_cluster ? chunks : 1; }
  int passes() const { return in_cluster ? 1 : chunks; }  // chunks that are written to memory
};

struct Sm90Tiling {
  Sm90TileShape tile;
  Sm90Split split;
  double us = 0;  // estimate; 0 if it was read from a config

  std::string config() const;  // as text
};

// The layouts that decide which tiles are possible.
struct Sm90TileUse {
  DType type;
  bool a_along_rows = false, b_along_rows = false, promote = false, sums = false;
};
// Each block of a cluster loads b along rows in units of 64 rows. TF32 along rows takes registers: for a, those of the
// consumer warpgroups; for b, those of the warps that transpose it. Column sums take registers too, and so does
// `promote`: as many again as the sums themselves. With TF32 along rows or `promote`, a tile of 192 columns is
// therefore too large with 128 rows a warpgroup; only then is the one with 64 rows used.
bool fits(const Sm90TileShape&, const Sm90TileUse&);

// All tilings that a plan can have, best first.
std::vector<Sm90Tiling> sm90_tilings(const GemmTask&, const Device&);
// The tiling that a config names.
Sm90Tiling sm90_tiling(const std::string& config);

}  // namespace minidnn
