// SPDX-License-Identifier: Apache-2.0
// The launches of a loss, the same for every engine but for the one over the logits.
#pragma once
#include "cpp/loss/loss.h"
#include "cuda/runtime/plan.h"

namespace minidnn {

constexpr int64_t kLossBlocks = 256;      // at most, that add up rows' losses
constexpr int64_t kLossRowsOfOne = 8192;  // what a single block adds up in the time of a launch
constexpr int64_t kLossThreads = 512;

// Workspace: the rows' losses, or the gradient of each; then a sum and a count of each block.
inline size_t loss_numbers_bytes(const LossProblem& p) {
  return size_t(ceil_div<int64_t>(int64_t(loss_workspace(p)), 16) * 16);
}
inline size_t loss_device_workspace(const LossProblem& p) { return loss_numbers_bytes(p) + kLossBlocks * 16; }

inline KernelSpec loss_total_spec(const char* kernel, DType dtype) {
  return {"cuda/loss/generic.cu", cat("minidnn::", kernel, "<", dtype == DType::float64 ? "double" : "float", ">")};
}
inline std::vector<KernelSpec> loss_total_kernels() {
  std::vector<KernelSpec> all;
  for (DType t : {DType::float32, DType::float64})
    for (const char* kernel : {"loss_add", "loss_finish"}) all.push_back(loss_total_spec(kernel, t));
  return all;
}

// `spec` takes (Task, LossArgs, pointer): to where each row's loss goes, or to the gradient of one. On sm_90 a launch may
// start before the one that it follows ends.
template <class Task>
std::unique_ptr<Plan<LossProblem>> loss_plan(const KernelSpec& spec, const LossProblem& p, const Device& d,
                                             cuda::LaunchConfig over_rows, const Task& task) {
  const bool backward = p.direction == LossDirection::backward, reduced = p.reduction != LossReduction::none;
  const bool early = d.arch >= 90, adds = backward ? p.reduction == LossReduction::mean : reduced;
  auto rows = cuda::load_kernel(spec, d.place.index);
  std::shared_ptr<const cuda::Kernel> add, finish;
  cuda::LaunchConfig over_losses;
  over_losses.block = {unsigned(kLossThreads)};
  over_losses.grid = {unsigned(p.rows() <= kLossRowsOfOne ? 1 : min_of(ceil_div(p.rows(), kLossThreads), kLossBlocks))};
  if (adds) add = cuda::load_kernel(loss_total_spec("loss_add", p.x.dtype), d.place.index);
  if (adds && over_losses.grid.x > 1)
    finish = cuda::load_kernel(loss_total_spec("loss_finish", p.x.dtype), d.place.index);
  const size_t numbers_bytes = loss_numbers_bytes(p);
  return make_plan<LossProblem>([=](const LossArgs& a, void* workspace, Stream stream) {
    void* numbers = adds ? workspace : a.loss;
    void* parts = static_cast<char*>(workspace) + numbers_bytes;
    auto launch_rows = [&] {
      cuda::LaunchConfig now = over_rows;
      now.stream = stream, now.programmatic = early && backward && adds;
      cuda::launch(*rows, now, task, a, numbers);
    };
    if (!backward) launch_rows();
    if (adds) {
      cuda::LaunchConfig now = over_losses;
      now.stream = stream, now.programmatic = early && !backward;
      cuda::launch(*add, now, p, a, numbers, parts);
      if (finish) {
        const int32_t blocks = int32_t(now.grid.x);
        now.grid = {1}, now.programmatic = early;
        cuda::launch(*finish, now, p, a, numbers, parts, blocks);
      }
    }
    if (backward) launch_rows();
  });
}

}  // namespace minidnn
