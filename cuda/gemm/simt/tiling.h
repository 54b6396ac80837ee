// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for simt/kernel.cu, and of the number of chunks that k is split into. Pure functions of the
// problem and the device: they build nothing. Host only.
#pragma once
#include <span>

#include "cuda/gemm/simt/axes.h"

namespace minidnn {

struct SimtTileSize {
  int m, n, threads, blocks_per_sm, smem_bytes;
};
struct SimtConfig {
  SimtTileSize tile;
  int splits;    // number of slices of k
  bool cluster;  // the splits are a cluster and add their sums through shared memory; else through the workspace
};
std::span<const SimtTileSize> simt_tile_sizes();

// The number of elements of y. At most kMaxWorkspaceElements of them can pass through the
// workspace, where offsets have 31 bits.
constexpr double kMaxWorkspaceElements = double(simt::kMost) / 2;
double elements_of(const GemmTask&);

// Whether kernel.cu applies this activation. Others go through the workspace, even if k is not split.
bool is_simple(Activation);

struct SimtTiling {
  SimtConfig config;
  double us = 0;  // estimate
};
// Each tile without a split, and with its best numbers of splits. No splits if k is too short, or if there are phases
// (backward_data).
std::vector<SimtTiling> simt_tilings(const GemmTask&, const Device&);  // best first
// The tiling that a config names.
SimtConfig simt_config(const Config&);

}  // namespace minidnn
