// SPDX-License-Identifier: Apache-2.0
// The launches of one call of cross-entropy. The CUDA engines of loss differ only in the kernel that reads the logits.
#pragma once
#include "cpp/engine/engine_object.h"
#include "cpp/loss/loss.h"
#include "cuda/runtime/plan.h"

namespace minidnn {

constexpr int64_t kLossBlocks = 256;  // the maximum number of blocks that add up partial sums or count rows
// The number of partial sums or rows that one block processes in the time of a launch. If there are more, several
// blocks share them, and one more launch adds up the totals of these blocks.
constexpr int64_t kLossMostOfBlock = 8192;
constexpr int64_t kLossThreads = 512;

// The workspace of cross-entropy has three arrays: a sum and a count of each block of the kernel over rows (forward
// only), a sum and a count of each block of the next launch, and the gradient that every row of a mean receives (one
// number).
inline size_t loss_sums_bytes(int64_t blocks) { return size_t(blocks) * 16; }
inline size_t loss_device_workspace(const LossProblem& p, int64_t blocks) {
  return loss_sums_bytes(p.direction == LossDirection::forward ? blocks : 0) + loss_sums_bytes(kLossBlocks + 1);
}

inline KernelSpec loss_total_spec(const char* kernel, DType dtype) {
  return {"cuda/loss/generic.cu", cat("minidnn::", kernel, "<", dtype == DType::float64 ? "double" : "float", ">")};
}
inline std::vector<KernelSpec> loss_total_kernels() {
  std::vector<KernelSpec> all;
  for (DType t : {DType::float32, DType::float64})
    for (const char* kernel : {"loss_count", "loss_add_sums"}) all.push_back(loss_total_spec(kernel, t));
  return all;
}

// `spec` is a kernel with the parameters (Params, LossArgs, pointer). With a reduction, the pointer is the address of
// the partial sums of all blocks (forward) or of the gradient that all rows share (backward). Without a reduction, it
// is the address of the losses or gradients of all rows. From sm_90 on, a launch may start before the preceding launch
// ends.
template <class Params>
std::unique_ptr<Plan<LossProblem>> loss_plan(const KernelSpec& spec, const LossProblem& p, const Device& d,
                                             cuda::LaunchConfig over_rows, const Params& params) {
  const bool backward = p.direction == LossDirection::backward, reduced = p.reduction != LossReduction::none;
  const bool early = d.arch >= 90, totals = backward ? p.reduction == LossReduction::mean : reduced;
  auto rows = cuda::load_kernel(spec, d.place.index);
  // `first` is the number of partial sums to add up (forward) or of rows to count (backward).
  const int64_t first = backward ? p.rows() : int64_t(over_rows.grid.x);
  const unsigned blocks = first <= kLossMostOfBlock ? 1u : unsigned(min_of(ceil_div(first, kLossThreads), kLossBlocks));
  std::shared_ptr<const cuda::Kernel> total, count;
  if (totals && (!backward || blocks > 1))
    total = cuda::load_kernel(loss_total_spec("loss_add_sums", p.x.dtype), d.place.index);
  if (totals && backward) count = cuda::load_kernel(loss_total_spec("loss_count", p.x.dtype), d.place.index);
  const size_t first_bytes = loss_sums_bytes(backward ? 0 : int64_t(over_rows.grid.x));
  return make_plan<LossProblem>([=](const LossArgs& a, void* workspace, Stream stream) {
    char* const second = static_cast<char*>(workspace) + first_bytes;
    char* const gradient = second + loss_sums_bytes(kLossBlocks);
    cuda::LaunchConfig config = over_rows;
    if (!backward) cuda::launch(*rows, config, stream, params, a, totals ? workspace : a.loss);
    if (totals) {
      char* const to = blocks > 1 ? second : gradient;
      config.grid = {blocks};
      config.block = {unsigned(kLossThreads)};
      config.programmatic = early && !backward;
      if (backward) cuda::launch(*count, config, stream, p, a, to);
      else cuda::launch(*total, config, stream, p, a, workspace, int32_t(first), to);
      config.grid = {1};
      config.programmatic = early;
      if (blocks > 1) cuda::launch(*total, config, stream, p, a, second, int32_t(blocks), gradient);
    }
    if (!backward) return;
    config = over_rows;
    config.programmatic = early && totals;
    cuda::launch(*rows, config, stream, params, a, totals ? static_cast<void*>(gradient) : a.loss);
  });
}

}  // namespace minidnn
