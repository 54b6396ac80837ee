// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for simt/kernel.cu, and of the number of splits of k. The functions depend only on their
// arguments, such as the GemmTask and the device, and build nothing. Only host code includes this file.
#pragma once
#include <span>

#include "cuda/gemm/simt/axes.h"

namespace minidnn {

struct SimtTileSize {
  int m, n, threads, blocks_per_sm, smem_bytes;
};
struct SimtConfig {
  SimtTileSize tile;
  int splits;  // the number of splits of k
  // True if a cluster adds up the splits' sums. False if they pass through the workspace, or if k is not split.
  bool cluster;
};
std::span<const SimtTileSize> simt_tile_sizes();

// The limit of elements_of(), the number of elements of y, for products that use the workspace: its offsets have 31
// bits.
constexpr double kMaxWorkspaceElements = double(simt::kMost) / 2;
double elements_of(const GemmTask&);

// Whether the kernel itself applies the activation. If not, a second kernel does, even if k is not split.
bool is_simple(Activation);

struct SimtTiling {
  SimtConfig config;
  double us = 0;  // the estimated time of the product in microseconds
};
// The possible tilings, the fastest (estimated) first. For each tile: no split of k, the best split through the
// workspace, and the best cluster. A short k, or the k of several phases, is not split.
std::vector<SimtTiling> simt_tilings(const GemmTask&, const Device&);
// Returns the SimtConfig that the text `config` describes.
SimtConfig simt_config(const Config&);

}  // namespace minidnn
