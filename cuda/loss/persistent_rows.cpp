// SPDX-License-Identifier: Apache-2.0
// cuda.loss.persistent_rows is the engine for cross-entropy whose classes are the innermost dimension. A few lanes of a
// warp, or a block, read each row once.
#include <bit>

#include "cpp/engine/engine_object.h"
#include "cpp/loss/loss.h"
#include "cuda/loss/launches.h"
#include "cuda/loss/loss_params.h"
#include "cuda/rows/launch.h"

namespace minidnn {
namespace cuda::loss {
namespace {

constexpr int64_t kFewestLanes = 8;  // Eight lanes with 16-byte vectors read a whole cache line of 128 bytes.
// In forward, a team of threads loads its next row while it computes the current one, so it should have several rows.
// But with fewer than kBlocksOfSm blocks per SM, some SMs would be idle at the end.
constexpr int64_t kBlocksOfSm = 24, kMostRowsOfTeam = 8;

int64_t blocks_of(const LossRows& t) { return ceil_div(rows::blocks_of(t.shape), int64_t(t.rows_per_team)); }

LossRows params_of(const LossProblem& p, const Device& d) {
  const bool backward = p.direction == LossDirection::backward;
  const int64_t width = 16 / itemsize(p.x.dtype);
  LossRows t;
  t.shape = rows::shape_of(p.rows(), p.cols(), width, kLossVectors, 1);
  const int64_t wanted = ceil_div(rows::vectors_of(p.cols(), width), int64_t(kLossVectors));
  if (wanted > rows::kBlock) {
    t.shape.threads = rows::kBlock;
    t.shape.chunks = backward ? int32_t(ceil_div<int64_t>(wanted, rows::kBlock)) : 1;
  }
  // A row gets no more lanes than are necessary to fill the GPU, because joining the results of lanes takes time.
  if (!backward) {
    const int64_t enough = ceil_div(int64_t(4096) * d.sm_count, max_of(p.rows(), int64_t(1)));
    const int64_t few = max_of(int64_t(std::bit_ceil(uint64_t(enough))), kFewestLanes);
    if (few <= rows::kMaxSharedThreads) t.shape.set_threads(min_of(t.shape.threads, int32_t(few)));
    t.steps = int32_t(ceil_div(rows::vectors_of(p.cols(), width), int64_t(kLossVectors) * t.shape.threads));
    const int64_t blocks = rows::blocks_of(t.shape), fewest = int64_t(kBlocksOfSm) * d.sm_count;
    t.rows_per_team = int32_t(std::clamp<int64_t>(blocks / fewest, 1, kMostRowsOfTeam));
    t.policy = policy_of_once(loss_bytes(p), d.l2_bytes);
    t.row_step = blocks_of(t) * (rows::block_of(t.shape) / t.shape.threads);
  }
  t.ignore_index = p.ignore_index;
  t.narrow_target = p.target.dtype == DType::int32;
  t.smoothed = int32_t(p.smoothed);
  t.reduced = p.reduction != LossReduction::none;
  return t;
}

}  // namespace

struct PersistentRows final : Engine<LossProblem> {
  std::string name() const override { return "cuda.loss.persistent_rows"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LossProblem& p, const Device& d) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.direction == LossDirection::backward && !same_strides(p.x, p.dx)) return "needs dx with the strides of x";
    if (!loss_rows_in_order(p)) return "needs contiguous rows of classes, in the order of a row-major target";
    if (p.alignment < 16) return cat("needs tensors aligned to 16 bytes; got ", p.alignment);
    if (p.cols() > 1 << 30) return cat("supports at most 2^30 classes; got ", p.cols());
    const int64_t blocks = blocks_of(params_of(p, d));
    if (blocks > INT32_MAX) return cat("supports at most 2^31 - 1 blocks; got ", blocks);
    return "";
  }
  // The estimate of the time is a guess: 0.88 of the copy rate. The rate is lower if rows have fewer than 64 bytes, or
  // if there are too few rows to fill the GPU.
  double estimate_us(const LossProblem& p, const Device& d) const override {
    const LossRows t = params_of(p, d);
    const double useful = std::min(1.0, double(p.cols()) * double(itemsize(p.x.dtype)) / 64);
    const double filled = std::clamp(double(blocks_of(t) * rows::block_of(t.shape)) / (512.0 * d.sm_count), 1e-3, 1.0);
    return 3 + roofline_us(0, loss_bytes(p), d, 0.88 * useful * filled);
  }
  size_t workspace_bytes(const LossProblem& p, const Device& d, const Config&) const override {
    return loss_device_workspace(p, blocks_of(params_of(p, d)));
  }
  KernelSpec spec(DType dtype, LossDirection direction) const {
    const bool forward = direction == LossDirection::forward;
    return {"cuda/loss/persistent_rows.cu",
            cat("minidnn::loss_rows_", forward ? "forward" : "backward", "<", cuda_name(dtype), ">")};
  }
  std::unique_ptr<Plan<LossProblem>> build(const LossProblem& p, const Device& d, const Config&) const override {
    const LossRows params = params_of(p, d);
    const cuda::LaunchConfig config = rows::launch_config(params.shape, blocks_of(params));
    return loss_plan(spec(p.x.dtype, p.direction), p, d, config, params);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = loss_total_kernels();
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (auto direction : {LossDirection::forward, LossDirection::backward}) all.push_back(spec(t, direction));
    return all;
  }
};

}  // namespace cuda::loss

template const Engine<LossProblem>& engine_object<LossProblem, cuda::loss::PersistentRows>();

}  // namespace minidnn
