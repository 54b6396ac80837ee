// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/simt/tiling.h"

#include <algorithm>
#include <cmath>

#include "cpp/activation/activation.h"
#include "cpp/core/dtype.h"

namespace minidnn {
namespace {

using namespace simt;

template <int kTileM, int kTileN> constexpr SimtTileSize tile_size() {
  return {kTileM, kTileN, SimtTile<kTileM, kTileN>::kThreads, SimtTile<kTileM, kTileN>::kBlocksPerSm,
          kSimtSharedBytes<kTileM, kTileN>};
}
constexpr SimtTileSize kTiles[] = {tile_size<128, 128>(), tile_size<128, 64>(), tile_size<64, 64>(),
                                   tile_size<128, 32>(), tile_size<128, 16>()};

// The sizes from which the time of a product is estimated. They are the same for a product and the transposed product.
// Both products therefore split k in the same way, and have the same bits.
struct Sizes {
  double tiles = 0;   // the number of tiles of the product; for backward_data, of all its phases together
  double slices = 0;  // the average number of slices of k (8 values of k each) that a tile adds up
};
Sizes sizes_of(const GemmTask& t, const SimtTileSize& tile) {
  Sizes s;
  double work = 0;
  const OperandOrder order = operand_order_of(t);
  for (const GemmView& v : t.views) {
    const double tiles = double(tiles_over(v, order, tile.m, tile.n));
    s.tiles += tiles;
    work += tiles * double(ceil_div(v.k.size, int64_t(kSimtTileK)));
  }
  s.slices = work / std::max(s.tiles, 1.0);
  return s;
}

// The fraction of its peak rate that an SM reaches if it has `warps` resident warps and each thread has `sums` sums.
// With 128 sums instead of 64, a warp waits less often. The formula was fitted by eye on an H100: of the nine products
// in the benchmark, eight are within 7 % of the estimate. The ninth product is bound by memory and takes 9 % more.
double busy(double warps, double sums) {
  // `each` is the number of warps per scheduler (an SM has four), times a weight that grows with `sums`.
  const double each = std::max(1.0, warps / 4) * std::sqrt(sums / 64);
  return 0.95 * std::min(1.0, warps / 4) * each / (each + 0.5);
}

double config_us(const GemmTask& t, const Device& d, const SimtConfig& c, const Sizes& s) {
  const auto& [tile, splits, cluster] = c;
  // Clusters do not use all SMs, because the blocks of a cluster must be in one GPC. Some GPCs of an H100 are too small
  // for two clusters of eight blocks.
  const double sms = cluster ? 0.9 * d.sm_count : d.sm_count;
  const double blocks = std::ceil(s.tiles * splits / sms);  // the number of blocks that the busiest SM computes
  const double at_once = std::min(tile.blocks_per_sm, 227 * 1024 / (tile.smem_bytes + 1024));
  // The start and the epilogue of a block together cost as much as 4 slices of 8 values of k.
  const double slices = std::ceil(s.slices / splits) + 4;
  // The instructions that a thread executes for a slice (8 values of k), besides the multiply-adds, are the loads from
  // shared memory, five instructions for each element that the thread copies, and about 20 more.
  const double sums = tile.m * tile.n / tile.threads, reads = sums > 64 ? 6 : 4;
  const double others = kSimtTileK * reads + 5.0 * kSimtTileK * (tile.m + tile.n) / tile.threads + 20;
  const double flop = 2.0 * tile.m * tile.n * kSimtTileK * slices * (1 + others / (kSimtTileK * sums));
  const double sm_rate = d.fp32_gflop_s * 1e3 / d.sm_count;
  const double full = std::floor(blocks / at_once) * at_once, rest = blocks - full, warps = tile.threads / 32;
  double us = full * flop / (sm_rate * busy(at_once * warps, sums));
  if (rest > 0) us += rest * flop / (sm_rate * busy(rest * warps, sums));
  us = std::max(us, t.bytes / (0.9 * d.copy_gb_s * 1e3)) + 6;
  // A product of 512 x 512 x 512 with clusters of eight blocks took 14 us longer than its estimate. The difference
  // includes the time to load code into the instruction cache. The time was measured with an older main loop. Until
  // the product is measured again, 14 us are added. Clusters are then never the first choice, but pyminidnn.find() may
  // try them.
  if (cluster) us += 14;
  else if (splits > 1 || !is_simple(t.activation))
    // A second kernel reads the sums of the splits of k. These sums are written once and read once, mostly in the L2.
    us += 3 + 2 * splits * elements_of(t) * kItem / (1.5 * d.copy_gb_s * 1e3);
  return us;
}

// The largest number of blocks in a cluster. Every GPU that supports clusters allows it.
constexpr int kMostOfCluster = 8;
// Whether the splits of k may be the blocks of a cluster, which add up their sums through shared memory.
bool clusters(const GemmTask& t, const Device& d) { return d.arch >= 90 && is_simple(t.activation); }

}  // namespace

std::span<const SimtTileSize> simt_tile_sizes() { return kTiles; }

double elements_of(const GemmTask& t) {
  double elements = 0;
  for (const GemmView& v : t.views) elements += double(v.m.size) * double(v.n.size) * double(v.batch.size);
  return elements;
}

bool is_simple(Activation a) { return a == Activation::identity || a == Activation::relu; }

std::vector<SimtTiling> simt_tilings(const GemmTask& t, const Device& d) {
  const bool splits_k = t.views.size() == 1;
  std::vector<SimtTiling> all;
  for (const SimtTileSize& tile : kTiles) {
    const Sizes s = sizes_of(t, tile);
    auto add_best = [&](double most, bool cluster) {
      SimtTiling best{{}, 1e300};
      for (int splits = 2; splits <= most; splits += cluster ? splits : splits < 8 ? 1 : splits / 4) {
        const SimtConfig c{tile, splits, cluster};
        if (double us = config_us(t, d, c, s); us < best.us) best = {c, us};
      }
      if (most >= 2) all.push_back(best);
    };
    all.push_back({{tile, 1, false}, config_us(t, d, {tile, 1, false}, s)});
    const double most = splits_k ? std::min(s.slices / 4, std::ceil(8.0 * d.sm_count / s.tiles)) : 1;
    if (elements_of(t) < kMaxWorkspaceElements) add_best(most, false);
    if (clusters(t, d)) add_best(std::min(most, double(kMostOfCluster)), true);
  }
  std::ranges::stable_sort(all, {}, &SimtTiling::us);
  return all;
}

SimtConfig simt_config(const Config& config) {
  const size_t at = config.find(';'), value = config.find('=', at == std::string::npos ? 0 : at) + 1;
  const bool cluster = at != std::string::npos && config.substr(at, 9) == ";cluster=";
  const int splits = at == std::string::npos ? 1 : std::stoi(config.substr(value));
  for (const SimtTileSize& t : kTiles)
    if (config.substr(0, at) == cat("tile=", t.m, "x", t.n)) return {t, splits, cluster};
  throw NotSupported(cat("simt: unknown config '", config, "'"));
}

}  // namespace minidnn
