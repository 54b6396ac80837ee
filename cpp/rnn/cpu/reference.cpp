// SPDX-License-Identifier: Apache-2.0
// cpu.rnn.reference: the formulas of rnn_math.h, step by step, for all options and any strides.
#include "cpp/rnn/cpu/reference.h"

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::rnn {
namespace {

constexpr int kUnits = 8;

// The number of items that are worth a thread: some 20,000 products.
int64_t grain_of(RnnPass pass, const RnnProblem& p, const RnnLayer& l) {
  int64_t products = 1;
  if (pass == RnnPass::forward_unit || pass == RnnPass::forward_candidate)
    products = p.gates() * (p.hidden + p.input_size(l.index));
  if (pass == RnnPass::backward_units || pass == RnnPass::backward_reset || pass == RnnPass::input_gradient)
    products = kUnits * p.gates() * p.hidden;
  if (pass == RnnPass::weight_gradient) products = kUnits * p.rows();
  return ceil_div(int64_t(20000), products);
}

}  // namespace

void run_reference_pass(RnnPass pass, const RnnProblem& p, const RnnLayer& l, int64_t step, int64_t items) {
  cpu::check_interrupt();
  with_floating(p.x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    cpu::parallel_for(items, grain_of(pass, p, l), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) rnn_item<kUnits, T>(pass, p, l, step, i);
    });
  });
}

struct Reference final : Engine<RnnProblem> {
  std::string name() const override { return "cpu.rnn.reference"; }
  std::string why_not(const RnnProblem&, const Device&) const override { return ""; }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    return roofline_us(rnn_flop(p), rnn_bytes(p), d, p.direction == RnnDirection::backward_weights ? 0.02 : 0.1);
  }
  size_t workspace_bytes(const RnnProblem& p, const Device&, const Config&) const override {
    return rnn_workspace_bytes(p);
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device&, const Config&) const override {
    return make_plan<RnnProblem>([p](const RnnArgs& a, void* workspace, Stream) {
      run_rnn_passes(p, a, workspace, kUnits, [&p](RnnPass pass, const RnnLayer& l, int64_t step, int64_t items) {
        run_reference_pass(pass, p, l, step, items);
      });
    });
  }
};

}  // namespace cpu::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cpu::rnn::Reference>();

}  // namespace minidnn
