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
  // True if the splits of k are the blocks of a cluster, which add up their sums through shared memory. False if the
  // splits use the workspace, or if k is not split.
  bool cluster;
};
std::span<const SimtTileSize> simt_tile_sizes();

// elements_of() is the number of elements of y. A product may use the workspace only if y has fewer than
// kMaxWorkspaceElements elements, because offsets in the workspace have 31 bits.
constexpr double kMaxWorkspaceElements = double(simt::kMost) / 2;
double elements_of(const GemmTask&);

// Whether simt/kernel.cu applies this activation. For all other activations, a second kernel reads the sums from the
// workspace and applies the activation, even if k is not split.
bool is_simple(Activation);

struct SimtTiling {
  SimtConfig config;
  double us = 0;  // the estimated time of the product in microseconds
};
// Returns the possible tilings, sorted by estimated time, the shortest time first. There are up to three tilings for
// each tile: without a split of k, with the best number of splits through the workspace, and with the best cluster. k
// is not split if it is short, or if there are several phases (backward_data).
std::vector<SimtTiling> simt_tilings(const GemmTask&, const Device&);
// Returns the SimtConfig that the text `config` describes.
SimtConfig simt_config(const Config&);

}  // namespace minidnn
