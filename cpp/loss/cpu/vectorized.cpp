// SPDX-License-Identifier: Apache-2.0
// cpu.loss.vectorized: cross-entropy over contiguous rows of classes, with the vectorised loops of vectorized_isa.cpp.
// Threads share the rows.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/loss/cpu/targets.h"
#include "cpp/loss/cpu/vectorized_kernel.h"
#include "cpp/loss/loss.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::loss {
namespace {

constexpr int64_t kGrain = 8192;  // the least number of elements that one thread processes

}  // namespace

struct Vectorized final : Engine<LossProblem> {
  std::string name() const override { return "cpu.loss.vectorized"; }
  std::string why_not(const LossProblem& p, const Device&) const override {
    const auto contiguous = [&](const TensorDesc& d) { return p.cols() == 1 || d.stride[p.axis] == 1; };
    if (!contiguous(p.x)) return "needs contiguous rows of classes";
    return p.direction == LossDirection::forward || contiguous(p.dx) ? "" : "needs contiguous rows of dx";
  }
  // The estimate assumes a lower speed for short rows, because starting the loops takes as long as 70 classes.
  double estimate_us(const LossProblem& p, const Device& d) const override {
    const double threads_at_work = std::clamp(double(p.rows()) / std::max(d.sm_count, 1), 0.01, 1.0);
    const double useful = double(p.cols()) / double(p.cols() + 70), narrow = p.x.dtype == DType::float64 ? 0.4 : 1;
    return roofline_us(loss_flop(p), loss_bytes(p), d, 2 * useful * narrow * threads_at_work);
  }
  size_t workspace_bytes(const LossProblem& p, const Device&, const Config&) const override {
    return loss_workspace(p);
  }
  std::unique_ptr<Plan<LossProblem>> build(const LossProblem& p, const Device&, const Config&) const override {
    const LossForwardLoop forward = loss_kernels().forward[int64_t(p.x.dtype)];
    const LossBackwardLoop backward = loss_kernels().backward[int64_t(p.x.dtype)];
    const bool non_temporal = cpu::non_temporal(double(p.x.numel() * itemsize(p.x.dtype)));
    const bool reduced = p.reduction != LossReduction::none;
    return make_plan<LossProblem>([=](const LossArgs& a, void* workspace, Stream) {
      const int64_t grain = ceil_div(cpu::work_size(kGrain), p.cols());
      if (p.direction == LossDirection::forward) {
        void* const losses = reduced ? workspace : a.loss;
        cpu::parallel_for(p.rows(), grain, [&](int64_t begin, int64_t end) { forward(p, a, losses, begin, end); });
        if (reduced) write_total(p, a, losses, p.rows());
        return;
      }
      RowGradient scaled;
      const void* const gradient = row_gradient(p, a, scaled);
      cpu::parallel_for(p.rows(), grain,
                        [&](int64_t begin, int64_t end) { backward(p, a, gradient, non_temporal, begin, end); });
    });
  }
};

}  // namespace cpu::loss

template const Engine<LossProblem>& engine_object<LossProblem, cpu::loss::Vectorized>();

}  // namespace minidnn
