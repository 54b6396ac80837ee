// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/tiling.h"

namespace minidnn::cuda::conv {
namespace {

// The number of blocks that an SM runs at the same time. registers = 0 means unknown; then 32 per thread are assumed.
int64_t resident_blocks(const GroupConvTiling& l, int64_t registers, const Device& d) {
  // kWarps: an assumed limit. Some devices hold 64 warps per SM, which these kernels do not reach.
  constexpr int64_t kReserved = 1 << 10, kWarps = 48;
  // quarter: registers per lane in each quarter of an SM
  const int64_t warps = l.threads / 32, quarter = 512;
  const int64_t of_registers = 4 * (quarter / round_up(std::max<int64_t>(registers, 32), 8));
  return std::max<int64_t>(
      1, std::min(d.max_smem_bytes / (l.smem_bytes + kReserved), std::min(of_registers, kWarps) / warps));
}

// Chooses the number of splits (GroupConvTiles). With few channel tiles, all blocks run at the same time. With many,
// the grid has about six times as many blocks, which balances the load.
void distribute_tiles(GroupConvTiling& l, const Device& d, int64_t registers) {
  const int64_t slots = resident_blocks(l, registers, d) * d.sm_count;
  const int64_t splits = l.channel_tiles * 4 <= slots ? slots / l.channel_tiles : ceil_div(6 * slots, l.channel_tiles);
  l.tiles.splits = uint32_t(std::min({splits, l.most_splits, int64_t(l.tiles.count)}));
}

}  // namespace

CompiledWindow choose_window(const GroupConv& p, const std::vector<CompiledWindow>& compiled) {
  for (CompiledWindow w : compiled)
    if (p.width.taps == w.columns && p.width.hop == w.hop) return w;
  return {};
}

bool steps_by(const GroupConvStrides& s, int64_t elements, bool strided_columns) {
  return s.image % elements == 0 && s.depth % elements == 0 && s.row % elements == 0 &&
         (strided_columns ? s.column : s.channel) % elements == 0;
}

bool is_3x3(const ConvProblem& problem, const GroupConv& p, bool strided_columns) {
  const auto plain = [](const GroupConvDim& d) { return d.taps == 3 && d.stride == 1 && d.step == 1 && d.up == 1; };
  const bool flat = p.depth.taps == 1 && p.depth.in == 1 && p.depth.out == 1 && p.depth.pad == 0;
  return !is_dw(problem) && flat && plain(p.height) && plain(p.width) && problem.alignment >= 16 &&
         steps_by(p.in, 4, strided_columns) && steps_by(p.out, 4, strided_columns);
}

void count_tiles(GroupConvTiling& l, int64_t images, int64_t channel_tiles, int64_t most_splits, const Device& d) {
  const GroupConv& p = l.p;
  l.channel_tiles = channel_tiles;
  l.most_splits = most_splits;
  l.tiles.depth = FastDivmod(p.depth.out);
  l.tiles.height = FastDivmod(p.height.tiles());
  l.tiles.width = FastDivmod(p.width.tiles());
  const double count = double(images) * p.depth.out * double(p.height.tiles()) * double(p.width.tiles());
  if (count * double(channel_tiles) >= double(kIndexLimit)) {
    l.why_not = cat("supports fewer than 2^31 tiles; got ", count * double(channel_tiles));
    return;
  }
  l.tiles.count = uint32_t(count);
  l.tiles.channel_tiles = FastDivmod(channel_tiles);
  distribute_tiles(l, d, 0);
}

void set_blocks(GroupConvTiling& l, int64_t blocks, int64_t threads, double instructions, int64_t registers) {
  l.threads = threads;
  l.smem_bytes = 0;
  l.instructions = instructions;
  l.registers = registers;
  l.channel_tiles = blocks;
  l.tiles.count = l.tiles.splits = l.most_splits = 1;
}

double issue_us(const GroupConvTiling& l, const Device& d) {
  // kEfficiency: the measured fraction of the peak issue rate is 0.45 to 0.75. kEnoughThreads: the threads per SM that
  // this rate needs, a guess.
  constexpr double kEfficiency = 0.68, kEnoughThreads = 400;
  const double blocks = double(resident_blocks(l, l.registers, d)), slots = blocks * d.sm_count;
  const double tiles = double(l.tiles.count) * double(l.channel_tiles);
  const double rounds = std::max(std::ceil(tiles / slots), 1.0) * slots / tiles;
  const double alone = std::max(kEnoughThreads / (blocks * double(l.threads)), 1.0);
  const double warp_instructions_us = d.fp32_gflop_s * 1e3 / 64;
  return tiles * double(l.threads / 32) * l.instructions * rounds * alone / warp_instructions_us / kEfficiency;
}

std::string too_much_smem(int64_t bytes, const Device& d) {
  return cat("needs ", bytes, " bytes of shared memory for w and a tile of data; ",
             d.model.empty() ? "the device" : d.model, " has ", d.max_smem_bytes);
}

GroupConvLaunch load(const KernelSpec& spec, const ConvProblem& problem, GroupConvTiling& l, const Device& d) {
  GroupConvLaunch launch;
  launch.kernel = load_kernel(spec, d.place.index, int(l.smem_bytes));
  // The workspace has room for tiles.splits partial sums.
  if (is_dw(problem)) l.most_splits = l.tiles.splits;
  distribute_tiles(l, d, launch.kernel->registers);
  launch.config.grid = {unsigned(l.channel_tiles * l.tiles.splits)};
  launch.config.block = {unsigned(l.threads)};
  launch.config.smem_bytes = unsigned(l.smem_bytes);
  return launch;
}

}  // namespace minidnn::cuda::conv
