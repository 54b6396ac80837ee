// SPDX-License-Identifier: Apache-2.0
// The choice of tiles for simt/kernel.cu, and of the number of splits of k. These are pure functions of the problem and
// the device: they build nothing. Host only.
#pragma once
#include <span>

#include "cuda/gemm/simt/axes.h"

namespace minidnn {

struct SimtTileSize {
  int m, n, threads, blocks_per_sm, smem_bytes;
};
struct SimtConfig {
  SimtTileSize tile;
  int splits;  // number of parts that k is split into
  // true if the splits are the blocks of a cluster, which add up sums through shared memory; false if the workspace is
  // used
  bool cluster;
};
std::span<const SimtTileSize> simt_tile_sizes();

// The number of elements of y. A product may use the workspace only if it has fewer than kMaxWorkspaceElements, because
// offsets in the workspace have 31 bits.
constexpr double kMaxWorkspaceElements = double(simt::kMost) / 2;
double elements_of(const GemmTask&);

// Whether kernel.cu applies this activation. For other activations, a second kernel reads the sums from the workspace,
// even if k is not split.
bool is_simple(Activation);

struct SimtTiling {
  SimtConfig config;
  double us = 0;  // estimated time in microseconds
};
// Candidates, the fastest estimate first: each tile without a split of k, with its best number of splits through the
// workspace, and with its best cluster. k is not split if it is short, or if there are several phases (backward_data).
std::vector<SimtTiling> simt_tilings(const GemmTask&, const Device&);  // the shortest estimated time first
// The tiling that the text `config` describes.
SimtConfig simt_config(const Config&);

}  // namespace minidnn
