// SPDX-License-Identifier: Apache-2.0
// What the engines cuda.reduce.contiguous_axis and cuda.reduce.strided_axis share. If many elements are reduced to one
// result, they are divided into chunks, and a second kernel (combine.cu) combines the results of the chunks.
#pragma once
#include "cpp/engine/engine_object.h"
#include "cuda/reduce/tiling.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::reduce {

inline std::string kernel_type(ReduceKind kind) { return cat("(minidnn::ReduceKind)", int64_t(kind)); }
inline KernelSpec combine_spec(ReduceKind kind) {
  return {"cuda/reduce/combine.cu", cat("minidnn::reduce_combine<", kernel_type(kind), ">")};
}

// The base class of the engines of reduce whose kernels accumulate in float32.
struct FloatEngine : Engine<ReduceProblem> {
  unsigned traits() const override { return kNeedsJit; }
  virtual void add_kernels(std::vector<KernelSpec>& all, DType t, ReduceKind kind) const = 0;
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (auto kind : {ReduceKind::sum, ReduceKind::prod, ReduceKind::max, ReduceKind::arg}) {
      for (DType t : {DType::float32, DType::float16, DType::bfloat16}) add_kernels(all, t, kind);
      all.push_back(combine_spec(kind));
    }
    return all;
  }
};

inline size_t state_bytes(const ReduceProblem& p) { return kind_of(p.mode) == ReduceKind::arg ? 16 : 4; }
// Returns a plan that calls launch(args, workspace, stream) and, if there are several chunks per result, a second
// kernel, which combines the results of the chunks in the workspace.
template <class Launch>
std::unique_ptr<Plan<ReduceProblem>> plan_with_combine(const ReduceProblem& p, const Device& d, int64_t chunks,
                                                       int64_t outputs, bool chunks_first, Launch launch) {
  ReduceCombine r{p.mode, joined(p.y, false), outputs, chunks, chunks_first ? 1 : chunks, chunks_first ? outputs : 1, 0,
                  0};
  r.count = p.x.numel() / outputs;
  r.lanes = lanes_for(chunks);
  const bool early = d.arch >= 90;
  std::shared_ptr<const cuda::Kernel> last;
  if (chunks > 1) last = cuda::load_kernel(combine_spec(kind_of(p.mode)), d.place.index);
  return make_plan<ReduceProblem>([=](const ReduceArgs& a, void* workspace, Stream stream) {
    launch(a, workspace, stream);
    if (chunks == 1) return;
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(ceil_div(outputs, kThreads / r.lanes))};
    config.programmatic = early;
    cuda::launch(*last, config, stream, r, static_cast<const void*>(workspace), a.y);
  });
}

}  // namespace minidnn::cuda::reduce
