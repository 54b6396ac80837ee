// SPDX-License-Identifier: Apache-2.0
// cuda.reduce.strided_axis is the engine for reductions along an axis that is not the innermost dimension.
#include "cuda/reduce/chunks.h"

namespace minidnn {
namespace cuda::reduce {
namespace {

KernelSpec kernel_spec(DType t, ReduceKind kind, bool wide) {
  return {"cuda/reduce/strided_axis.cu",
          cat("minidnn::reduce_strided_axis<", cuda_name(t), ", ", kernel_type(kind), wide ? ", true>" : ", false>")};
}

}  // namespace

struct StridedAxis final : FloatEngine {
  std::string name() const override { return "cuda.reduce.strided_axis"; }
  void add_kernels(std::vector<KernelSpec>& all, DType t, ReduceKind kind) const override {
    for (bool wide : {false, true}) all.push_back(kernel_spec(t, kind, wide));
  }

  std::string why_not(const ReduceProblem& p, const Device& d) const override {
    ReduceColumns c;
    return tile_strided_axis(p, d, c);
  }
  // The numbers of this estimate follow from counting bytes, not from measurements. If rows are not aligned to 16
  // bytes, each vector is extracted from two aligned vectors, which takes twice the instructions.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    ReduceColumns c;
    tile_strided_axis(p, d, c);
    const double line = std::min(1.0, double(c.columns) * double(itemsize(p.x.dtype)) / 128);
    return roofline_us(0, reduce_bytes(p), d, (c.wide ? 0.92 : 0.8) * line) + (c.chunks > 1 ? 3 : 0);
  }
  size_t workspace_bytes(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceColumns c;
    tile_strided_axis(p, d, c);
    return c.chunks > 1 ? size_t(c.outputs * c.chunks) * state_bytes(p) : 0;
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceColumns c;
    tile_strided_axis(p, d, c);
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(c.column_blocks * c.outer.numel() * c.chunks)};
    auto first = cuda::load_kernel(kernel_spec(p.x.dtype, kind_of(p.mode), c.wide), d.place.index);
    return plan_with_combine(p, d, c.chunks, c.outputs, true, [=](const ReduceArgs& a, void* workspace, Stream stream) {
      cuda::launch(*first, config, stream, c, a.x, a.y, workspace);
    });
  }
};

}  // namespace cuda::reduce

template const Engine<ReduceProblem>& engine_object<ReduceProblem, cuda::reduce::StridedAxis>();

}  // namespace minidnn
