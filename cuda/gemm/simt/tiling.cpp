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

// The sizes for the time estimate. They are the same for a product and its transpose, so both split k alike and have
// the same bits.
struct Sizes {
  double tiles = 0;   // the number of tiles, over all phases of backward_data
  double slices = 0;  // the average number of slices (8 values of k) per tile
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

// The fraction of the peak rate of an SM with `warps` warps and `sums` sums per thread. Fitted by eye on an H100: eight
// of the nine benchmark products are within 7 %; the ninth, bound by memory, takes 9 % more.
double busy(double warps, double sums) {
  // warps per scheduler (an SM has four), weighted by sums
  const double each = std::max(1.0, warps / 4) * std::sqrt(sums / 64);
  return 0.95 * std::min(1.0, warps / 4) * each / (each + 0.5);
}

double config_us(const GemmTask& t, const Device& d, const SimtConfig& c, const Sizes& s) {
  const auto& [tile, splits, cluster] = c;
  // Clusters do not use all SMs: their blocks must be in one GPC, and some GPCs are too small for two clusters of
  // eight.
  const double sms = cluster ? 0.9 * d.sm_count : d.sm_count;
  const double blocks = std::ceil(s.tiles * splits / sms);  // blocks of the busiest SM
  const double at_once = std::min(tile.blocks_per_sm, 227 * 1024 / (tile.smem_bytes + 1024));
  // Start and epilogue of a block cost as much as 4 slices.
  const double slices = std::ceil(s.slices / splits) + 4;
  // Instructions per slice besides multiply-adds: loads from shared memory, five for each copied element, and about 20.
  const double sums = tile.m * tile.n / tile.threads, reads = sums > 64 ? 6 : 4;
  const double others = kSimtTileK * reads + 5.0 * kSimtTileK * (tile.m + tile.n) / tile.threads + 20;
  const double flop = 2.0 * tile.m * tile.n * kSimtTileK * slices * (1 + others / (kSimtTileK * sums));
  const double sm_rate = d.fp32_gflop_s * 1e3 / d.sm_count;
  const double full = std::floor(blocks / at_once) * at_once, rest = blocks - full, warps = tile.threads / 32;
  double us = full * flop / (sm_rate * busy(at_once * warps, sums));
  if (rest > 0) us += rest * flop / (sm_rate * busy(rest * warps, sums));
  us = std::max(us, t.bytes / (0.9 * d.copy_gb_s * 1e3)) + 6;
  // A cluster took 14 us longer than estimated, with an older main loop, partly to load its code. Until it is measured
  // again, clusters are never the first choice; pyminidnn.find() may try them.
  if (cluster) us += 14;
  else if (splits > 1 || !is_simple(t.activation))
    // A second kernel. The splits' sums are written and read once, mostly in the L2.
    us += 3 + 2 * splits * elements_of(t) * kItem / (1.5 * d.copy_gb_s * 1e3);
  return us;
}

// The largest portable size of a cluster.
constexpr int kMostOfCluster = 8;
// Whether a cluster may split k, and add up the sums through shared memory.
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
