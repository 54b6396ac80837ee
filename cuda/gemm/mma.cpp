// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "cuda/gemm/mma_host.h"
#include "cuda/gemm/parts.h"

namespace minidnn {
namespace {

// A tile and the warps that share it, as MmaTile has them.
struct Tile {
  int m, n, warps_m, warps_n, stages, blocks;
  int threads() const { return 32 * warps_m * warps_n; }
};
// Warps of 64 x 64 read least from shared memory; where vectors are narrow, fetching is what takes time, and more
// threads do it. Three products need twice the registers for their sums.
constexpr Tile kWideTiles[] = {
    {256, 128, 4, 2, 3, 1}, {128, 128, 2, 2, 3, 2}, {128, 64, 2, 1, 3, 4}, {64, 64, 2, 2, 4, 4}, {128, 32, 4, 1, 4, 4}};
constexpr Tile kWideTilesOfThree[] = {{128, 64, 2, 2, 3, 2}, {64, 64, 2, 2, 4, 3}};
constexpr Tile kNarrowTiles[] = {{128, 64, 4, 2, 3, 2}, {64, 64, 4, 2, 3, 2}};

std::span<const Tile> tiles_of(bool wide, MmaProducts products) {
  if (!wide) return kNarrowTiles;
  if (products == MmaProducts::three) return kWideTilesOfThree;
  return kWideTiles;
}

int smem_bytes(const Tile& t, const MmaViews& v) {
  const KGroup group(v.a_along_k, v.b_along_k, v.wide, int(v.element), t.threads());
  const int rows = v.wide ? 0 : (v.a_along_k ? t.m : 0) + (v.b_along_k ? t.n : 0);
  return t.stages * (t.m + t.n) * kSliceBytes + group.bytes() + rows * int(sizeof(GatherEntry));
}

int64_t slices_of(const MmaViews& v, const GemmView& view) {
  return ceil_div(view.k.size * v.element, int64_t(kSliceBytes));
}

int64_t blocks_of(const Tile& t, const GemmView& v) {
  return ceil_div(v.m.size, int64_t(t.m)) * ceil_div(v.n.size, int64_t(t.n)) * v.batch.size;
}

// Clocks that a block takes of an SM for a slice: the longest of what tensor cores, shared memory, L2 and the threads
// that fetch vectors need. Measured on an H100 (docs/measured_facts.md): 135 TFLOP/s in TF32 at 4096 cubed, that is m n / 9.4
// clocks for a slice of m x n. L2 gives an SM 46 bytes a clock.
double slice_clocks(const Tile& t, const MmaViews& v, const Device& d, MmaProducts products) {
  double multiply = double(t.m) * t.n / 9.4;
  if (products == MmaProducts::three) multiply *= 3;
  const double warp_rows = double(t.m) / t.warps_m + double(t.n) / t.warps_n, warps = t.threads() / 32;
  const double shared = (warps * warp_rows + t.m + t.n) * kSliceBytes / 128;
  const double l2 = double(t.m + t.n) * kSliceBytes / 46;
  double fetch = 0;
  for (auto [rows, width] : {std::pair(t.m, v.phases.front().a.width), std::pair(t.n, v.phases.front().b.width)})
    fetch += double(rows) * kSliceBytes / width / 32 * (width == 2 ? 3.5 : 2);
  return max_of(max_of(multiply, shared), max_of(l2, fetch));
}

double task_us(const GemmTask& task, const MmaViews& v, const Device& d, MmaProducts products, const Tile& t,
               int64_t splits) {
  constexpr double kClocksPerUs = 1700, kStart = 1500;  // start: a block's first slice, waited for
  const double each = slice_clocks(t, v, d, products), latency = max_of(each, 2500.0);  // a slice alone
  const double out_bytes = splits > 1 ? 4 : double(itemsize(task.y)), end = 300 + double(t.m) * t.n * out_bytes / 24;
  const int at_once = min_of(t.blocks, (d.max_smem_bytes + 1024) / (smem_bytes(t, v) + 1024));
  double clocks = 0, blocks = 0, longest = 0;
  for (const GemmView& view : v.views) {
    const double count = double(blocks_of(t, view) * splits), slices = double(ceil_div(slices_of(v, view), splits));
    clocks += count * (slices * each + end);
    blocks += count;
    longest = max_of(longest, kStart + slices * latency + end);
  }
  // An SM is as fast as its blocks together, or as one after another in each place; the last round is whole.
  const double per_sm = std::ceil(blocks / d.sm_count), mean = clocks / max_of(blocks, 1.0);
  const double rounds = std::ceil(per_sm / at_once);
  double us = max_of(per_sm * mean + kStart, rounds * longest) / kClocksPerUs;
  us = max_of(us, task.bytes / (0.45 * d.copy_gb_s * 1e3));  // measured: 64 to 64 channels, 1x1, in 41 us
  if (splits > 1) {  // sums are written and read, mostly in the L2, at about twice the rate of memory
    const GemmView& view = v.views.front();
    us += 3 + double(splits) * double(view.m.size) * double(view.n.size) * double(view.batch.size) * 8 /
                  (2 * d.copy_gb_s * 1e3);
  }
  return us + 3;
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

// Best first. The first splits k as it would if a and b were exchanged: an element then is the same sum in a product and
// in the transposed one. After it, each tile with its own best number of splits.
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
  return {"cuda/gemm/mma_gather.cu",
          cat("minidnn::mma_gather<", cuda_name(type), ", minidnn::MmaTile<", t.m, ", ", t.n, ", ", t.warps_m, ", ",
              t.warps_n, ", ", t.stages, ", ", t.blocks, ">, ", products == MmaProducts::three ? 3 : 1, ", ",
              word(a_along_k), ", ", word(b_along_k), ", ", word(wide), ">")};
}

struct MmaPlan final : GemmPlan {
  std::shared_ptr<const cuda::Kernel> kernel;
  std::vector<MmaLaunch> launches;
  std::optional<AddParts> add_parts;
  bool exchanged = false;

  void run(const GemmArgs& given, void* workspace, Stream stream) const override {
    GemmArgs args = given;
    if (exchanged) std::swap(args.a, args.b);
    GemmArgs product = args;
    if (add_parts) product = {args.a, args.b, nullptr, nullptr, workspace};
    for (const MmaLaunch& l : launches) {
      cuda::LaunchConfig launch = l.config;
      launch.stream = stream;
      cuda::launch(*kernel, launch, l.params, product);
    }
    if (add_parts) add_parts->run(args, workspace, stream);
  }
};

}  // namespace

std::string mma_why_not_ieee(MmaProducts products) {
  if (products == MmaProducts::one) return "multiplies float32 as TF32, and math='ieee' forbids it";
  return "math='ieee' forbids it: three TF32 products lose 2^-22 of each, and Inf, NaN and the largest numbers differ";
}

std::string mma_why_not(const GemmTask& t, const Device& d, MmaProducts products) {
  if (d.arch < 80) return cat("needs the tensor cores of sm_80 and later; the device is sm_", d.arch);
  if (t.type == DType::float64) return "multiplies float16, bfloat16 and float32; the operands are float64";
  if (products == MmaProducts::three && t.type != DType::float32)
    return cat("splits float32 operands in two; these are ", name(t.type));
  const MmaViews v(t);
  if (!v.why.empty()) return v.why;
  int64_t blocks = 0;
  for (const GemmView& view : v.views) blocks += blocks_of({64, 32, 1, 1, 1, 1}, view);
  if (blocks >= int64_t(1) << 28) return "counts blocks in 32 bits; there are too many";
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
  const auto [tile, splits] = parsed(v, products, config);
  MmaLaunches to;
  to.kernel = spec(t.type, tile, products, v.a_along_k, v.b_along_k, v.wide);
  to.exchanged = v.exchanged, to.splits = splits, to.view = v.views.front();
  for (size_t first = 0; first < v.views.size(); first += kMaxPhases) {
    auto& [launch, params] = to.all.emplace_back();
    params.activation = t.activation, params.y_is_float32 = t.y == DType::float32;
    params.slices_per_split = std::numeric_limits<uint32_t>::max();
    int64_t blocks = 0;
    for (size_t i = first; i < std::min(v.views.size(), first + kMaxPhases); ++i) {
      const GemmView& one = v.views[i];
      MmaPhase& phase = params.phase[params.phases++] = v.phases[i];
      phase.tiles_m = uint32_t(ceil_div(one.m.size, int64_t(tile.m)));
      phase.tiles_n = uint32_t(ceil_div(one.n.size, int64_t(tile.n)));
      phase.first_block = uint32_t(blocks);
      phase.y = output_of(one, t.y, t.alignment, t.has_c, t.has_bias);
      blocks += blocks_of(tile, one);
    }
    if (splits > 1) {
      const Parts parts(to.view);
      params.phase[0].y = parts.output, params.part_stride = parts.part_stride;
      params.y_is_float32 = 1, params.activation = Activation::identity;
      params.slices_per_split = uint32_t(ceil_div(slices_of(v, to.view), splits));
    }
    launch.grid = {unsigned(blocks * splits)};
    launch.block = {unsigned(tile.threads())};
    launch.smem_bytes = unsigned(smem_bytes(tile, v));
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
