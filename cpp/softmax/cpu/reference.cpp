// SPDX-License-Identifier: Apache-2.0
// cpu.softmax.reference: the formulas of softmax_math.h, for any axis and strides. A thread computes one row at a time.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/softmax/softmax.h"

namespace minidnn {
namespace cpu::softmax {
namespace {

constexpr int64_t kGrain = 4096;  // the least number of elements that one thread processes

template <class T, SoftmaxDirection direction, bool log>
void compute(const SoftmaxProblem& p, const SoftmaxArgs& a) {
  cpu::parallel_for(p.rows(), ceil_div(kGrain, p.cols()), [&](int64_t begin, int64_t end) {
    SingleThread team;
    for (int64_t row = begin; row < end; ++row) softmax_row<T, direction, log>(p, a, row, team);
  });
}

template <class T, SoftmaxDirection direction>
void compute(const SoftmaxProblem& p, const SoftmaxArgs& a) {
  p.log ? compute<T, direction, true>(p, a) : compute<T, direction, false>(p, a);
}

}  // namespace

struct Reference final : Engine<SoftmaxProblem> {
  std::string name() const override { return "cpu.softmax.reference"; }
  std::string why_not(const SoftmaxProblem&, const Device&) const override { return ""; }
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    double threads_at_work = std::min(1.0, double(p.rows()) / std::max(d.sm_count, 1));
    return roofline_us(softmax_flop(p), softmax_bytes(p), d, 0.2 * threads_at_work);
  }
  std::unique_ptr<Plan<SoftmaxProblem>> build(const SoftmaxProblem& p, const Device&, const Config&) const override {
    return make_plan<SoftmaxProblem>([p](const SoftmaxArgs& a, void*, Stream) {
      with_floating(p.in.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        if (p.direction == SoftmaxDirection::forward) compute<T, SoftmaxDirection::forward>(p, a);
        else compute<T, SoftmaxDirection::backward>(p, a);
      });
    });
  }
};

}  // namespace cpu::softmax

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cpu::softmax::Reference>();

}  // namespace minidnn
