// SPDX-License-Identifier: Apache-2.0
// cuda.reduce.contiguous_axis: outputs whose elements are contiguous, along one dimension or in several contiguous
// spans.
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

  // Returns why_not().
  static std::string fill_params(const ReduceProblem& p, const Device& d, ReduceRows& r) {
    const ReduceView v = reduce_view(p);
    r.mode = p.mode;
    r.policy = policy_of(p, d);
    r.y = joined(p.y, false);
    r.kept = joined(v.kept, false);
    r.spans = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
    if (r.spans.rank == 0 || r.spans.stride[r.spans.rank - 1] != 1)
      return "needs a reduced dimension of x to be contiguous";
    r.span = r.spans.shape[--r.spans.rank];
    const int64_t vector = 16 / int64_t(itemsize(p.x.dtype)), outputs = p.y.numel(), spans = r.spans.numel();
    r.count = spans * r.span;
    r.lanes = lanes_for(ceil_div(r.span, vector));
    r.slices = 1;
    r.slice = r.span;
    r.spans_per_chunk = spans;
    r.chunks = 1;
    const int64_t step = kThreads * kAhead * vector;  // elements that a block has in flight
    const int64_t chunks = chunks_for(ceil_div(outputs * r.lanes, kThreads), r.count / step, d);
    if (chunks > 1) {
      r.spans_per_chunk = ceil_div(spans, min_of(spans, chunks));
      const int64_t groups = ceil_div(spans, r.spans_per_chunk);
      r.slice = ceil_div(ceil_div(r.span, max_of<int64_t>(chunks / groups, 1)), step) * step;
      r.slice = min_of(r.slice, r.span);
      r.slices = ceil_div(r.span, r.slice);
      r.chunks = groups * r.slices;
      r.lanes = lanes_for(ceil_div(r.slice, vector));
    } else {  // with enough outputs, a warp each: no block-wide barrier
      const int64_t enough = ceil_div(int64_t(2048) * d.sm_count, outputs);
      r.lanes = min_of(r.lanes, max_of(int64_t(std::bit_ceil(uint64_t(enough))), int64_t(32)));
    }
    r.items = outputs * r.chunks;
    if (ceil_div(r.items, kThreads / r.lanes) > 0x7fffffff) return "supports at most 2^31 - 1 blocks; got more";
    if ((r.spans_per_chunk - 1) * r.span + r.slice > kMostElements) return kTooMany;
    return "";
  }
  std::string why_not(const ReduceProblem& p, const Device& d) const override {
    ReduceRows r;
    std::string why = refusal(p);
    return why.empty() ? fill_params(p, d, r) : why;
  }
  // Counted, not measured: four loads of 16 bytes in flight per thread saturate memory; spans shorter than a line waste
  // bandwidth.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    ReduceRows r;
    fill_params(p, d, r);
    const double line = std::min(1.0, double(r.span) * double(itemsize(p.x.dtype)) / (r.spans.rank ? 256 : 16));
    return roofline_us(0, reduce_bytes(p), d, 0.92 * line) + (r.chunks > 1 ? 3 : 0);
  }
  size_t workspace_bytes(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceRows r;
    fill_params(p, d, r);
    return r.chunks > 1 ? size_t(r.items) * state_bytes(p) : 0;
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceRows r;
    fill_params(p, d, r);
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
