// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/mma/gather_index.h"
#include "cuda/gemm/mma/plan.h"

namespace minidnn {
namespace {

// A tile and the warps that share it, as in MmaTile.
struct Tile {
  int m, n, warps_m, warps_n, stages, blocks;
  int threads() const { return 32 * warps_m * warps_n; }
};
// Warps of 64 x 64 read least from shared memory. Narrow vectors are bound by fetching, which more threads speed up.
// Three products need twice the registers for their sums.
constexpr Tile kWideTiles[] = {
    {256, 128, 4, 2, 3, 1}, {128, 128, 2, 2, 3, 2}, {128, 64, 2, 1, 3, 4}, {64, 64, 2, 2, 4, 4}, {128, 32, 4, 1, 4, 4}};
constexpr Tile kWideTilesOfThree[] = {{128, 64, 2, 2, 3, 2}, {64, 64, 2, 2, 4, 3}};
constexpr Tile kNarrowTiles[] = {{128, 64, 4, 2, 3, 2}, {64, 64, 4, 2, 3, 2}};

std::span<const Tile> tiles_of(bool wide, MmaProducts products) {
  if (!wide) return kNarrowTiles;
  if (products == MmaProducts::three) return kWideTilesOfThree;
  return kWideTiles;
}

// The tables of k entries, if there are any: those of two groups of slices are in shared memory.
struct Group {
  int slices = 0, first_b = 0, bytes = 0;

  Group(const Tile& t, const MmaViews& v, const MmaParams& p) {
    auto entries = [&](const GatherOperand& o) {
      return o.table ? (o.along_k && v.wide ? kSliceBytes / 16 : kSliceBytes / int(v.element)) : 0;
    };
    auto whole_warps = [](int threads) { return (threads + 31) / 32 * 32; };
    const int a = entries(p.a), b = entries(p.b);
    if (a + b == 0) return;
    slices = 1;
    while (whole_warps(2 * slices * a) + whole_warps(2 * slices * b) <= t.threads()) slices *= 2;
    first_b = whole_warps(slices * a), bytes = 2 * slices * (a + b) * int(sizeof(GatherEntry));
  }
};

// The shared memory that mma/kernel.cu uses.
int smem_bytes(const Tile& t, const MmaViews& v) {
  int rows = t.m;  // those of y
  if (!v.wide) rows += (v.a_along_k ? t.m : 0) + (v.b_along_k ? t.n : 0);
  int most = 0;
  for (const MmaParams& p : v.phases) most = max_of(most, Group(t, v, p).bytes);
  return t.stages * (t.m + t.n) * kSliceBytes + rows * 16 + most;
}

int64_t slices_of(const MmaViews& v, const GemmView& view) {
  return ceil_div(view.k.size * v.element, int64_t(kSliceBytes));
}

int64_t blocks_of(const Tile& t, const GemmView& v) {
  return ceil_div(v.m.size, int64_t(t.m)) * ceil_div(v.n.size, int64_t(t.n)) * v.batch.size;
}

// The cost of a block in clocks, as measured on an H100 (docs/notes/gemm.md).
struct BlockClocks {
  double slice, slice_alone, end, end_alone;

  BlockClocks(const Tile& t, const MmaViews& v, MmaProducts products, int64_t out_bytes) {
    // The clocks of an SM for a slice are the maximum of what tensor cores, shared memory, L2 (46 bytes a clock) and
    // the threads that fetch narrow vectors need, plus a tenth of the time of shared memory and L2, because nothing
    // overlaps entirely. mma.sync could multiply 64 bytes of k in m n / 32 clocks. It is slower because its operands
    // are loaded from shared memory, by words in float32, and arrive there by narrow vectors if not `wide`.
    const double times = products == MmaProducts::three ? 3 : 1, warps = t.threads() / 32;
    const double warp_m = double(t.m) / t.warps_m, warp_n = double(t.n) / t.warps_n;
    const double multiply = double(t.m) * t.n / (!v.wide ? 8.3 : v.element == 4 ? 14 : 19) * times;
    const double shared = (warps * (warp_m + warp_n) + t.m + t.n) * kSliceBytes / 128;
    const double l2 = double(t.m + t.n) * kSliceBytes / 46;
    double fetch = 0;
    for (auto [rows, width] : {std::pair(t.m, v.phases.front().a.width), std::pair(t.n, v.phases.front().b.width)})
      fetch += double(rows) * kSliceBytes / width / 32 * (v.wide ? 2 : 8.5);
    slice = max_of(max_of(multiply, shared), max_of(l2, fetch)) + 0.1 * (shared + l2);
    slice_alone = max_of(slice, 1000.0);  // a block alone on an SM waits for memory
    end = double(t.m) * t.n * double(out_bytes) / 24 + 300, end_alone = end + 1000;
  }
};

double task_us(const GemmTask& task, const MmaViews& v, const Device& d, MmaProducts products, const Tile& t,
               int64_t splits) {
  constexpr double kClocksPerUs = 1700, kStart = 2500;  // start: until the first slice of a block has arrived
  const BlockClocks block(t, v, products, splits > 1 ? 4 : int64_t(itemsize(task.y)));
  const int most_at_once = min_of(t.blocks, (d.max_smem_bytes + 1024) / (smem_bytes(t, v) + 1024));
  double blocks = 0, slices = 0;  // slices: average of a block
  for (const GemmView& view : v.views) {
    blocks += double(blocks_of(t, view) * splits);
    slices += double(blocks_of(t, view) * splits) * double(ceil_div(slices_of(v, view), splits));
  }
  slices /= max_of(blocks, 1.0);
  // Blocks of an SM run concurrently, in rounds. The last round counts as a full one.
  const double per_sm = std::ceil(blocks / d.sm_count), at_once = min_of(double(most_at_once), per_sm);
  const double round =
      kStart + slices * max_of(block.slice_alone, at_once * block.slice) + max_of(block.end_alone, at_once * block.end);
  double us = std::ceil(per_sm / max_of(at_once, 1.0)) * round / kClocksPerUs;
  us = max_of(us, task.bytes / (0.65 * d.copy_gb_s * 1e3));
  if (splits > 1) {  // sums are written and read, mostly in the L2, at about twice the rate of memory
    const GemmView& view = v.views.front();
    us += 7 + double(splits) * double(view.m.size) * double(view.n.size) * double(view.batch.size) * 8 /
                  (2 * d.copy_gb_s * 1e3);
  }
  return us + 4.5;
}

struct Candidate {
  Tile tile;
  int64_t splits = 0;
  double us = 0;
};

std::string text(const Tile& t, int64_t splits) {
  return cat("tile=", t.m, "x", t.n) + (splits > 1 ? cat(";split=", splits) : "");
}

Candidate best_splits(const GemmTask& task, const MmaViews& v, const Device& d, MmaProducts products, const Tile& t) {
  Candidate best{t, 1, task_us(task, v, d, products, t, 1)};
  if (v.views.size() > 1) return best;
  const int64_t places = int64_t(2) * t.blocks * d.sm_count, slices = slices_of(v, v.views.front());
  const int64_t most = min_of(slices / 4, places / blocks_of(t, v.views.front()));
  for (int64_t per = 4; per * 2 <= slices; per = max_of(per + 1, per * 9 / 8)) {  // slices of a split
    const int64_t splits = ceil_div(slices, per);
    if (splits > most) continue;
    if (double us = task_us(task, v, d, products, t, splits); us < best.us) best = {t, splits, us};
  }
  return best;
}

// Best first. The first candidate splits k as it would if a and b were exchanged; an element then has the same sum in a
// product and in the transposed product. After it comes each tile with its own best number of splits.
std::vector<Candidate> candidates_of(const GemmTask& task, const Device& d, MmaProducts products) {
  const MmaViews v(task);
  std::vector<Candidate> with_common, own;
  Candidate common{};
  for (const Tile& t : tiles_of(v.wide, products)) {
    if (smem_bytes(t, v) > d.max_smem_bytes) continue;
    own.push_back(best_splits(task, v, d, products, t));
    const Candidate turned = best_splits(task, v, d, products, {t.n, t.m, t.warps_n, t.warps_m, t.stages, t.blocks});
    for (const Candidate& c : {own.back(), turned})
      if (!common.splits || std::pair(c.us, c.splits) < std::pair(common.us, common.splits)) common = c;
  }
  for (const Candidate& c : own)
    with_common.push_back({c.tile, common.splits, task_us(task, v, d, products, c.tile, common.splits)});
  std::vector<Candidate> all{*std::ranges::min_element(with_common, {}, &Candidate::us)};
  std::ranges::stable_sort(own, {}, &Candidate::us);
  for (const Candidate& c : own)
    if (text(c.tile, c.splits) != text(all.front().tile, all.front().splits)) all.push_back(c);
  return all;
}

std::pair<Tile, int64_t> parsed(const MmaViews& v, MmaProducts products, const std::string& config) {
  const size_t at = config.find(";split=");
  int64_t splits = 1;
  if (at != std::string::npos) std::from_chars(config.data() + at + 7, config.data() + config.size(), splits);
  for (const Tile& t : tiles_of(v.wide, products))
    if (text(t, 1) == config.substr(0, at)) return {t, splits};
  throw NotSupported(cat("mma: unknown config '", config, "'"));
}

KernelSpec spec(DType type, const Tile& t, MmaProducts products, bool a_along_k, bool b_along_k, bool wide) {
  auto word = [](bool b) { return b ? "true" : "false"; };
  return {"cuda/gemm/mma/kernel.cu",
          cat("minidnn::mma_gather<", cuda_name(type), ", minidnn::MmaTile<", t.m, ", ", t.n, ", ", t.warps_m, ", ",
              t.warps_n, ", ", t.stages, ", ", t.blocks, ">, ", products == MmaProducts::three ? 3 : 1, ", ",
              word(a_along_k), ", ", word(b_along_k), ", ", word(wide), ">")};
}

struct MmaPlan final : GemmPlan {
  std::shared_ptr<const cuda::Kernel> kernel;
  std::vector<MmaLaunch> launches;
  std::optional<SplitKReduce> add_parts;
  bool exchanged = false;

  void run(const GemmArgs& given, void* workspace, Stream stream) const override {
    GemmArgs args = given;
    if (exchanged) std::swap(args.a, args.b);
    GemmArgs product = args;
    if (add_parts) product = {args.a, args.b, nullptr, nullptr, workspace};
    for (const MmaLaunch& l : launches) cuda::launch(*kernel, l.config, stream, l.params, product);
    if (add_parts) add_parts->run(args, workspace, stream);
  }
};

}  // namespace

std::string mma_why_not_ieee(MmaProducts products) {
  if (products == MmaProducts::one) return "math='ieee' is not supported: float32 is multiplied as TF32";
  return "math='ieee' is not supported: three TF32 products lose 2^-22, and Inf, NaN and the largest numbers differ";
}

std::string mma_why_not(const GemmTask& t, const Device& d, MmaProducts products) {
  if (d.arch < 80) return cat("needs the tensor cores of sm_80 or later; got sm_", d.arch);
  if (t.type == DType::float64) return "float64 is not supported";
  if (products == MmaProducts::three && t.type != DType::float32)
    return cat("supports float32 only; got ", name(t.type));
  const MmaViews v(t);
  if (!v.why.empty()) return v.why;
  int64_t blocks = 0;
  for (const GemmView& view : v.views) blocks += blocks_of({64, 32, 1, 1, 1, 1}, view);
  if (blocks >= int64_t(1) << 28) return cat("supports fewer than 2^28 tiles of 64 x 32 elements; got ", blocks);
  return "";
}

double mma_estimate_us(const GemmTask& t, const Device& d, MmaProducts products) {
  return candidates_of(t, d, products).front().us;
}

std::vector<std::string> mma_configs(const GemmTask& t, const Device& d, MmaProducts products) {
  std::vector<std::string> configs;
  for (const Candidate& c : candidates_of(t, d, products)) configs.push_back(text(c.tile, c.splits));
  return configs;
}

size_t mma_workspace_bytes(const GemmTask& t, MmaProducts products, const std::string& config) {
  const MmaViews v(t);
  const int64_t splits = parsed(v, products, config).second;
  return splits > 1 ? Parts(v.views.front()).bytes(splits) : 0;
}

MmaLaunches mma_launches(const GemmTask& t, MmaProducts products, const std::string& config) {
  const MmaViews v(t);
  const auto [tile, wanted] = parsed(v, products, config);
  MmaLaunches to;
  to.kernel = spec(t.type, tile, products, v.a_along_k, v.b_along_k, v.wide);
  to.exchanged = v.exchanged, to.view = v.views.front();
  const int64_t per_split = max_of(ceil_div(slices_of(v, to.view), wanted), int64_t(1));
  to.splits = wanted > 1 ? max_of(ceil_div(slices_of(v, to.view), per_split), int64_t(1)) : 1;  // none of them is empty
  for (size_t i = 0; i < v.views.size(); ++i) {
    const GemmView& view = v.views[i];
    auto& [launch, params] = to.all.emplace_back();
    params = v.phases[i];
    params.y = output_of(view, t.y, t.alignment, t.has_c, t.has_bias);
    params.activation = t.activation, params.y_is_float32 = t.y == DType::float32;
    params.slices_per_split = std::numeric_limits<uint32_t>::max();
    if (to.splits > 1) {
      const Parts parts(view);
      params.y = parts.output, params.part_stride = parts.part_stride;
      params.y_is_float32 = 1, params.activation = Activation::identity;
      params.slices_per_split = uint32_t(per_split);
    }
    const int64_t tiles_m = ceil_div(view.m.size, int64_t(tile.m)), tiles_n = ceil_div(view.n.size, int64_t(tile.n));
    params.tiles = FastDivmod(tiles_m * tiles_n), params.batches = FastDivmod(view.batch.size);
    params.per_group = FastDivmod(kTilesOfGroup * tiles_n), params.groups = uint32_t(tiles_m / kTilesOfGroup);
    params.last_rows = FastDivmod(max_of(tiles_m % kTilesOfGroup, int64_t(1)));
    const Group group(tile, v, params);
    params.group_slices = uint32_t(group.slices), params.first_b = uint32_t(group.first_b);
    launch.grid = {unsigned(tiles_m * tiles_n * view.batch.size * to.splits)};
    launch.block = {unsigned(tile.threads())};
    launch.smem_bytes = unsigned(smem_bytes(tile, v));
    launch.programmatic = i > 0;
  }
  return to;
}

std::unique_ptr<GemmPlan> mma_plan(const GemmTask& t, const Device& d, MmaProducts products,
                                   const std::string& config) {
  MmaLaunches launches = mma_launches(t, products, config);
  auto plan = std::make_unique<MmaPlan>();
  plan->exchanged = launches.exchanged;
  plan->kernel = cuda::load_kernel(launches.kernel, d.place.index, int(launches.all.front().config.smem_bytes));
  if (launches.splits > 1) plan->add_parts.emplace(t, launches.view, launches.splits, d);
  plan->launches = std::move(launches.all);
  for (MmaLaunch& l : plan->launches) l.config.programmatic = l.config.programmatic && d.arch >= 90;
  return plan;
}

std::vector<KernelSpec> mma_kernels(MmaProducts products) {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32}) {
    if (products == MmaProducts::three && type != DType::float32) continue;
    for (bool wide : {true, false})
      for (const Tile& t : tiles_of(wide, products))
        for (bool a_along_k : {true, false})
          for (bool b_along_k : {true, false}) all.push_back(spec(type, t, products, a_along_k, b_along_k, wide));
  }
  return all;
}

}  // namespace minidnn
