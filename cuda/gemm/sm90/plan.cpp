// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "cpp/core/dtype.h"
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/sm90/plan.h"
#include "cuda/gemm/sm90/tensor_maps.h"

namespace minidnn {
namespace {

struct Tile {
  int m, n, stages;
  bool ping_pong;
  int cluster;
};
// Each warpgroup has 64 or 128 rows, and a thread has 32 to 192 sums. The number of stages is what 227 KB hold, eight
// at most. 192 rows or columns are for 14 x 14 pixels of 64 images: they are 66 tiles, so two columns of tiles fill the 132
// multiprocessors of an H100. 160 columns are for 320 channels.
constexpr Tile kTiles[] = {
    {128, 256, 4, false, 2}, {128, 256, 4, false, 1}, {256, 128, 4, false, 2}, {256, 128, 4, false, 1},
    {192, 128, 5, false, 1}, {128, 192, 5, true, 1},  {128, 128, 6, true, 2},  {128, 128, 6, true, 1},
    {128, 128, 6, false, 2}, {128, 128, 6, false, 1}, {64, 256, 5, true, 1},   {64, 128, 8, true, 1},
    {128, 64, 8, true, 1},   {64, 64, 8, true, 1},    {128, 192, 5, false, 1}, {256, 160, 4, false, 1},
};

constexpr unsigned smem_bytes(const Tile& t) {
  return unsigned(t.stages * (t.m + t.n) * 128 + 1024 + 4 * sm90_warpgroups(t.m) * kLinesBytes);
}
static_assert(std::ranges::all_of(kTiles,
                                  [](const Tile& t) { return smem_bytes(t) + 24 * unsigned(t.stages) <= 232448; }),
              "with barriers, a block of sm_90 has no more");

// How many parts k is split into, and whether a cluster computes and adds them or a second kernel adds them. Clusters
// have two blocks: an H100 holds too few clusters of four or eight to fill it, and those took up to twice the time.
constexpr int kInCluster = 2;
struct Split {
  int parts = 1;
  bool in_cluster = false;
  int cluster() const { return in_cluster ? parts : 1; }
  int passes() const { return in_cluster ? 1 : parts; }  // parts that are written to memory
};

std::string text(const Tile& t, const Split& split) {
  std::string s = cat("tile=", t.m, "x", t.n);
  if (!t.ping_pong && (t.m * t.n == 128 * 128 || t.n == 192)) s += ";shared";
  if (t.cluster > 1) s += cat(";cluster=", t.cluster);
  if (split.parts > 1) s += cat(";split=", split.parts);
  return split.in_cluster ? s + ";in_cluster" : s;
}

struct Extents {                                              // the sizes that estimates need
  int64_t m = 0, n = 0, batch = 1, phases = 1, k_blocks = 0;  // m is that of one phase; k_blocks is the average
  bool turned_a = false, turned_b = false;
  bool both_along_rows = false;  // of 16-bit operands
  bool pixels_a = false, pixels_b = false;
  int64_t tiles_m(const Tile& t) const { return phases * ceil_div(m, int64_t(t.m) * t.cluster) * t.cluster; }
};

Extents shape_of(const GemmTask& task, const Lowering& low) {
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
          low.b.windowed()};
}

// Each block of a cluster loads b along rows in units of 64 rows. TF32 along rows takes registers: for a, those of the
// consumer warpgroups; for b, those of the warps that transpose it. Column sums take registers too, and so does
// `promote`: as many again as the sums themselves. With TF32 along rows or `promote`, a tile of 192 columns is
// therefore too large with 128 rows a warpgroup; only then is the one with 64 rows used.
bool fits(const Tile& t, DType type, bool a_along_rows, bool b_along_rows, bool promote = false, bool sums = false) {
  const int rows = t.ping_pong ? t.m : t.m / sm90_warpgroups(t.m);  // rows of a warpgroup
  const bool turned = type == DType::float32 && (a_along_rows || b_along_rows);
  return (t.n / t.cluster % 64 == 0 || !b_along_rows) && (!turned || rows * t.n <= 128 * 128) &&
         (t.n != 192 || (turned || promote) != t.ping_pong) && !(sums && rows * t.n > 128 * 128) &&
         !(promote && (rows * t.n > 64 * 192 || t.m == 192));
}

// Microseconds for one tile shape. The model is fitted to 1800 timings of matmuls and ResNet-50's convolutions in
// bfloat16 and TF32 on an H100 (docs/notes/gemm.md): its mean error is 8 %, and the configuration that it picks is
// 1.3 % slower than the best. The tensor cores of an SM do 4096 FLOP a clock in 16 bits, so 128 bytes of k take at
// least m n / 32 clocks, in TF32 too.
double tile_us(const GemmTask& task, const Extents& s, const Device& d, const Tile& t, const Split& split) {
  const double clocks_per_us = 1700;
  auto l2_bytes_per_clock = [](bool pixels) { return pixels ? 54.0 : 64.7; };  // for each SM
  const double elements = double(t.m) * t.n;
  const double multiply = elements / 32 * (t.m == 192 ? 1.154 : 1.091) + 52;
  const double load =
      128 * (t.m / l2_bytes_per_clock(s.pixels_a) + double(t.n) / t.cluster / l2_bytes_per_clock(s.pixels_b));
  double block = max_of(multiply, load) + 0.06 * min_of(multiply, load);
  // The end of a promoted sum is waited for. With 192 columns, the other warpgroup's work hides this.
  if (task.promote && t.n < 192) block += 110;
  // Shared memory delivers 128 bytes a clock. Both operands are written once; a is read once, b once for each 64 rows
  // of a, and twice more if it is transposed.
  if (s.turned_a || s.turned_b) block = max_of(block, 1.081 * (2.0 * t.m + t.n * ((s.turned_b ? 3 : 1) + t.m / 64)));
  const double main = double(ceil_div(s.k_blocks, int64_t(split.parts))) * block +
                      (t.cluster > 1 ? 605 : 250);  // the blocks of a cluster wait for each other
  double end = 161 + elements / split.cluster() * (split.passes() > 1 || itemsize(task.y) == 4 ? 0.067 : 0.029);
  // Costs of adding in a cluster: two barriers, stores of sums to other blocks, loads of them from shared memory.
  if (split.in_cluster) end += 2230 + elements * 0.29;
  const bool overlap = t.ping_pong && !split.in_cluster;
  const double each = overlap ? max_of(main, (main + end) / 2) : main + end;
  const int64_t at_once = d.sm_count / (t.cluster * split.cluster());
  const int64_t work = s.tiles_m(t) / t.cluster * ceil_div(s.n, int64_t(t.n)) * s.batch * split.passes();
  const double rounds = double(ceil_div(work, at_once));
  const double on_chip = (rounds * each + (overlap ? min_of(main, end) : 0) + 1342) / clocks_per_us;
  const double memory = task.bytes / (0.961 * d.copy_gb_s * 1e3) + 3.1;
  // Compute and memory time overlap, less so if they are equal.
  double us = std::pow(std::pow(on_chip, 2.94) + std::pow(memory, 2.94), 1 / 2.94) + (t.cluster > 1 ? 4.1 : 3.1);
  // The parts of a split k are written and read once, mostly in the L2, by a second launch.
  if (split.passes() > 1)
    us += 6.3 + double(split.parts) * double(s.m * s.phases) * double(s.n) * double(s.batch) * 8 / 5.2e6;
  return us;
}

struct Choice90 {
  Tile tile;
  Split split;
  double us;
};

std::vector<Choice90> choices_of(const GemmTask& task, const Device& d) {
  const Lowering low = lowered(task);
  const Extents s = shape_of(task, low);
  std::vector<Choice90> all;
  for (const Tile& t : kTiles) {
    if (!fits(t, task.type, low.a.along_rows(), low.b.along_rows(), task.promote, task.sums)) continue;
    const int64_t tiles = s.tiles_m(t) * ceil_div(s.n, int64_t(t.n)) * s.batch, outputs = s.m * s.n * s.batch;
    const int64_t most = s.phases > 1 || outputs >= int64_t(1) << 31
                             ? 1
                             : min_of(s.k_blocks / 4, ceil_div(int64_t(2) * d.sm_count, tiles));
    Choice90 best{t, {}, tile_us(task, s, d, t, {})};
    for (int parts = 2; parts <= most && !task.sums; ++parts)
      if (double us = tile_us(task, s, d, t, {parts}); us < best.us) best = {t, {parts}, us};
    all.push_back(best);
    const Split in_cluster{kInCluster, true};
    // With two 16-bit operands along rows, adding in a cluster was always slower than a second pass.
    if (t.cluster == 1 && kInCluster <= most && !s.both_along_rows)
      all.push_back({t, in_cluster, tile_us(task, s, d, t, in_cluster)});
  }
  std::ranges::stable_sort(all, {}, &Choice90::us);
  return all;
}

const char* source_text(Sm90Source s) {
  constexpr const char* names[] = {"tile_along_k", "tile_along_rows", "pixels_along_k", "pixels_along_rows"};
  return names[int(s)];
}

KernelSpec kernel_spec(DType type, DType y, const Tile& t, const Split& split, bool promote, Sm90Source a, Sm90Source b,
                       int spatial, const EpilogueTraits& ending) {
  KernelSpec spec{"cuda/gemm/sm90/kernel.cu",
                  cat("minidnn::gemm_sm90<", cuda_name(type), ", ", cuda_name(y), ", ", t.m, ", ", t.n, ", ", t.stages,
                      ", ", t.ping_pong ? "true" : "false", ", ", t.cluster, ", ", split.cluster(),
                      promote ? ", true" : ", false", ", minidnn::Sm90Source::", source_text(a),
                      ", minidnn::Sm90Source::", source_text(b), ", ", spatial, ", ", ending.text(), ">")};
  spec.min_arch = 90;
  return spec;
}

// evict_first makes the lines of this operand leave the L2 before lines that others need. If several blocks read a line
// and it leaves before the last of them, it is loaded from memory again. evict_first is therefore used only for data
// that fits, and for whole lines that are read once. `tiles`: tiles of the other operand, each of which reads all of
// this one (docs/notes/memory.md).
CachePolicy policy_of(const GemmTask& task, const Lowering& low, const TmaOperand& o, int64_t tiles, const Device& d) {
  int64_t again = 0;  // times that one tile of the other operand reads an element
  if (!o.windowed()) again = o.device.batch_step ? 1 : low.view.batch.size;
  else if (o.along_rows()) again = int64_t(low.window[0]) * low.window[1] * low.window[2];
  else
    for (const Sm90Phase& p : low.phases) again += int64_t(p.taps[0]) * p.taps[1] * p.taps[2];
  const int64_t readers = tiles * again;
  const bool once = readers == 1 && o.along_rows(), fits = readers <= 4 && task.bytes < 0.8 * double(d.l2_bytes);
  return once || fits ? CachePolicy::evict_first : CachePolicy::normal;
}

struct Plan90 final : GemmPlan {
  DType type;
  Tile tile;
  int device, blocks_of_tile;
  bool exchanged;
  TmaOperand a, b;
  std::vector<Sm90Problem> problems;  // one for each launch, without the maps
  std::shared_ptr<const cuda::Kernel> kernel;
  std::optional<SplitKReduce> add_parts;  // if k is split and not added in a cluster
  cuda::LaunchConfig config;

  TensorMap map_of(const TmaOperand& o, const void* base, int rows) const {
    const uint32_t item = uint32_t(itemsize(type)), lines = 128 / item;
    const char* address = static_cast<const char*>(base) + o.offset * int64_t(item);
    if (o.windowed()) {
      cuda::Im2colMap m = o.pixels;
      m.address = address, m.pixels = o.along_rows() ? lines : uint32_t(rows);
      return std::bit_cast<TensorMap>(cuda::encode(m, device));
    }
    cuda::TiledMap m = o.tile;
    m.address = address, m.box[0] = 128 / item, m.box[3] = o.along_rows() ? lines : uint32_t(rows);
    return std::bit_cast<TensorMap>(cuda::encode(m, device));
  }

  void run(const GemmArgs& args, void* workspace, Stream stream) const override {
    GemmArgs now = args;
    if (add_parts) now = {args.a, args.b, nullptr, nullptr, workspace};
    cuda::LaunchConfig launch = config;
    const TensorMap map_a = map_of(a, exchanged ? args.b : args.a, tile.m),
                    map_b = map_of(b, exchanged ? args.a : args.b, tile.n / tile.cluster);
    for (Sm90Problem problem : problems) {
      problem.map_a = map_a, problem.map_b = map_b;
      launch.grid = {unsigned(min_of(problem.tiles * blocks_of_tile, int(config.grid.x)))};
      cuda::launch(*kernel, launch, stream, problem, now);
    }
    if (add_parts) add_parts->run(args, workspace, stream);
  }
};

}  // namespace

std::string sm90_why_not(const GemmTask& t, const Device& d) {
  if (d.arch / 10 != 9) return cat("needs wgmma, which sm_90 has; got sm_", d.arch);
  if (t.type == DType::float64) return "float64 is not supported";
  if (t.alignment < 16) return cat("needs tensors aligned to 16 bytes; got ", t.alignment);
  for (const GemmView& v : t.views)
    for (int64_t size : {v.m.size, v.n.size, v.k.size, v.batch.size})
      if (size >= int64_t(1) << 30) return cat("supports M, N, K and batch below 2^30; got ", size);
  const Lowering low = lowered(t);
  if (!low.why.empty()) return low.why;
  const Extents s = shape_of(t, low);
  if (s.phases * ceil_div(s.m, int64_t(64)) * ceil_div(s.n, int64_t(64)) * s.batch >= int64_t(1) << 24)
    return "supports fewer than 2^24 tiles of 64 x 64 elements; got more";
  if (t.sums && store_of(t, low) != GemmStore::lines)
    return "needs y with contiguous channels, a multiple of 8 of them, aligned to 16 bytes, for statistics";
  if (t.sums && s.batch > 1) return cat("supports statistics with groups=1 only; got ", s.batch);
  return "";
}

double sm90_estimate_us(const GemmTask& t, const Device& d) { return choices_of(t, d).front().us; }

std::vector<std::string> sm90_configs(const GemmTask& t, const Device& d) {
  std::vector<std::string> configs;
  for (const Choice90& c : choices_of(t, d)) configs.push_back(text(c.tile, c.split));
  return configs;
}

namespace {

std::pair<Tile, Split> parsed(const std::string& config) {
  const size_t at = config.find(";split=");
  Split split;
  if (at != std::string::npos) split = {std::stoi(config.substr(at + 7)), config.ends_with(";in_cluster")};
  for (const Tile& t : kTiles)
    if (text(t, split) == config) return {t, split};
  throw NotSupported(cat("wgmma: unknown config '", config, "'"));
}

}  // namespace

int64_t sm90_sums(const GemmTask& t, const std::string& config) {
  const Tile tile = parsed(config).first;
  const int64_t clusters = ceil_div(lowered(t).view.m.size, int64_t(tile.m) * tile.cluster);
  return clusters * tile.cluster * (tile.ping_pong ? 1 : sm90_warpgroups(tile.m));
}

size_t sm90_workspace_bytes(const GemmTask& t, const std::string& config) {
  const int parts = parsed(config).second.passes();
  if (parts == 1) return 0;
  const Lowering low = lowered(t);
  return Parts(low.view, store_of(t, low) == GemmStore::columns).bytes(parts);
}

std::unique_ptr<GemmPlan> sm90_plan(const GemmTask& task, const Device& d, const std::string& config) {
  const auto [tile, split] = parsed(config);
  const Lowering low = lowered(task);
  const GemmView& v = low.view;
  const GemmStore store = store_of(task, low);
  const bool columns = store == GemmStore::columns;
  auto plan = std::make_unique<Plan90>();
  plan->type = task.type, plan->tile = tile, plan->device = d.place.index;
  plan->exchanged = low.exchanged, plan->a = low.a, plan->b = low.b;

  Sm90Problem problem{};
  problem.a = low.a.device, problem.b = low.b.device;
  problem.y = output_of(task, low);
  const int passes = split.passes();
  if (passes > 1) {
    const Parts parts(v, columns);
    const GemmOutput turned = output_of(transposed(v), task.y, task.alignment, task.has_c, task.has_bias);
    plan->add_parts.emplace(task, columns ? turned : problem.y, parts.columns, passes, d);
    problem.y = parts.output, problem.split_stride = parts.part_stride;
  }
  const int64_t m_tiles = ceil_div(v.m.size, int64_t(tile.m) * tile.cluster),
                n_tiles = ceil_div(v.n.size, int64_t(tile.n));
  const int64_t group_m = min_of(m_tiles, int64_t(8)), last = m_tiles % group_m;
  problem.a.policy = policy_of(task, low, low.a, n_tiles, d);
  problem.b.policy = policy_of(task, low, low.b, m_tiles, d);
  problem.m_tiles = int32_t(m_tiles);
  problem.per_matrix = FastDivmod(m_tiles * n_tiles);
  problem.splits = FastDivmod(passes), problem.batches = FastDivmod(v.batch.size);
  problem.per_group = FastDivmod(group_m * n_tiles), problem.group_m = FastDivmod(group_m);
  problem.last_group_m = FastDivmod(last ? last : group_m);
  problem.k_blocks = FastDivmod(low.k_blocks);
  const int64_t blocks = low.all_blocks();
  problem.k_each = int32_t(blocks / split.parts), problem.k_more = int32_t(blocks % split.parts);
  if (low.phases.size() == 1 && problem.k_more == 0) problem.k_of_tile = problem.k_each;
  for (int j = 0; j < 3; ++j)
    problem.positions[j] = FastDivmod(low.positions[j]), problem.window[j] = FastDivmod(low.window[j]);
  problem.channel_blocks = FastDivmod(max_of(low.channel_blocks, int64_t(1)));
  for (size_t first = 0; first < low.phases.size(); first += kSm90Phases) {
    const size_t count = std::min(low.phases.size() - first, size_t(kSm90Phases));
    std::copy_n(low.phases.begin() + std::ptrdiff_t(first), count, problem.phases);
    if (low.phases.size() == 1) problem.phases[0].part = problem.y.part;
    problem.tiles = int32_t(m_tiles * n_tiles * v.batch.size * passes * int64_t(count));
    plan->problems.push_back(problem);
  }

  EpilogueTraits ending{.store = columns ? GemmStore::columns : GemmStore::lines};  // if parts are written
  if (passes == 1) ending = {task.activation, task.has_bias, task.has_c, task.sums ? GemmStore::summed : store};
  plan->kernel = cuda::load_kernel(kernel_spec(task.type, passes > 1 ? DType::float32 : task.y, tile, split,
                                               task.promote, low.a.source, low.b.source, low.spatial, ending),
                                   plan->device, int(smem_bytes(tile)));
  plan->config.block = {unsigned(128 + 128 * sm90_warpgroups(tile.m))};
  plan->config.programmatic = true;
  plan->blocks_of_tile = tile.cluster * split.cluster();
  plan->config.cluster = {unsigned(plan->blocks_of_tile)};
  plan->config.smem_bytes = smem_bytes(tile);
  // Blocks that add in a cluster compute one tile and exit.
  plan->config.grid = {split.in_cluster ? unsigned(problem.tiles * plan->blocks_of_tile)
                                        : unsigned(d.sm_count / tile.cluster * tile.cluster)};
  return plan;
}

std::vector<KernelSpec> sm90_kernels(bool convolutions, bool promote) {
  using enum Sm90Source;
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    for (const Tile& t : kTiles) {
      const bool tf32 = type == DType::float32;
      if (promote && !tf32) continue;
      auto add = [&](Sm90Source a, Sm90Source b, GemmStore usual = GemmStore::lines) {
        if (!fits(t, type, a == tile_along_rows, b == tile_along_rows || b == pixels_along_rows, promote)) return;
        all.push_back(kernel_spec(type, type, t, {}, promote, a, b, 2, {.store = usual}));
        if (t.m * t.n == 64 * 64)
          for (GemmStore store : {GemmStore::turned, GemmStore::any})
            if (!tf32 || store == GemmStore::any)
              all.push_back(kernel_spec(type, type, t, {}, promote, a, b, 2, {.store = store}));
        if (t.m * t.n == 128 * 128 && t.cluster == 1 && !t.ping_pong && usual != GemmStore::phases)
          all.push_back(kernel_spec(type, type, t, {kInCluster, true}, promote, a, b, 2, {.store = usual}));
      };
      if (convolutions) {
        add(pixels_along_k, tile_along_k);
        add(tile_along_rows, pixels_along_rows);
        if (!tf32) add(pixels_along_k, tile_along_rows);
        else
          for (GemmStore store : {GemmStore::columns, GemmStore::phases}) add(tile_along_rows, pixels_along_k, store);
      } else {
        add(tile_along_k, tile_along_k);
        if (tf32) add(tile_along_rows, tile_along_k, GemmStore::columns);
        else add(tile_along_k, tile_along_rows);
      }
    }
  if (!convolutions) std::ranges::copy(add_parts_kernels(), std::back_inserter(all));
  return all;
}

std::vector<KernelSpec> sm90_kernels_with_sums() {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    for (const Tile& t : kTiles)
      if (fits(t, type, false, false, false, true))
        all.push_back(kernel_spec(type, type, t, {}, false, Sm90Source::pixels_along_k, Sm90Source::tile_along_k, 2,
                                  {.store = GemmStore::summed}));
  return all;
}

}  // namespace minidnn
