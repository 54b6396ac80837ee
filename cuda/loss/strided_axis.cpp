// SPDX-License-Identifier: Apache-2.0
// cuda.loss.strided_axis is the engine for cross-entropy whose classes are not the innermost dimension. A thread reads
// four neighbouring rows once.
#include "cpp/engine/engine_object.h"
#include "cpp/loss/loss.h"
#include "cuda/loss/launches.h"
#include "cuda/loss/loss_params.h"

namespace minidnn {
namespace cuda::loss {
namespace {

constexpr int64_t kWidth = kLossColumnsWidth;

int64_t inner_of(const LossProblem& p) {
  int64_t inner = 1;
  for (int i = int(p.axis) + 1; i < p.x.rank; ++i) inner *= p.x.shape[i];
  return inner;
}

int64_t blocks_of(const LossProblem& p) { return ceil_div<int64_t>(p.rows() / kWidth, kLossColumnsThreads); }

}  // namespace

struct StridedAxis final : Engine<LossProblem> {
  std::string name() const override { return "cuda.loss.strided_axis"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LossProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.direction == LossDirection::backward && !is_row_major(p.dx)) return "needs a row-major dx";
    if (!is_row_major(p.x) || !is_row_major(p.target)) return "needs a row-major x and target";
    const int64_t bytes = kWidth * int64_t(itemsize(p.x.dtype)), inner = inner_of(p);
    if (p.alignment < bytes) return cat("needs tensors aligned to ", bytes, " bytes; got ", p.alignment);
    if (inner % kWidth != 0)
      return cat("needs a multiple of ", kWidth, " elements in the dimensions after axis; got ", inner);
    if (p.rows() == 0 || p.cols() > 1 << 30)
      return cat("needs at least one row, of at most 2^30 classes; got ", p.rows(), " rows of ", p.cols(), " classes");
    if (p.rows() / kWidth > INT32_MAX)
      return cat("supports at most 2^31 - 1 groups of four rows; got ", p.rows() / kWidth);
    return "";
  }
  // The estimate of the time is a guess: 0.85 of the copy rate if the threads fill the GPU. With few rows, a thread
  // takes about a quarter of a microsecond per class.
  double estimate_us(const LossProblem& p, const Device& d) const override {
    const double filled = std::clamp(double(p.rows()) / double(kWidth) / (1024.0 * d.sm_count), 1e-4, 1.0);
    return 3 + std::max(roofline_us(0, loss_bytes(p), d, 0.85 * filled), 0.25 * double(p.cols()));
  }
  size_t workspace_bytes(const LossProblem& p, const Device&, const Config&) const override {
    return loss_device_workspace(p, blocks_of(p));
  }
  KernelSpec spec(DType dtype, LossDirection direction) const {
    const bool forward = direction == LossDirection::forward;
    return {"cuda/loss/strided_axis.cu",
            cat("minidnn::loss_columns_", forward ? "forward" : "backward", "<", cuda_name(dtype), ">")};
  }
  std::unique_ptr<Plan<LossProblem>> build(const LossProblem& p, const Device& d, const Config&) const override {
    LossColumns params;
    params.inner = inner_of(p);
    params.strips_of_inner = FastDivmod(params.inner / kWidth);
    params.strips = uint32_t(p.rows() / kWidth);
    params.classes = int32_t(p.cols());
    params.ignore_index = p.ignore_index;
    params.narrow_target = p.target.dtype == DType::int32;
    params.smoothed = int32_t(p.smoothed);
    params.reduced = p.reduction != LossReduction::none;
    if (p.direction == LossDirection::forward) params.policy = policy_of_once(loss_bytes(p), d.l2_bytes);
    cuda::LaunchConfig config;
    config.block = {unsigned(kLossColumnsThreads)};
    config.grid = {unsigned(blocks_of(p))};
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

template const Engine<LossProblem>& engine_object<LossProblem, cuda::loss::StridedAxis>();

}  // namespace minidnn
