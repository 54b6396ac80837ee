// SPDX-License-Identifier: Apache-2.0
// cuda.reduce.strided_axis: outputs that are contiguous themselves.
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

  // Returns why_not().
  static std::string fill_params(const ReduceProblem& p, const Device& d, ReduceColumns& c) {
    const ReduceView v = reduce_view(p);
    const TensorDesc rows = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
    c.mode = p.mode;
    c.policy = policy_of(p, d);
    c.y = joined(p.y, false);
    c.outer = joined(v.kept, false);
    if (c.outer.rank == 0 || c.outer.stride[c.outer.rank - 1] != 1)
      return "needs a kept dimension of x to be contiguous";
    if (rows.rank > 1) return cat("needs reduced dimensions that join into one with a single stride; got ", rows.rank);
    c.columns = c.outer.shape[--c.outer.rank];
    c.rows = rows.rank ? rows.shape[0] : 1;
    c.pitch = rows.rank ? rows.stride[0] : 0;
    c.outputs = p.y.numel();
    const int64_t vector = 16 / int64_t(itemsize(p.x.dtype));
    int64_t aligned = c.columns | c.pitch;
    for (int i = 0; i < c.outer.rank; ++i) aligned |= c.outer.stride[i];
    c.wide = aligned % vector == 0 && p.alignment == 16;
    c.whole_rows = c.pitch > 0 ? max_of<int64_t>(c.rows - ceil_div(2 * vector, c.pitch), 0) : 0;
    const int64_t vectors = ceil_div(c.columns, vector);
    c.lanes = std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(vectors))), 1, 32);
    c.column_blocks = ceil_div(vectors, c.lanes);
    const int64_t groups = c.column_blocks * c.outer.numel(), high = kThreads / c.lanes;
    c.rows_per_chunk = ceil_div(c.rows, chunks_for(groups, c.rows / (kAhead * high), d));
    c.chunks = ceil_div(c.rows, c.rows_per_chunk);
    if (double(groups) * double(c.chunks) > 0x7fffffff) return "supports at most 2^31 - 1 blocks; got more";
    if (c.rows_per_chunk > kMostElements) return kTooMany;
    return "";
  }
  std::string why_not(const ReduceProblem& p, const Device& d) const override {
    ReduceColumns c;
    std::string why = refusal(p);
    return why.empty() ? fill_params(p, d, c) : why;
  }
  // Counted, not measured, as in contiguous_axis. A vector extracted from two takes two accesses to L1 and twice the
  // instructions.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    ReduceColumns c;
    fill_params(p, d, c);
    const double line = std::min(1.0, double(c.columns) * double(itemsize(p.x.dtype)) / 128);
    return roofline_us(0, reduce_bytes(p), d, (c.wide ? 0.92 : 0.8) * line) + (c.chunks > 1 ? 3 : 0);
  }
  size_t workspace_bytes(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceColumns c;
    fill_params(p, d, c);
    return c.chunks > 1 ? size_t(c.outputs * c.chunks) * state_bytes(p) : 0;
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceColumns c;
    fill_params(p, d, c);
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
