// SPDX-License-Identifier: Apache-2.0
// cpu.ctc.reference: the formulas of ctc_math.h, for any strides. A thread computes one sequence at a time. The
// exponentials of contiguous rows of float64, which cpu.ctc.vectorized does not support, are vectorised.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/ctc/cpu/vectorized_kernel.h"
#include "cpp/ctc/ctc.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::ctc {
namespace {

struct Team : SingleThread {
  void sync() {}
};

template <class Body> void each(int64_t n, Body body) {
  cpu::parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    Team team;
    for (int64_t i = begin; i < end; ++i) body(i, team);
  });
}

bool has_contiguous_doubles(const TensorDesc& d) { return d.dtype == DType::float64 && d.stride[2] == 1; }

// ctc_row_lse() of ctc_math.h.
template <class Acc> void row_lse(const CtcProblem& p, const CtcArgs& a, int64_t row, Team& team) {
  if constexpr (std::is_same_v<Acc, double>)
    if (has_contiguous_doubles(p.x)) {
      const int64_t t = row / p.batch(), b = row % p.batch();
      if (t >= minidnn::ctc::steps_of(p, a, b)) return;
      const double* x = static_cast<const double*>(a.x) + t * p.x.stride[0] + b * p.x.stride[1];
      static_cast<double*>(a.lse)[row] = ctc_kernels().lse(x, p.classes());
      return;
    }
  ctc_row_lse<Acc>(p, a, row, team);
}
// ctc_backward_row() of ctc_math.h.
template <class Acc>
void backward_row(const CtcProblem& p, const CtcArgs& a, int64_t row, const Acc* gradients, Team& team) {
  if constexpr (std::is_same_v<Acc, double>) {
    const int64_t t = row / p.batch(), b = row % p.batch();
    const bool is_zero = t >= minidnn::ctc::steps_of(p, a, b) || gradients[b] == 0;
    if (!is_zero && has_contiguous_doubles(p.x) && has_contiguous_doubles(p.dx)) {
      const double* x = static_cast<const double*>(a.x) + t * p.x.stride[0] + b * p.x.stride[1];
      double* dx = static_cast<double*>(a.dx) + t * p.dx.stride[0] + b * p.dx.stride[1];
      const double lse = p.logits ? static_cast<const double*>(a.lse)[row] : 0;
      return ctc_kernels().softmax(x, p.classes(), lse, gradients[b], dx);
    }
  }
  ctc_backward_row<Acc>(p, a, row, gradients, team);
}

// The workspace holds the losses or their gradients, and then the scratch memory of backward.
template <class Acc> void compute(const CtcProblem& p, const CtcArgs& a, void* workspace) {
  Team one;
  const int64_t rows = p.steps() * p.batch();
  auto numbers = static_cast<Acc*>(workspace);
  if (p.direction == CtcDirection::forward) {
    const bool reduced = p.reduction != CtcReduction::none;
    Acc* const losses = ctc_losses<Acc>(p, a, workspace);
    if (p.logits) each(rows, [&](int64_t row, Team& team) { row_lse<Acc>(p, a, row, team); });
    each(p.batch(), [&](int64_t b, Team& team) { ctc_forward_sequence<Acc>(p, a, b, losses, team); });
    if (reduced) ctc_total(p, a, losses, one);
    return;
  }
  for (int64_t b = 0; b < p.batch(); ++b)
    numbers[b] = ctc_gradient<Acc>(p, a, minidnn::ctc::sequence(p, a, b, one), one);
  each(rows, [&](int64_t row, Team& team) { backward_row<Acc>(p, a, row, numbers, team); });
  const auto scratch = CtcScratch<Acc>::of(p, numbers + p.batch());
  each(p.batch(), [&](int64_t b, Team& team) {
    ctc_backward_sequence<Acc>(p, a, numbers[b], minidnn::ctc::sequence(p, a, b, team), scratch, team);
  });
}

}  // namespace

struct Reference final : Engine<CtcProblem> {
  std::string name() const override { return "cpu.ctc.reference"; }
  std::string why_not(const CtcProblem&, const Device&) const override { return ""; }
  double estimate_us(const CtcProblem& p, const Device& d) const override {
    const double threads_at_work = std::clamp(double(p.batch()) / std::max(d.sm_count, 1), 0.01, 1.0);
    return roofline_us(ctc_flop(p), ctc_bytes(p), d, 0.13 * threads_at_work);
  }
  size_t workspace_bytes(const CtcProblem& p, const Device&, const Config&) const override {
    const bool wide = p.x.dtype == DType::float64;
    const int64_t scratch = wide ? CtcScratch<double>::bytes(p) : CtcScratch<float>::bytes(p);
    return size_t(p.batch() * itemsize(p.loss.dtype) + (p.direction == CtcDirection::backward ? scratch : 0));
  }
  std::unique_ptr<Plan<CtcProblem>> build(const CtcProblem& p, const Device&, const Config&) const override {
    return make_plan<CtcProblem>([p](const CtcArgs& a, void* workspace, Stream) {
      p.x.dtype == DType::float64 ? compute<double>(p, a, workspace) : compute<float>(p, a, workspace);
    });
  }
};

}  // namespace cpu::ctc

template const Engine<CtcProblem>& engine_object<CtcProblem, cpu::ctc::Reference>();

}  // namespace minidnn
