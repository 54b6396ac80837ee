// SPDX-License-Identifier: Apache-2.0
// What contiguous_axis and strided_axis share. If there are few outputs with many elements, each output is divided into
// chunks, and a second kernel (combine.cu) combines their results. Host only.
#pragma once
#include <bit>

#include "cpp/engine/engine_object.h"
#include "cpp/reduce/reduce.h"
#include "cuda/reduce/reduce_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::reduce {

constexpr int64_t kThreads = kReduceThreads, kAhead = kReduceAhead;
constexpr int64_t kBlocksPerSm = 16;  // for outputs in chunks: two or three waves of blocks, so the last is short
// Elements that a block reduces, at most. Indices are int32_t, and a loop's last index exceeds the last element's.
constexpr int64_t kMostElements = INT32_MAX - 2 * kThreads * kAhead * 8;
constexpr const char* kTooMany = "supports fewer than 2^31 elements of x in a thread block; got more";

inline std::string kernel_type(ReduceKind kind) { return cat("(minidnn::ReduceKind)", int64_t(kind)); }
inline KernelSpec combine_spec(ReduceKind kind) {
  return {"cuda/reduce/combine.cu", cat("minidnn::reduce_combine<", kernel_type(kind), ">")};
}

// The engines whose kernels accumulate in float32.
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

inline std::string refusal(const ReduceProblem& p) {
  if (!is_floating(p.x.dtype) || p.x.dtype == DType::float64)
    return cat("supports float32, float16 and bfloat16 only; got ", minidnn::name(p.x.dtype));
  if (p.x.numel() == 0) return "x is empty";
  return "";
}
inline CachePolicy policy_of(const ReduceProblem& p, const Device& d) {
  return policy_of_once(reduce_bytes(p), d.l2_bytes);
}
inline size_t state_bytes(const ReduceProblem& p) { return kind_of(p.mode) == ReduceKind::arg ? 16 : 4; }
inline int64_t lanes_for(int64_t vectors) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div(vectors, kAhead)))), 1, kThreads);
}
// Into how many chunks, at most `most`, the work of each of `groups` blocks is divided.
inline int64_t chunks_for(int64_t groups, int64_t most, const Device& d) {
  const int64_t wanted = kBlocksPerSm * d.sm_count;
  return groups * 2 > wanted ? 1 : std::clamp<int64_t>(ceil_div(wanted, groups), 1, max_of<int64_t>(most, 1));
}

// The plan of launch(args, workspace, stream). If each output has several chunks, a second kernel combines their
// results in the workspace.
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
