// SPDX-License-Identifier: Apache-2.0
// cuda.rnn.stepwise_gemm: for each step, a matrix product by w_hh for each direction, and a kernel for the gates. For all
// types and sizes.
#include <algorithm>

#include "cpp/engine/engine_object.h"
#include "cuda/rnn/generic.h"
#include "cuda/rnn/products.h"
#include "cuda/rnn/stepwise_gemm_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::rnn {
namespace {

KernelSpec spec(const char* kernel, DType type) {
  return {"cuda/rnn/stepwise_gemm.cu", cat("minidnn::", kernel, "<", cuda_name(type), ">")};
}

// The product of a step for one direction.
Product step_product(const RnnProblem& p, const Device& d) {
  const int64_t gates = p.gates() * p.hidden;
  const DType type = p.x.dtype, sums = sum_dtype(type);
  if (p.direction == RnnDirection::forward)
    return {p, d, matrix(type, p.batch, p.hidden, p.hidden), matrix(type, p.hidden, gates, 1, p.hidden),
            matrix(sums, p.batch, gates, gates)};
  return {p, d, matrix(type, p.batch, gates, gates), matrix(type, gates, p.hidden, p.hidden),
          matrix(sums, p.batch, p.hidden, p.hidden)};
}

// Elements of the operand and of the result of the product of a step, for one direction.
struct StepSizes {
  int64_t operand, result;
  explicit StepSizes(const RnnProblem& p) : operand(p.batch * p.hidden), result(p.gates() * p.batch * p.hidden) {
    if (p.direction != RnnDirection::forward) std::swap(operand, result);
  }
};

struct Workspace : WorkspaceParts {
  size_t scratch_at = 0, sums_at = 0, state_at = 0, operand_at = 0;

  Workspace(const RnnProblem& p, const InputProducts& inputs, const Product& step) {
    const StepSizes sizes(p);
    add(rnn_workspace_bytes(p));
    scratch_at = add(std::max(inputs.workspace_bytes(), step.choice.workspace_bytes));
    sums_at = add(inputs.sums_bytes());
    state_at = add(size_t(p.directions * sizes.result) * itemsize(sum_dtype(p.x.dtype)));
    operand_at = add(size_t(p.directions * sizes.operand) * itemsize(p.x.dtype));
  }
};

struct StepwisePlan final : Plan<RnnProblem> {
  RnnProblem p;
  InputProducts inputs;
  Product product;
  Workspace at;
  GenericPasses passes;
  std::shared_ptr<const Kernel> first, step;
  LaunchConfig first_config, config;

  StepwisePlan(const RnnProblem& problem, const Device& d)
      : p(problem), inputs(p, d), product(step_product(p, d)), at(p, inputs, product), passes(p, d, is_generic) {
    const bool forward = p.direction == RnnDirection::forward;
    inputs.build();
    product.build(d);
    if (forward) first = load_kernel(spec("rnn_first_states", p.x.dtype), d.place.index);
    step = load_kernel(spec(forward ? "rnn_step_forward" : "rnn_step_backward", p.x.dtype), d.place.index);
    first_config = elementwise_launch(p.directions * p.batch * p.hidden, d);
    const unsigned sequences = unsigned(std::min<int64_t>(p.batch, 65535));
    config.grid = {unsigned(ceil_div(p.hidden, int64_t(256))), sequences, unsigned(p.directions)};
    config.block = {unsigned(std::min<int64_t>(round_up(p.hidden, int64_t(32)), 256))};
  }
  static bool is_generic(RnnPass pass) {
    return pass != RnnPass::forward_unit && pass != RnnPass::backward_units && pass != RnnPass::input_gradient;
  }

  void run_product(const RnnLayer& l, const RnnStepSums& s, void* scratch, Stream stream) const {
    const StepSizes sizes(p);
    const size_t operand = size_t(sizes.operand) * itemsize(p.x.dtype);
    const size_t result = size_t(sizes.result) * itemsize(sum_dtype(p.x.dtype));
    for (int64_t d = 0; d < p.directions; ++d)
      product.run(static_cast<char*>(s.operand) + size_t(d) * operand, l.weights[d][kHiddenWeight],
                  static_cast<char*>(s.of_state) + size_t(d) * result, false, scratch, stream);
  }
  void run(const RnnArgs& a, void* workspace, Stream stream) const override {
    char* const bytes = static_cast<char*>(workspace);
    void *const scratch = bytes + at.scratch_at, *const sums = bytes + at.sums_at;
    RnnStepSums s;
    s.input = sums;
    s.of_state = bytes + at.state_at;
    s.operand = bytes + at.operand_at;
    run_rnn_passes(p, a, workspace, 1, [&](RnnPass pass, const RnnLayer& l, int64_t n, int64_t items) {
      if (is_generic(pass)) return passes.launch(pass, l, n, items, stream);
      if (pass == RnnPass::input_gradient) return inputs.run_backward(l, sums, scratch, stream);
      if (pass == RnnPass::forward_unit && n == 0) {
        const InputProducts::Rows rows = inputs.rows_of(l);
        s.input_step = rows.step;
        s.input_row = rows.row;
        inputs.run_forward(l, sums, scratch, stream);
        launch(*first, first_config, stream, p, l, s, items);
      }
      if (pass == RnnPass::forward_unit || n < p.steps - 1) run_product(l, s, scratch, stream);
      launch(*step, config, stream, p, l, s, n);
    });
  }
};

}  // namespace

struct StepwiseGemm final : Engine<RnnProblem> {
  std::string name() const override { return "cuda.rnn.stepwise_gemm"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RnnProblem& p, const Device&) const override {
    if (p.direction == RnnDirection::backward_weights) return "it computes no gradients of weights";
    if (p.reset_before) return "it is for GRUs with reset_after";
    if (!MatrixRows(p, p.x).exist) return "the rows of x or dx are not those of a matrix";
    return "";
  }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    const double steps = double(p.layers) * double(p.steps);
    const double product = step_product(p, d).choice.estimate_us;
    return InputProducts(p, d).estimate_us() + steps * (3 + double(p.directions) * product);
  }
  size_t workspace_bytes(const RnnProblem& p, const Device& d, const Config&) const override {
    return Workspace(p, InputProducts(p, d), step_product(p, d)).bytes;
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<StepwisePlan>(p, d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = InputProducts::kernels(kFloatingDTypes);
    for (DType t : kFloatingDTypes)
      for (const char* kernel : {"rnn_first_states", "rnn_step_forward", "rnn_step_backward"})
        all.push_back(spec(kernel, t));
    return all;
  }
};

}  // namespace cuda::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cuda::rnn::StepwiseGemm>();

}  // namespace minidnn
