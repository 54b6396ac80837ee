// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/mma/tiling.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace minidnn {
namespace {

// The tiles, as {m, n, warps along m, warps along n, slices in shared memory, blocks per SM}. A warp with 64 x 64 sums
// reads least from shared memory. With narrow vectors (less than 16 bytes), copies limit the speed, so more threads
// help. Three TF32 products take two registers per sum.
constexpr MmaTileShape kWideTiles[] = {
    {256, 128, 4, 2, 3, 1}, {128, 128, 2, 2, 3, 2}, {128, 64, 2, 1, 3, 4}, {64, 64, 2, 2, 4, 4}, {128, 32, 4, 1, 4, 4}};
constexpr MmaTileShape kWideTilesOfThree[] = {{128, 64, 2, 2, 3, 2}, {64, 64, 2, 2, 4, 3}};
constexpr MmaTileShape kNarrowTiles[] = {{128, 64, 4, 2, 3, 2}, {64, 64, 4, 2, 3, 2}};

// The clocks of a block, measured on an H100 (docs/notes/gemm.md): per slice of k (64 bytes), and at the end. The
// `alone` values are for one block per SM.
struct BlockClocks {
  double slice, slice_alone, end, end_alone;

  BlockClocks(const MmaTileShape& t, const MmaViews& v, MmaProducts products, int64_t out_bytes) {
    // A slice takes as long as the slowest of tensor cores, shared memory, L2 (46 bytes per clock) and narrow fetches,
    // plus a tenth of shared memory and L2, because they do not overlap entirely. mma.sync takes longer than its peak
    // (m n / 32 clocks), because operands are loaded from shared memory.
    const double times = products == MmaProducts::three ? 3 : 1, warps = t.threads() / 32;
    const double warp_m = double(t.m) / t.warps_m, warp_n = double(t.n) / t.warps_n;
    const double multiply = double(t.m) * t.n / (!v.wide ? 8.3 : v.element == 4 ? 14 : 19) * times;
    const double shared = (warps * (warp_m + warp_n) + t.m + t.n) * kSliceBytes / 128;
    const double l2 = double(t.m + t.n) * kSliceBytes / 46;
    double fetch = 0;
    for (auto [rows, width] : {std::pair(t.m, v.phases.front().a.width), std::pair(t.n, v.phases.front().b.width)})
      fetch += double(rows) * kSliceBytes / width / 32 * (v.wide ? 2 : 8.5);
    slice = max_of(max_of(multiply, shared), max_of(l2, fetch)) + 0.1 * (shared + l2);
    // A single block per SM waits for memory, at least 1000 clocks per slice.
    slice_alone = max_of(slice, 1000.0);
    end = double(t.m) * t.n * double(out_bytes) / 24 + 300;
    end_alone = end + 1000;
  }
};

double task_us(const GemmTask& task, const MmaViews& v, const Device& d, MmaProducts products, const MmaTileShape& t,
               int64_t splits) {
  // kStart: clocks until a block's first operands arrive
  constexpr double kClocksPerUs = 1700, kStart = 2500;
  const BlockClocks block(t, v, products, splits > 1 ? 4 : int64_t(itemsize(task.y)));
  const int most_at_once = min_of(t.blocks, (d.max_smem_bytes + 1024) / (mma_smem_bytes(t, v) + 1024));
  // `slices` is the average number of 64-byte slices of k per block.
  double blocks = 0, slices = 0;
  for (const GemmView& view : v.views) {
    blocks += double(blocks_of(t, view) * splits);
    slices += double(blocks_of(t, view) * splits) * double(ceil_div(slices_of(v, view), splits));
  }
  slices /= max_of(blocks, 1.0);
  // at_once: blocks that an SM runs at the same time. A last, partial wave of blocks takes as long as a full one.
  const double per_sm = std::ceil(blocks / d.sm_count), at_once = min_of(double(most_at_once), per_sm);
  const double round =
      kStart + slices * max_of(block.slice_alone, at_once * block.slice) + max_of(block.end_alone, at_once * block.end);
  double us = std::ceil(per_sm / max_of(at_once, 1.0)) * round / kClocksPerUs;
  us = max_of(us, task.bytes / (0.65 * d.copy_gb_s * 1e3));
  // The sums of the splits of k are written and read, mostly in the L2, at about twice the bandwidth of memory.
  if (splits > 1) {
    const GemmView& view = v.views.front();
    us += 7 + double(splits) * double(view.m.size) * double(view.n.size) * double(view.batch.size) * 8 /
                  (2 * d.copy_gb_s * 1e3);
  }
  return us + 4.5;
}

MmaTiling best_splits(const GemmTask& task, const MmaViews& v, const Device& d, MmaProducts products,
                      const MmaTileShape& t) {
  MmaTiling best{t, 1, task_us(task, v, d, products, t, 1)};
  if (v.views.size() > 1) return best;
  const int64_t most_blocks = int64_t(2) * t.blocks * d.sm_count, slices = slices_of(v, v.views.front());
  const int64_t most = min_of(slices / 4, most_blocks / blocks_of(t, v.views.front()));
  // per: slices of k per split
  for (int64_t per = 4; per * 2 <= slices; per = max_of(per + 1, per * 9 / 8)) {
    const int64_t splits = ceil_div(slices, per);
    if (splits > most) continue;
    if (double us = task_us(task, v, d, products, t, splits); us < best.us) best = {t, splits, us};
  }
  return best;
}

}  // namespace

std::span<const MmaTileShape> mma_tile_shapes(bool wide, MmaProducts products) {
  if (!wide) return kNarrowTiles;
  if (products == MmaProducts::three) return kWideTilesOfThree;
  return kWideTiles;
}

MmaTables::MmaTables(const MmaTileShape& t, const MmaViews& v, const MmaParams& p) {
  auto entries = [&](const GatherOperand& o) {
    return o.table ? (o.along_k && v.wide ? kSliceBytes / 16 : kSliceBytes / int(v.element)) : 0;
  };
  auto whole_warps = [](int threads) { return (threads + 31) / 32 * 32; };
  const int a = entries(p.a), b = entries(p.b);
  if (a + b == 0) return;
  slices = 1;
  while (whole_warps(2 * slices * a) + whole_warps(2 * slices * b) <= t.threads()) slices *= 2;
  first_b = whole_warps(slices * a);
  bytes = 2 * slices * (a + b) * int(sizeof(GatherEntry));
}

int mma_smem_bytes(const MmaTileShape& t, const MmaViews& v) {
  // 16-byte offsets of rows: those of y and, unless all vectors have 16 bytes, of operands read along k.
  int rows = t.m;
  if (!v.wide) rows += (v.a_along_k ? t.m : 0) + (v.b_along_k ? t.n : 0);
  int most = 0;
  for (const MmaParams& p : v.phases) most = max_of(most, MmaTables(t, v, p).bytes);
  return t.stages * (t.m + t.n) * kSliceBytes + rows * 16 + most;
}

int64_t slices_of(const MmaViews& v, const GemmView& view) {
  return ceil_div(view.k.size * v.element, int64_t(kSliceBytes));
}

int64_t blocks_of(const MmaTileShape& t, const GemmView& v) {
  return ceil_div(v.m.size, int64_t(t.m)) * ceil_div(v.n.size, int64_t(t.n)) * v.batch.size;
}

std::string MmaTiling::config() const {
  return cat("tile=", tile.m, "x", tile.n) + (splits > 1 ? cat(";split=", splits) : "");
}

std::vector<MmaTiling> mma_tilings(const GemmTask& task, const Device& d, MmaProducts products) {
  const MmaViews v(task);
  std::vector<MmaTiling> with_common, own;
  MmaTiling common{};
  for (const MmaTileShape& t : mma_tile_shapes(v.wide, products)) {
    if (mma_smem_bytes(t, v) > d.max_smem_bytes) continue;
    own.push_back(best_splits(task, v, d, products, t));
    const MmaTiling exchanged = best_splits(task, v, d, products, {t.n, t.m, t.warps_n, t.warps_m, t.stages, t.blocks});
    for (const MmaTiling& c : {own.back(), exchanged})
      if (!common.splits || std::pair(c.us, c.splits) < std::pair(common.us, common.splits)) common = c;
  }
  for (const MmaTiling& c : own)
    with_common.push_back({c.tile, common.splits, task_us(task, v, d, products, c.tile, common.splits)});
  std::vector<MmaTiling> all{*std::ranges::min_element(with_common, {}, &MmaTiling::us)};
  std::ranges::stable_sort(own, {}, &MmaTiling::us);
  for (const MmaTiling& c : own)
    if (c.config() != all.front().config()) all.push_back(c);
  return all;
}

MmaTiling mma_tiling(const MmaViews& v, MmaProducts products, const std::string& config) {
  const size_t at = config.find(";split=");
  int64_t splits = 1;
  if (at != std::string::npos) std::from_chars(config.data() + at + 7, config.data() + config.size(), splits);
  for (const MmaTileShape& t : mma_tile_shapes(v.wide, products))
    if (MmaTiling{t, 1}.config() == config.substr(0, at)) return {t, splits};
  throw NotSupported(cat("mma: unknown config '", config, "'"));
}

}  // namespace minidnn
