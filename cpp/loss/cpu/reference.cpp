// SPDX-License-Identifier: Apache-2.0
// cpu.loss.reference: the formulas of loss_math.h, for any axis and strides. A thread computes one row of classes at a
// time.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/loss/loss.h"

namespace minidnn {
namespace cpu::loss {
namespace {

constexpr int64_t kGrain = 4096;  // the least number of elements that one thread processes

template <class Body> void each_row(const LossProblem& p, Body body) {
  cpu::parallel_for(p.rows(), ceil_div(kGrain, p.cols()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

template <class T> void forward(const LossProblem& p, const LossArgs& a, void* workspace) {
  using Acc = Accumulator<T>;
  SingleThread team;
  const bool reduced = p.reduction != LossReduction::none;
  auto losses = static_cast<Acc*>(reduced ? workspace : a.loss);
  if (p.rows())
    each_row(p, [&](int64_t row) {
      SingleThread alone;
      loss_forward_row<T>(p, a, row, alone, [&](Acc loss, bool) { losses[row] = loss; });
    });
  if (reduced) loss_total(p, a, losses, team);
}

template <class T> void backward(const LossProblem& p, const LossArgs& a) {
  using Acc = Accumulator<T>;
  SingleThread team;
  auto gradient = static_cast<const Acc*>(a.loss);
  Acc row_gradient = *gradient;
  if (p.reduction == LossReduction::mean) {
    row_gradient /= loss_count<Acc>(p, a, team);
    gradient = &row_gradient;
  }
  each_row(p, [&](int64_t row) {
    SingleThread alone;
    loss_backward_row<T>(p, a, row, gradient, alone);
  });
}

}  // namespace

struct Reference final : Engine<LossProblem> {
  std::string name() const override { return "cpu.loss.reference"; }
  std::string why_not(const LossProblem&, const Device&) const override { return ""; }
  double estimate_us(const LossProblem& p, const Device& d) const override {
    double threads_at_work = std::clamp(double(p.rows()) / std::max(d.sm_count, 1), 0.01, 1.0);
    return roofline_us(loss_flop(p), loss_bytes(p), d, 0.08 * threads_at_work);
  }
  size_t workspace_bytes(const LossProblem& p, const Device&, const Config&) const override {
    return loss_workspace(p);
  }
  std::unique_ptr<Plan<LossProblem>> build(const LossProblem& p, const Device&, const Config&) const override {
    return make_plan<LossProblem>([p](const LossArgs& a, void* workspace, Stream) {
      with_floating(p.x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        p.direction == LossDirection::forward ? forward<T>(p, a, workspace) : backward<T>(p, a);
      });
    });
  }
};

}  // namespace cpu::loss

template const Engine<LossProblem>& engine_object<LossProblem, cpu::loss::Reference>();

}  // namespace minidnn
