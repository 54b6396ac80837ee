// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "cpp/core/dtype.h"
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/sm90/plan.h"
#include "cuda/gemm/sm90/tiling.h"

namespace minidnn {
namespace {

const char* source_text(Sm90Source s) {
  constexpr const char* names[] = {"tile_along_k", "tile_along_rows", "pixels_along_k", "pixels_along_rows"};
  return names[int(s)];
}

// The template arguments of an instance of the kernel gemm_sm90.
struct Sm90Instance {
  DType type, y;
  Sm90TileShape tile;
  Sm90Split split;
  bool promote;
  Sm90Source a, b;
  int spatial;
  EpilogueTraits epilogue;

  KernelSpec spec() const {
    KernelSpec spec{"cuda/gemm/sm90/kernel.cu",
                    cat("minidnn::gemm_sm90<", cuda_name(type), ", ", cuda_name(y), ", ", tile.m, ", ", tile.n, ", ",
                        tile.stages, ", ", tile.ping_pong ? "true" : "false", ", ", tile.cluster, ", ", split.cluster(),
                        promote ? ", true" : ", false", ", minidnn::Sm90Source::", source_text(a),
                        ", minidnn::Sm90Source::", source_text(b), ", ", spatial, ", ", epilogue.text(), ">")};
    spec.min_arch = 90;
    return spec;
  }
};

// The L2 eviction policy of an operand. evict_first spares data that is needed again, but lines that several blocks
// read may then be loaded twice. It is used only if all data fits in the L2, or if each line is read once and as a
// whole (docs/notes/memory.md). `tiles`: the number of tiles that need the same rows of the operand.
CachePolicy policy_of(const GemmTask& task, const TmaView& low, const TmaOperand& o, int64_t tiles, const Device& d) {
  int64_t again = 0;  // reads of each element per tile of the other operand
  if (!o.windowed()) again = o.device.batch_step ? 1 : low.view.batch.size;
  else if (o.along_rows()) again = int64_t(low.window[0]) * low.window[1] * low.window[2];
  else
    for (const Sm90Phase& p : low.phases) again += int64_t(p.taps[0]) * p.taps[1] * p.taps[2];
  const int64_t readers = tiles * again;
  const bool once = readers == 1 && o.along_rows(), fits = readers <= 4 && task.bytes < 0.8 * double(d.l2_bytes);
  return once || fits ? CachePolicy::evict_first : CachePolicy::normal;
}

// The tensor map of y for GemmStore::boxes, without its address; none if y needs another GemmStore. The rows of a box
// are the sixteen rows that a warp stores together.
std::optional<cuda::TiledMap> boxes_of(const GemmTask& task, const TmaView& low, const Sm90TileShape& tile,
                                       const Sm90Split& split) {
  const GemmOutput o = output_of(task, low);
  const int64_t item = int64_t(itemsize(task.y)), last = kDigits - 1;
  if (store_of(task, low) != GemmStore::lines || task.has_c || task.sums || split.passes() > 1 ||
      low.phases.size() > 1 || o.m.first != last || o.batch.first != last ||
      !has_boxes(tile, split, task.type, task.y, low.a.along_rows()))
    return {};
  cuda::TiledMap map;
  map.dtype = task.y;
  map.rank = 3;
  map.swizzle_bytes = 128;
  map.l2_promotion_bytes = 0;
  const int64_t dims[3] = {o.n_limit, o.bounds.limit[last], o.batch.size},
                strides[2] = {o.y_m.of[last] * item, o.y_batch.of[last] * item};
  for (int i = 0; i < 3; ++i) map.dims[i] = uint64_t(dims[i]);
  // A dimension of size 1 may have any stride, but a tensor map needs a positive multiple of 16.
  for (int i = 0; i < 2; ++i) map.strides[i] = dims[i + 1] > 1 ? uint64_t(strides[i]) : 16;
  map.box[0] = uint32_t(128 / item);
  map.box[1] = 16;
  map.box[2] = 1;
  if (!why_not(map).empty()) return {};
  return map;
}

// The kernel parameters of each launch, without tensor maps.
std::vector<Sm90Problem> problems_of(const GemmTask& task, const TmaView& low, const Sm90Tiling& tiling,
                                     const Device& d) {
  const auto& [tile, split, us] = tiling;
  const GemmView& v = low.view;
  Sm90Problem problem{};
  problem.a = low.a.device;
  problem.b = low.b.device;
  problem.y = output_of(task, low);
  const int passes = split.passes();
  if (passes > 1) {
    const SplitKWorkspace layout(v, store_of(task, low) == GemmStore::columns);
    problem.y = layout.output;
    problem.split_stride = layout.partition_stride;
  }
  const int64_t m_tiles = ceil_div(v.m.size, int64_t(tile.m) * tile.cluster),
                n_tiles = ceil_div(v.n.size, int64_t(tile.n));
  const int64_t group_m = min_of(m_tiles, int64_t(8)), last = m_tiles % group_m;
  problem.a.policy = policy_of(task, low, low.a, n_tiles, d);
  problem.b.policy = policy_of(task, low, low.b, m_tiles, d);
  problem.m_tiles = int32_t(m_tiles);
  problem.per_matrix = FastDivmod(m_tiles * n_tiles);
  problem.splits = FastDivmod(passes);
  problem.batches = FastDivmod(v.batch.size);
  problem.per_group = FastDivmod(group_m * n_tiles);
  problem.group_m = FastDivmod(group_m);
  problem.last_group_m = FastDivmod(last ? last : group_m);
  problem.k_blocks = FastDivmod(low.k_blocks);
  const int64_t blocks = low.all_blocks();
  problem.k_each = int32_t(blocks / split.chunks);
  problem.k_more = int32_t(blocks % split.chunks);
  if (low.phases.size() == 1 && problem.k_more == 0) problem.k_of_tile = problem.k_each;
  for (int j = 0; j < 3; ++j) {
    problem.positions[j] = FastDivmod(low.positions[j]);
    problem.window[j] = FastDivmod(low.window[j]);
  }
  problem.channel_blocks = FastDivmod(max_of(low.channel_blocks, int64_t(1)));
  std::vector<Sm90Problem> problems;
  for (size_t first = 0; first < low.phases.size(); first += kSm90Phases) {
    const size_t count = std::min(low.phases.size() - first, size_t(kSm90Phases));
    std::copy_n(low.phases.begin() + std::ptrdiff_t(first), count, problem.phases);
    if (low.phases.size() == 1) problem.phases[0].bounds = problem.y.bounds;
    problem.tiles = int32_t(m_tiles * n_tiles * v.batch.size * passes * int64_t(count));
    problems.push_back(problem);
  }
  return problems;
}

struct Plan90 final : GemmPlan {
  DType type;
  Sm90TileShape tile;
  int device, blocks_of_tile;
  bool exchanged;
  TmaOperand a, b;
  std::optional<cuda::TiledMap> boxes;  // the tensor map of y, for GemmStore::boxes
  int64_t y_offset = 0;                 // the offset of that map in y, in bytes
  std::vector<Sm90Problem> problems;    // kernel parameters; run() adds the tensor maps
  std::shared_ptr<const cuda::Kernel> kernel;
  // The second launch, which adds up splits of k in the workspace; empty if it is not needed.
  std::optional<SplitKReduce> split_k_reduce;
  cuda::LaunchConfig config;

  TensorMap map_of(const TmaOperand& o, const void* base, int rows) const {
    const uint32_t item = uint32_t(itemsize(type)), lines = 128 / item;
    const char* address = static_cast<const char*>(base) + o.offset * int64_t(item);
    if (o.windowed()) {
      cuda::Im2colMap m = o.pixels;
      m.address = address;
      m.pixels = o.along_rows() ? lines : uint32_t(rows);
      return std::bit_cast<TensorMap>(cuda::encode(m, device));
    }
    cuda::TiledMap m = o.tile;
    m.address = address;
    m.box[0] = 128 / item;
    m.box[3] = o.along_rows() ? lines : uint32_t(rows);
    return std::bit_cast<TensorMap>(cuda::encode(m, device));
  }

  void run(const GemmArgs& args, void* workspace, Stream stream) const override {
    GemmArgs now = args;
    if (split_k_reduce) now = {args.a, args.b, nullptr, nullptr, workspace};
    cuda::LaunchConfig launch = config;
    const TensorMap map_a = map_of(a, exchanged ? args.b : args.a, tile.m),
                    map_b = map_of(b, exchanged ? args.a : args.b, tile.n / tile.cluster);
    TensorMap map_y{};
    if (boxes) {
      cuda::TiledMap map = *boxes;
      map.address = static_cast<const char*>(args.y) + y_offset;
      map_y = std::bit_cast<TensorMap>(cuda::encode(map, device));
    }
    for (Sm90Problem problem : problems) {
      problem.map_a = map_a;
      problem.map_b = map_b;
      problem.map_y = map_y;
      launch.grid = {unsigned(min_of(problem.tiles * blocks_of_tile, int(config.grid.x)))};
      cuda::launch(*kernel, launch, stream, problem, now);
    }
    if (split_k_reduce) split_k_reduce->run(args, workspace, stream);
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
  const TmaView low = tma_view(t);
  if (!low.why.empty()) return low.why;
  const GemmView& v = low.view;
  const int64_t tiles = ceil_div(v.m.size, int64_t(64)) * ceil_div(v.n.size, int64_t(64));
  if (int64_t(low.phases.size()) * tiles * v.batch.size >= int64_t(1) << 24)
    return "supports fewer than 2^24 tiles of 64 x 64 elements; got more";
  if (t.sums && store_of(t, low) != GemmStore::lines)
    return "needs y with contiguous channels, a multiple of 8 of them, aligned to 16 bytes, for statistics";
  if (t.sums && v.batch.size > 1) return cat("supports statistics with groups=1 only; got ", v.batch.size);
  return "";
}

double sm90_estimate_us(const GemmTask& t, const Device& d) { return sm90_tilings(t, d).front().us; }

std::vector<std::string> sm90_configs(const GemmTask& t, const Device& d) {
  std::vector<std::string> configs;
  for (const Sm90Tiling& tiling : sm90_tilings(t, d)) configs.push_back(tiling.config());
  return configs;
}

int64_t sm90_sums(const GemmTask& t, const std::string& config) {
  const Sm90TileShape tile = sm90_tiling(config).tile;
  const int64_t clusters = ceil_div(tma_view(t).view.m.size, int64_t(tile.m) * tile.cluster);
  return clusters * tile.cluster * (tile.ping_pong ? 1 : sm90_warpgroups(tile.m));
}

size_t sm90_workspace_bytes(const GemmTask& t, const std::string& config) {
  const int passes = sm90_tiling(config).split.passes();
  if (passes == 1) return 0;
  const TmaView low = tma_view(t);
  return SplitKWorkspace(low.view, store_of(t, low) == GemmStore::columns).bytes(passes);
}

std::unique_ptr<GemmPlan> sm90_plan(const GemmTask& task, const Device& d, const std::string& config) {
  const Sm90Tiling tiling = sm90_tiling(config);
  const auto& [tile, split, us] = tiling;
  const TmaView low = tma_view(task);
  const GemmStore store = store_of(task, low);
  const bool columns = store == GemmStore::columns;
  auto plan = std::make_unique<Plan90>();
  plan->type = task.type;
  plan->tile = tile;
  plan->device = d.place.index;
  plan->exchanged = low.exchanged;
  plan->a = low.a;
  plan->b = low.b;
  plan->problems = problems_of(task, low, tiling, d);
  const int passes = split.passes();
  if (passes > 1) {
    const GemmOutput y = columns ? output_of(transposed(low.view), task.y, task.alignment, task.has_c, task.has_bias)
                                 : output_of(task, low);
    plan->split_k_reduce.emplace(task, y, SplitKWorkspace(low.view, columns).columns, passes, d);
  }
  // With splits in the workspace, the epilogue only stores sums.
  EpilogueTraits epilogue{.store = columns ? GemmStore::columns : GemmStore::lines};
  if (passes == 1) epilogue = {task.activation, task.has_bias, task.has_c, task.sums ? GemmStore::summed : store};
  plan->boxes = boxes_of(task, low, tile, split);
  if (plan->boxes) {
    epilogue.store = GemmStore::boxes;
    plan->y_offset = plan->problems.front().y.bounds.y_offset * int64_t(itemsize(task.y));
  }
  plan->kernel = cuda::load_kernel(Sm90Instance{task.type, passes > 1 ? DType::float32 : task.y, tile, split,
                                                task.promote, low.a.source, low.b.source, low.spatial, epilogue}
                                       .spec(),
                                   plan->device, int(tile.smem_bytes()));
  plan->config.block = {unsigned(128 + 128 * sm90_warpgroups(tile.m))};
  plan->config.programmatic = true;
  plan->blocks_of_tile = tile.cluster * split.cluster();
  plan->config.cluster = {unsigned(plan->blocks_of_tile)};
  plan->config.smem_bytes = tile.smem_bytes();
  // Blocks are persistent, except in clusters that split k, which compute one tile each.
  plan->config.grid = {split.in_cluster ? unsigned(plan->problems.back().tiles * plan->blocks_of_tile)
                                        : unsigned(d.sm_count / tile.cluster * tile.cluster)};
  return plan;
}

std::vector<KernelSpec> sm90_kernels(bool convolutions, bool promote) {
  using enum Sm90Source;
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    for (const Sm90TileShape& t : sm90_tile_shapes()) {
      const bool tf32 = type == DType::float32;
      if (promote && !tf32) continue;
      auto add = [&](Sm90Source a, Sm90Source b, GemmStore usual = GemmStore::lines) {
        if (!fits(t, {type, a == tile_along_rows, b == tile_along_rows || b == pixels_along_rows, promote})) return;
        auto add_stores = [&](const Sm90Split& split) {
          const bool boxes = usual == GemmStore::lines && has_boxes(t, split, type, type, a == tile_along_rows);
          if (boxes)
            all.push_back(Sm90Instance{type, type, t, split, promote, a, b, 2, {.store = GemmStore::boxes}}.spec());
          // Strided backward_data and splits of k in the workspace need GemmStore::lines.
          if (!boxes || convolutions || tf32)
            all.push_back(Sm90Instance{type, type, t, split, promote, a, b, 2, {.store = usual}}.spec());
        };
        add_stores({});
        if (t.m * t.n == 64 * 64)
          for (GemmStore store : {GemmStore::transposed, GemmStore::any})
            if (!tf32 || store == GemmStore::any)
              all.push_back(Sm90Instance{type, type, t, {}, promote, a, b, 2, {.store = store}}.spec());
        if (t.m * t.n == 128 * 128 && t.cluster == 1 && !t.ping_pong && usual != GemmStore::phases)
          add_stores({kSm90InCluster, true});
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
  if (!convolutions) std::ranges::copy(split_k_reduce_kernels(), std::back_inserter(all));
  return all;
}

std::vector<KernelSpec> sm90_kernels_with_sums() {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    for (const Sm90TileShape& t : sm90_tile_shapes())
      if (fits(t, {.type = type, .sums = true}))
        all.push_back(Sm90Instance{type,
                                   type,
                                   t,
                                   {},
                                   false,
                                   Sm90Source::pixels_along_k,
                                   Sm90Source::tile_along_k,
                                   2,
                                   {.store = GemmStore::summed}}
                          .spec());
  return all;
}

}  // namespace minidnn
