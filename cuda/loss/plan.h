// SPDX-License-Identifier: Apache-2.0
// The launches of a loss. All but the one over the logits are the same for every engine.
#pragma once
#include "cpp/loss/loss.h"
#include "cuda/runtime/plan.h"

namespace minidnn {

constexpr int64_t kLossBlocks = 256;      // blocks that join partial sums or count rows, at most
constexpr int64_t kLossMostOfOne = 8192;  // partial sums or rows that one block processes in the time of a launch
constexpr int64_t kLossThreads = 512;

// Workspace: a sum and a count for each block over the rows (forward); the same for each block that joins or counts;
// the gradient of a mean.
inline size_t loss_parts_bytes(int64_t blocks) { return size_t(blocks) * 16; }
inline size_t loss_device_workspace(const LossProblem& p, int64_t blocks) {
  return loss_parts_bytes(p.direction == LossDirection::forward ? blocks : 0) + loss_parts_bytes(kLossBlocks + 1);
}

inline KernelSpec loss_total_spec(const char* kernel, DType dtype) {
  return {"cuda/loss/generic.cu", cat("minidnn::", kernel, "<", dtype == DType::float64 ? "double" : "float", ">")};
}
inline std::vector<KernelSpec> loss_total_kernels() {
  std::vector<KernelSpec> all;
  for (DType t : {DType::float32, DType::float64})
    for (const char* kernel : {"loss_count", "loss_join"}) all.push_back(loss_total_spec(kernel, t));
  return all;
}

// spec: a kernel with the parameters (Task, LossArgs, pointer). Forward the pointer is to the partial sums of its
// blocks, or, without a reduction, to the losses of the rows; backward to the gradient of the sum, or of each row. From
// sm_90 on, a launch may start before the preceding one ends.
template <class Task>
std::unique_ptr<Plan<LossProblem>> loss_plan(const KernelSpec& spec, const LossProblem& p, const Device& d,
                                             cuda::LaunchConfig over_rows, const Task& task) {
  const bool backward = p.direction == LossDirection::backward, reduced = p.reduction != LossReduction::none;
  const bool early = d.arch >= 90, joins = backward ? p.reduction == LossReduction::mean : reduced;
  auto rows = cuda::load_kernel(spec, d.place.index);
  // first: rows to count (backward), or partial sums to join. If this takes several blocks, a further launch joins
  // theirs.
  const int64_t first = backward ? p.rows() : int64_t(over_rows.grid.x);
  const unsigned blocks = first <= kLossMostOfOne ? 1u : unsigned(min_of(ceil_div(first, kLossThreads), kLossBlocks));
  std::shared_ptr<const cuda::Kernel> join, count;
  if (joins && (!backward || blocks > 1))
    join = cuda::load_kernel(loss_total_spec("loss_join", p.x.dtype), d.place.index);
  if (joins && backward) count = cuda::load_kernel(loss_total_spec("loss_count", p.x.dtype), d.place.index);
  const size_t first_bytes = loss_parts_bytes(backward ? 0 : int64_t(over_rows.grid.x));
  return make_plan<LossProblem>([=](const LossArgs& a, void* workspace, Stream stream) {
    char* const second = static_cast<char*>(workspace) + first_bytes;
    char* const gradient = second + loss_parts_bytes(kLossBlocks);
    cuda::LaunchConfig now = over_rows;
    if (!backward) cuda::launch(*rows, now, stream, task, a, joins ? workspace : a.loss);
    if (joins) {
      char* const to = blocks > 1 ? second : gradient;
      now.grid = {blocks}, now.block = {unsigned(kLossThreads)}, now.programmatic = early && !backward;
      if (backward) cuda::launch(*count, now, stream, p, a, to);
      else cuda::launch(*join, now, stream, p, a, workspace, int32_t(first), to);
      now.grid = {1}, now.programmatic = early;
      if (blocks > 1) cuda::launch(*join, now, stream, p, a, second, int32_t(blocks), gradient);
    }
    if (!backward) return;
    now = over_rows, now.programmatic = early && joins;
    cuda::launch(*rows, now, stream, task, a, joins ? static_cast<void*>(gradient) : a.loss);
  });
}

}  // namespace minidnn
