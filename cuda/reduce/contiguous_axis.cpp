// SPDX-License-Identifier: Apache-2.0
// cuda.reduce.contiguous_axis is the engine for reductions of elements that form one or several contiguous spans.
#include "cuda/reduce/chunks.h"

namespace minidnn {
namespace cuda::reduce {
namespace {

KernelSpec kernel_spec(DType t, ReduceKind kind) {
  return {"cuda/reduce/contiguous_axis.cu",
          cat("minidnn::reduce_contiguous_axis<", cuda_name(t), ", ", kernel_type(kind), ">")};
}

}  // namespace

struct ContiguousAxis final : FloatEngine {
  std::string name() const override { return "cuda.reduce.contiguous_axis"; }
  void add_kernels(std::vector<KernelSpec>& all, DType t, ReduceKind kind) const override {
    all.push_back(kernel_spec(t, kind));
  }

  std::string why_not(const ReduceProblem& p, const Device& d) const override {
    ReduceRows r;
    return tile_contiguous_axis(p, d, r);
  }
  // The numbers of this estimate follow from counting bytes, not from measurements. Four 16-byte loads in flight per
  // thread saturate the memory. Contiguous spans that are shorter than a cache line waste bandwidth.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    ReduceRows r;
    tile_contiguous_axis(p, d, r);
    const double line = std::min(1.0, double(r.span) * double(itemsize(p.x.dtype)) / (r.spans.rank ? 256 : 16));
    return roofline_us(0, reduce_bytes(p), d, 0.92 * line) + (r.chunks > 1 ? 3 : 0);
  }
  size_t workspace_bytes(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceRows r;
    tile_contiguous_axis(p, d, r);
    return r.chunks > 1 ? size_t(r.items) * state_bytes(p) : 0;
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceRows r;
    tile_contiguous_axis(p, d, r);
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(ceil_div(r.items, kThreads / r.lanes))};
    auto first = cuda::load_kernel(kernel_spec(p.x.dtype, kind_of(p.mode)), d.place.index);
    return plan_with_combine(p, d, r.chunks, p.y.numel(), false,
                             [=](const ReduceArgs& a, void* workspace, Stream stream) {
                               cuda::launch(*first, config, stream, r, a.x, a.y, workspace);
                             });
  }
};

}  // namespace cuda::reduce

template const Engine<ReduceProblem>& engine_object<ReduceProblem, cuda::reduce::ContiguousAxis>();

}  // namespace minidnn
