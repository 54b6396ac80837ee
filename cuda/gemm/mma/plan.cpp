// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <optional>

#include "cpp/activation/activation.h"
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/mma/plan.h"

namespace minidnn {
namespace {

// ReLU is a run-time option of the kernel. Other activations have a kernel each.
struct MmaActivation {
  Activation mode = Activation::identity;
  bool fast = true;  // whether to use the formulas Formula::fast_ftz (cuda/device/fast_activation.cuh)
};

MmaActivation activation_of(const GemmTask& t, MmaProducts products) {
  if (t.activation == Activation::relu || t.activation == Activation::identity) return {};
  return {t.activation, has_fast_activation(t, products == MmaProducts::three)};
}

KernelSpec spec(DType type, const MmaTileShape& t, MmaProducts products, bool a_along_k, bool b_along_k, bool wide,
                MmaActivation activation) {
  auto word = [](bool b) { return b ? "true" : "false"; };
  return {"cuda/gemm/mma/kernel.cu",
          cat("minidnn::mma_gather<", cuda_name(type), ", minidnn::MmaTile<", t.m, ", ", t.n, ", ", t.warps_m, ", ",
              t.warps_n, ", ", t.stages, ", ", t.blocks, ">, ", products == MmaProducts::three ? 3 : 1, ", ",
              word(a_along_k), ", ", word(b_along_k), ", ", word(wide), ", minidnn::Activation::",
              name(activation.mode), ", minidnn::Formula::", activation.fast ? "fast_ftz" : "accurate", ">")};
}

struct MmaPlan final : GemmPlan {
  std::shared_ptr<const cuda::Kernel> kernel;
  std::vector<MmaLaunch> launches;
  std::optional<SplitKReduce> split_k_reduce;
  bool exchanged = false;

  void run(const GemmArgs& given, void* workspace, Stream stream) const override {
    GemmArgs args = given;
    if (exchanged) std::swap(args.a, args.b);
    GemmArgs product = args;
    if (split_k_reduce) product = {args.a, args.b, nullptr, nullptr, workspace};
    for (const MmaLaunch& l : launches) cuda::launch(*kernel, l.config, stream, l.params, product);
    if (split_k_reduce) split_k_reduce->run(args, workspace, stream);
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
  const MmaTiling best = mma_tilings(t, d, products).front();
  if (best.splits > 1) return best.us;
  const GemmOutput y = output_of(MmaViews(t).views.front(), t.y, t.alignment, t.has_c, t.has_bias);
  return best.us + scattered_c_us(t, store_of(y, t.has_c), store_of(y, false), d);
}

std::vector<std::string> mma_configs(const GemmTask& t, const Device& d, MmaProducts products) {
  std::vector<std::string> configs;
  for (const MmaTiling& c : mma_tilings(t, d, products)) configs.push_back(c.config());
  return configs;
}

size_t mma_workspace_bytes(const GemmTask& t, MmaProducts products, const std::string& config) {
  const MmaViews v(t);
  const int64_t splits = mma_tiling(v, products, config).splits;
  return splits > 1 ? SplitKWorkspace(v.views.front()).bytes(splits) : 0;
}

MmaLaunches mma_launches(const GemmTask& t, MmaProducts products, const std::string& config) {
  const MmaViews v(t);
  const auto [tile, wanted, us] = mma_tiling(v, products, config);
  MmaLaunches to;
  to.exchanged = v.exchanged;
  to.view = v.views.front();
  const int64_t per_split = max_of(ceil_div(slices_of(v, to.view), wanted), int64_t(1));
  // No split of k is empty.
  to.splits = wanted > 1 ? max_of(ceil_div(slices_of(v, to.view), per_split), int64_t(1)) : 1;
  const MmaActivation activation = to.splits > 1 ? MmaActivation{} : activation_of(t, products);
  to.kernel = spec(t.type, tile, products, v.a_along_k, v.b_along_k, v.wide, activation);
  for (size_t i = 0; i < v.views.size(); ++i) {
    const GemmView& view = v.views[i];
    auto& [launch, params] = to.all.emplace_back();
    params = v.phases[i];
    params.y = output_of(view, t.y, t.alignment, t.has_c, t.has_bias);
    params.relu = t.activation == Activation::relu;
    params.y_is_float32 = t.y == DType::float32;
    params.slices_per_split = std::numeric_limits<uint32_t>::max();
    if (to.splits > 1) {
      const SplitKWorkspace layout(view);
      params.y = layout.output;
      params.split_stride = layout.partition_stride;
      params.y_is_float32 = 1;
      params.relu = 0;
      params.slices_per_split = uint32_t(per_split);
    }
    const int64_t tiles_m = ceil_div(view.m.size, int64_t(tile.m)), tiles_n = ceil_div(view.n.size, int64_t(tile.n));
    params.tiles = FastDivmod(tiles_m * tiles_n);
    params.batches = FastDivmod(view.batch.size);
    params.per_group = FastDivmod(kTilesOfGroup * tiles_n);
    params.groups = uint32_t(tiles_m / kTilesOfGroup);
    params.last_rows = FastDivmod(max_of(tiles_m % kTilesOfGroup, int64_t(1)));
    const MmaTables group(tile, v, params);
    params.group_slices = uint32_t(group.slices);
    params.first_b = uint32_t(group.first_b);
    launch.grid = {unsigned(tiles_m * tiles_n * view.batch.size * to.splits)};
    launch.block = {unsigned(tile.threads())};
    launch.smem_bytes = unsigned(mma_smem_bytes(tile, v));
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
  if (launches.splits > 1) plan->split_k_reduce.emplace(t, launches.view, launches.splits, d);
  plan->launches = std::move(launches.all);
  for (MmaLaunch& l : plan->launches) l.config.programmatic = l.config.programmatic && d.arch >= 90;
  return plan;
}

std::vector<KernelSpec> mma_kernels(MmaProducts products) {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32}) {
    if (products == MmaProducts::three && type != DType::float32) continue;
    for (bool wide : {true, false})
      for (const MmaTileShape& t : mma_tile_shapes(wide, products))
        for (bool a_along_k : {true, false})
          for (bool b_along_k : {true, false}) all.push_back(spec(type, t, products, a_along_k, b_along_k, wide, {}));
  }
  return all;
}

}  // namespace minidnn
