// SPDX-License-Identifier: Apache-2.0
// cuda.layer_norm.generic is the engine for layer, RMS, group and instance norm of tensors with any strides.
#include "cpp/engine/engine_object.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::layer_norm {
namespace {

KernelSpec spec(DType t, int pass) {
  return {"cuda/layer_norm/generic.cu", cat("minidnn::layer_norm_generic<", cuda_name(t), ", ", pass, ">")};
}
cuda::LaunchConfig blocks_for(int64_t items) {
  // The largest number of blocks in a grid. Blocks loop over the remaining rows or parameters.
  constexpr int64_t kMostBlocks = 1 << 20;
  cuda::LaunchConfig config;
  config.block = {256};
  config.grid = {unsigned(min_of(items, kMostBlocks))};
  return config;
}

}  // namespace

struct Generic final : Engine<LayerNormProblem> {
  std::string name() const override { return "cuda.layer_norm.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LayerNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    // The kernels reach about 0.05 of the device's peak rates, because their index arithmetic has 64-bit divisions.
    return roofline_us(row_norm_flop(p), row_norm_bytes(p), d, 0.05);
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device& d,
                                                const Config&) const override {
    const LayerNormSpaces s = row_norm_spaces(p);
    auto rows = cuda::load_kernel(spec(p.x.dtype, p.backward ? 1 : 0), d.place.index);
    std::shared_ptr<const cuda::Kernel> parameters;
    if (p.backward) parameters = cuda::load_kernel(spec(p.x.dtype, 2), d.place.index);
    return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void*, Stream stream) {
      cuda::LaunchConfig first = blocks_for(s.rows.size), second = blocks_for(s.parameters.size);
      if (s.rows.size) cuda::launch(*rows, first, stream, s, a);
      if (parameters) cuda::launch(*parameters, second, stream, s, a);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (int pass : {0, 1, 2}) all.push_back(spec(t, pass));
    return all;
  }
};

}  // namespace cuda::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cuda::layer_norm::Generic>();

}  // namespace minidnn
