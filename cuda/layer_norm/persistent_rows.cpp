// SPDX-License-Identifier: Apache-2.0
// cuda.layer_norm.persistent_rows is the engine for norms of contiguous rows that stay in registers or shared memory.
// The kernels are in persistent_rows.cu and persistent_rows_backward.cu.
#include "cuda/layer_norm/persistent_rows_tiling.h"

#include "cpp/engine/engine_object.h"
#include "cuda/layer_norm/rows.h"
#include "cuda/norm/channel_passes_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::layer_norm {
namespace {

KernelSpec kernel_of(DType t, std::string_view kernel, int64_t vector, int64_t thread_vectors) {
  return {kernel == "backward" ? "cuda/layer_norm/persistent_rows_backward.cu" : "cuda/layer_norm/persistent_rows.cu",
          cat("minidnn::layer_norm_rows_", kernel, "<", cuda_name(t), ", ", vector, ", ", thread_vectors, ">")};
}
KernelSpec stream_spec(DType t) {
  const int64_t vector = 16 / int64_t(itemsize(t));
  return kernel_of(t, "forward_smem", vector, kForwardElements / vector);
}
KernelSpec spec(const LayerNormProblem& p, const PersistentRowsTiling& t) {
  if (t.persistent && !p.backward) return stream_spec(p.x.dtype);
  return kernel_of(p.x.dtype, p.backward ? "backward" : "forward", t.vector, t.thread_vectors);
}

}  // namespace

struct PersistentRows final : Engine<LayerNormProblem> {
  std::string name() const override { return "cuda.layer_norm.persistent_rows"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LayerNormProblem& p, const Device& d) const override {
    PersistentRowsTiling t;
    return tile_persistent_rows(p, d, t);
  }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    PersistentRowsTiling t;
    tile_persistent_rows(p, d, t);
    // In backward, each block writes its sums of dscale and dbias, and a second launch reads them. Backward reaches
    // 0.88 of the device's bandwidth. For long rows, with more than 16 elements per thread, it reaches 0.7.
    const double sums = p.backward ? double(max_persistent_blocks(t, d)) * double(t.rows.columns) * 8 : 0;
    const double kept = p.backward && t.thread_vectors * t.vector > 16 ? 0.7 : 0.88;
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) + sums, d, t.vector > 1 ? p.backward ? kept : 0.9 : 0.5) +
           (p.backward ? 3 : 0);
  }
  size_t workspace_bytes(const LayerNormProblem& p, const Device& d, const Config&) const override {
    if (!p.backward) return 0;
    PersistentRowsTiling t;
    tile_persistent_rows(p, d, t);
    return size_t(max_persistent_blocks(t, d)) * size_t(t.rows.columns) * 2 * sizeof(float);
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device& d,
                                                const Config&) const override {
    PersistentRowsTiling t;
    tile_persistent_rows(p, d, t);
    const RowTiling r = t.rows;
    auto kernel = cuda::load_kernel(spec(p, t), d.place.index, int(t.smem_bytes));
    cuda::LaunchConfig config;
    config.smem_bytes = unsigned(t.smem_bytes);
    config.block = {r.threads * r.rows_at_once};
    if (r.blocks > 1) config.cluster = {r.blocks};
    config.grid = {unsigned(ceil_div(r.rows, int64_t(r.rows_at_once)) * r.blocks)};
    int64_t persistent_blocks = 0;
    if (t.persistent) {
      persistent_blocks =
          std::min<int64_t>(max_persistent_blocks(t, d), std::max(cuda::fit_at_once(*kernel, config, d), 1));
      config.grid = {unsigned(persistent_blocks * r.blocks)};
    }
    if (!p.backward)
      return make_plan<LayerNormProblem>(
          [=](const LayerNormArgs& a, void*, Stream stream) { cuda::launch(*kernel, config, stream, r, a); });
    const ParameterSums f = parameter_sums(persistent_blocks);
    auto finish = cuda::load_kernel(f.kernel, d.place.index);
    cuda::LaunchConfig joining;
    joining.block = {unsigned(f.threads)};
    joining.grid = {unsigned(ceil_div(r.columns, f.columns))};
    joining.programmatic = d.arch >= 90;
    return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig first = config, second = joining;
      cuda::launch(*kernel, first, stream, r, a, workspace);
      cuda::launch(*finish, second, stream, r.columns, persistent_blocks, static_cast<const void*>(workspace), a.dscale,
                   a.dbias);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{parameter_sums(1).kernel, parameter_sums(INT32_MAX).kernel};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16}) {
      const int64_t wide = 16 / int64_t(itemsize(t));
      for (int64_t w : {1, 2, 4, 8}) all.push_back(kernel_of(t, "forward", wide, w));
      for (int64_t w = 1; w * wide <= 2 * kScaleInRegisters; w *= 2) all.push_back(kernel_of(t, "backward", wide, w));
      all.push_back(kernel_of(t, "forward", 1, 8));
      all.push_back(kernel_of(t, "backward", 1, 4));
      all.push_back(stream_spec(t));
    }
    return all;
  }
};

}  // namespace cuda::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cuda::layer_norm::PersistentRows>();

}  // namespace minidnn
