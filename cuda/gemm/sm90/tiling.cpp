// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/sm90/tiling.h"

#include <algorithm>
#include <cmath>

#include "cpp/core/dtype.h"

namespace minidnn {
namespace {

// The tiles, as {m, n, stages, ping-pong, blocks in a cluster}, with 64 or 128 rows per consumer warpgroup. The number
// of stages is limited by 227 KB of shared memory and by eight. Tiles of 192 suit 64 images of 14 x 14 pixels: 66 x 2
// tiles fill the 132 SMs of an H100. Tiles of 160 columns are for 320 channels.
constexpr Sm90TileShape kTiles[] = {
    {128, 256, 4, false, 2}, {128, 256, 4, false, 1}, {256, 128, 4, false, 2}, {256, 128, 4, false, 1},
    {192, 128, 5, false, 1}, {128, 192, 5, true, 1},  {128, 128, 6, true, 2},  {128, 128, 6, true, 1},
    {128, 128, 6, false, 2}, {128, 128, 6, false, 1}, {64, 256, 5, true, 1},   {64, 128, 8, true, 1},
    {128, 64, 8, true, 1},   {64, 64, 8, true, 1},    {128, 192, 5, false, 1}, {256, 160, 4, false, 1},
};

static_assert(std::ranges::all_of(kTiles,
                                  [](const Sm90TileShape& t) {
                                    return t.smem_bytes() + 24 * unsigned(t.stages) <= 232448;
                                  }),
              "with barriers, a block of sm_90 has no more");

struct Extents {  // the sizes for the time estimate
  // m: rows per phase of backward_data. k_blocks: the average number of 128-byte blocks of k per phase.
  int64_t m = 0, n = 0, batch = 1, phases = 1, k_blocks = 0;
  bool transposes_a = false, transposes_b = false;
  bool both_along_rows = false;  // both operands are 16-bit and contiguous along rows
  bool pixels_a = false, pixels_b = false;
  double scattered_c_us = 0;
  int64_t tiles_m(const Sm90TileShape& t) const { return phases * ceil_div(m, int64_t(t.m) * t.cluster) * t.cluster; }
};

double scattered_c_us(const GemmTask& task, const TmaView& low, const Device& d) {
  if (!task.has_c) return 0;
  GemmTask without_c = task;
  without_c.has_c = false;
  return scattered_c_us(task, store_of(task, low), store_of(without_c, low), d);
}

Extents shape_of(const GemmTask& task, const TmaView& low, const Device& d) {
  const int64_t phases = int64_t(low.phases.size());
  return {low.view.m.size,
          low.view.n.size,
          low.view.batch.size,
          phases,
          ceil_div(low.all_blocks(), phases),
          task.type == DType::float32 && low.a.along_rows(),
          task.type == DType::float32 && low.b.along_rows(),
          task.type != DType::float32 && low.a.along_rows() && low.b.along_rows(),
          low.a.windowed(),
          low.b.windowed(),
          scattered_c_us(task, low, d)};
}

// The clocks that c, bias and activation add to the epilogue, for each element of a tile, if all consumer warps of an SM
// store a tile together. Fitted to matmul 8192 x 4096 x {512, 1024} in bfloat16 on an H100. float32 results that use
// Formula::accurate take about four times as many instructions.
double epilogue_clocks(const GemmTask& task) {
  const bool fast = has_fast_activation(task, task.promote);
  const double activation = [&] {
    switch (task.activation) {
      case Activation::identity:
        return 0.0;
      case Activation::relu:
      case Activation::clipped_relu:
      case Activation::leaky_relu:
        return 0.004;
      case Activation::hardswish:
        return fast ? 0.02 : 0.08;
      case Activation::gelu:
        return fast ? 0.085 : 0.4;
      case Activation::tanh:
      case Activation::elu:
      case Activation::softplus:
        return fast ? 0.08 : 0.3;
      default:  // sigmoid, silu, gelu_tanh, mish
        return fast ? 0.05 : 0.3;
    }
  }();
  return activation + (task.has_bias ? 0.03 : 0) + (task.has_c ? 0.15 : 0);
}

// The estimated time of a product in microseconds. The model is fitted to 1800 timings of matmul and ResNet-50's
// convolutions on an H100 (docs/notes/gemm.md). Its mean error is 8 %; its choices are 1.3 % slower than the best.
// Tensor cores take at least m n / 32 clocks for 128 bytes along k of a tile of m x n.
double tile_us(const GemmTask& task, const Extents& s, const Device& d, const Sm90TileShape& t,
               const Sm90Split& split) {
  const double clocks_per_us = 1700;
  // bytes that an SM loads from the L2 per clock, with an im2col map or a tiled map
  auto l2_bytes_per_clock = [](bool pixels) { return pixels ? 54.0 : 64.7; };
  const double elements = double(t.m) * t.n;
  const double multiply = elements / 32 * (t.m == 192 ? 1.154 : 1.091) + 52;
  const double load =
      128 * (t.m / l2_bytes_per_clock(s.pixels_a) + double(t.n) / t.cluster / l2_bytes_per_clock(s.pixels_b));
  double block = max_of(multiply, load) + 0.06 * min_of(multiply, load);
  // With `promote`, a warpgroup waits for the end of wgmma. With 192 columns, another warpgroup multiplies meanwhile.
  if (task.promote && t.n < 192) block += 110;
  // The clocks of shared memory (128 bytes per clock): a and b are written, a is read once, b for each 64 rows of a.
  // Transposing b reads and writes it once more.
  if (s.transposes_a || s.transposes_b)
    block = max_of(block, 1.081 * (2.0 * t.m + t.n * ((s.transposes_b ? 3 : 1) + t.m / 64)));
  const double main = double(ceil_div(s.k_blocks, int64_t(split.chunks))) * block +
                      (t.cluster > 1 ? 605 : 250);  // clocks to start a tile
  double end = 161 + elements / split.cluster() * (split.passes() > 1 || itemsize(task.y) == 4 ? 0.067 : 0.029);
  // If one warpgroup stores while the other one multiplies (ping-pong), its instructions take about four times as long.
  // Two warpgroups that share a tile lose 0.05 clocks per element more than three.
  if (const double more = split.passes() > 1 ? 0 : epilogue_clocks(task); more > 0) {
    const bool alone = t.ping_pong && !split.in_cluster;
    end += elements / split.cluster() * (alone ? 0.15 + 4 * more : t.m == 192 ? more : 0.05 + more);
  }
  // Clocks of a reduction in a cluster: two barriers, stores to other blocks, and loads from shared memory.
  if (split.in_cluster) end += 2230 + elements * 0.29;
  const bool overlap = t.ping_pong && !split.in_cluster;
  const double each = overlap ? max_of(main, (main + end) / 2) : main + end;
  const int64_t at_once = d.sm_count / (t.cluster * split.cluster());
  const int64_t work = s.tiles_m(t) / t.cluster * ceil_div(s.n, int64_t(t.n)) * s.batch * split.passes();
  const double rounds = double(ceil_div(work, at_once));
  const double on_chip = (rounds * each + (overlap ? min_of(main, end) : 0) + 1342) / clocks_per_us;
  const double memory = task.bytes / (0.961 * d.copy_gb_s * 1e3) + 3.1;
  // Computation and memory traffic overlap, but not entirely: if both are equal, the result is 1.27 times either.
  double us = std::pow(std::pow(on_chip, 2.94) + std::pow(memory, 2.94), 1 / 2.94) + (t.cluster > 1 ? 4.1 : 3.1);
  // A second launch. The splits' sums are written and read once, mostly in the L2.
  if (split.passes() == 1) us += s.scattered_c_us;
  else us += 6.3 + double(split.chunks) * double(s.m * s.phases) * double(s.n) * double(s.batch) * 8 / 5.2e6;
  return us;
}

}  // namespace

std::span<const Sm90TileShape> sm90_tile_shapes() { return kTiles; }

std::string Sm90Tiling::config() const {
  const Sm90TileShape& t = tile;
  std::string s = cat("tile=", t.m, "x", t.n);
  if (!t.ping_pong && (t.m * t.n == 128 * 128 || t.n == 192)) s += ";shared";
  if (t.cluster > 1) s += cat(";cluster=", t.cluster);
  if (split.chunks > 1) s += cat(";split=", split.chunks);
  return split.in_cluster ? s + ";in_cluster" : s;
}

bool fits(const Sm90TileShape& t, const Sm90TileUse& use) {
  // rows of a tile per consumer warpgroup
  const int rows = t.ping_pong ? t.m : t.m / sm90_warpgroups(t.m);
  const bool transposes = use.type == DType::float32 && (use.a_along_rows || use.b_along_rows);
  return (t.n / t.cluster % 64 == 0 || !use.b_along_rows) && (!transposes || rows * t.n <= 128 * 128) &&
         (t.n != 192 || (transposes || use.promote) != t.ping_pong) && !(use.sums && rows * t.n > 128 * 128) &&
         !(use.promote && (rows * t.n > 64 * 192 || t.m == 192));
}

bool has_boxes(const Sm90TileShape& t, const Sm90Split& split, DType type, DType y, bool a_along_rows) {
  const int columns = t.n / split.cluster(), line = 128 / int(itemsize(y));
  return columns % line == 0 && !(type == DType::float32 && a_along_rows);
}

std::vector<Sm90Tiling> sm90_tilings(const GemmTask& task, const Device& d) {
  const TmaView low = tma_view(task);
  const Extents s = shape_of(task, low, d);
  std::vector<Sm90Tiling> all;
  for (const Sm90TileShape& t : kTiles) {
    if (!fits(t, {task.type, low.a.along_rows(), low.b.along_rows(), task.promote, task.sums})) continue;
    const int64_t tiles = s.tiles_m(t) * ceil_div(s.n, int64_t(t.n)) * s.batch, outputs = s.m * s.n * s.batch;
    const int64_t most = s.phases > 1 || outputs >= int64_t(1) << 31
                             ? 1
                             : min_of(s.k_blocks / 4, ceil_div(int64_t(2) * d.sm_count, tiles));
    Sm90Tiling best{t, {}, tile_us(task, s, d, t, {})};
    for (int chunks = 2; chunks <= most && !task.sums; ++chunks)
      if (double us = tile_us(task, s, d, t, {chunks}); us < best.us) best = {t, {chunks}, us};
    all.push_back(best);
    const Sm90Split in_cluster{kSm90InCluster, true};
    // For 16-bit operands that are both contiguous along rows, a split over a cluster was always slower than a second
    // launch.
    if (t.cluster == 1 && kSm90InCluster <= most && !s.both_along_rows)
      all.push_back({t, in_cluster, tile_us(task, s, d, t, in_cluster)});
  }
  std::ranges::stable_sort(all, {}, &Sm90Tiling::us);
  return all;
}

Sm90Tiling sm90_tiling(const std::string& config) {
  const size_t at = config.find(";split=");
  Sm90Split split;
  if (at != std::string::npos) split = {std::stoi(config.substr(at + 7)), config.ends_with(";in_cluster")};
  for (const Sm90TileShape& t : kTiles)
    if (const Sm90Tiling tiling{t, split}; tiling.config() == config) return tiling;
  throw NotSupported(cat("wgmma: unknown config '", config, "'"));
}

}  // namespace minidnn
