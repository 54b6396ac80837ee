// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma: implicit GEMM by the tensor-core main loop of sm_90a (cuda/gemm/sm90/kernel.cuh). Pixels are loaded by
// im2col tensor maps, so no im2col matrix is written to memory. x and dy are copied to NHWC if TMA cannot read them in
// place, and filters to a layout in which the summed dimension is contiguous. Results are written in their own layout.
// cuda.conv.wgmma_3xtf32: a float32 product as three TF32 products (three_tf32.h).
// cuda.conv.wgmma_statistics: cuda.conv.wgmma forward, with columns of y added up by each warpgroup as it stores them.
// A reduction then adds the sums of the warpgroups.
#include "cpp/reduce/reduce.h"
#include "cuda/conv/engines.h"
#include "cuda/gemm/sm90/tf32x3/three_tf32.h"

namespace minidnn {
namespace {

// The dimensions in the order {outer, spatial..., inner}.
std::vector<int> order_of(const TensorDesc& d, int outer, int inner) {
  std::vector<int> order{outer};
  for (int i = 2; i < d.rank; ++i) order.push_back(i);
  order.push_back(inner);
  return order;
}

struct Wgmma final : RelayoutEngine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma"; }
  std::string refusal(const ConvProblem& p) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (p.ieee) return "math='ieee' is not supported: float32 is multiplied as TF32";
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
    return "";
  }
  OperandRelayout<ConvProblem> relayout(const ConvProblem& p) const override {
    OperandRelayout<ConvProblem> r{p, {}};
    auto along = [&](TensorDesc ConvProblem::* tensor, const void* ConvArgs::* data, int outer, int inner) {
      if (!fits_tma(p.*tensor, inner)) r.copy(tensor, data, tma_layout(p.*tensor, order_of(p.*tensor, outer, inner)));
    };
    // backward_data sums over filters. In TF32, wgmma needs a w whose filters are contiguous, or one whose channels are
    // contiguous if it reads w into registers. The latter suits a dx whose channels are contiguous.
    bool by_filter = false;
    if (p.direction == ConvDirection::backward_data) {
      const int64_t channels = p.x.shape[1], tiles_of_128 = ceil_div(channels, int64_t(128));
      const double flop = 2.0 * double(p.y.numel()) * double(p.w.numel() / p.w.shape[0]);
      if (operand_dtype(p) == DType::float32) by_filter = channels > 1 && p.x.stride[1] != 1;
      // Tiles of 160 channels need contiguous filters too. The copy is worthwhile where tiles of 128 would be a sixth
      // empty.
      else by_filter = channels % 160 == 0 && double(tiles_of_128 * 128) > 1.15 * double(channels) && flop > 4e10;
    }
    if (p.direction != ConvDirection::backward_data) along(&ConvProblem::x, &ConvArgs::x, 0, 1);
    if (p.direction != ConvDirection::forward) along(&ConvProblem::y, &ConvArgs::dy, 0, 1);
    if (p.direction != ConvDirection::backward_filter) along(&ConvProblem::w, &ConvArgs::w, by_filter, !by_filter);
    return r;
  }
  GemmArgs product_args(const ConvProblem& p, const ConvArgs& a) const override { return gemm_args(p, a); }
  std::vector<KernelSpec> kernels() const override { return sm90_kernels(true); }
};

const Wgmma& wgmma() {
  static const Wgmma engine;
  return engine;
}

// The summed dimension of the operands (channels, filters or images) is three times as long.
struct ThreeTf32 final : ThreeTf32Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma_3xtf32"; }
  const RelayoutEngine<ConvProblem>& plain() const override { return wgmma(); }
  bool convolves() const override { return true; }
  std::string refusal(const ConvProblem& p) const override {
    if (p.groups > 1 && p.direction != ConvDirection::backward_filter)
      return cat("supports groups > 1 in backward_filter only; got groups=", p.groups);
    return ThreeTf32Engine::refusal(p);
  }
  std::array<Operand, 2> operands(const ConvProblem& p) const override {
    const Operand x{&ConvProblem::x, &ConvArgs::x, p.direction == ConvDirection::forward},
        w{&ConvProblem::w, &ConvArgs::w, p.direction == ConvDirection::forward},
        dy{&ConvProblem::y, &ConvArgs::dy, p.direction == ConvDirection::backward_data};
    if (p.direction == ConvDirection::forward) return {x, w};
    if (p.direction == ConvDirection::backward_data) return {dy, w};
    return {dy, x};
  }
};

struct WgmmaStatistics final : Engine<ConvStatisticsProblem> {
  using Problem = ConvStatisticsProblem;

  static GemmTask task_of(const OperandRelayout<ConvProblem>& r) {
    GemmTask task = gemm_task(r.problem);
    task.sums = true;
    return task;
  }
  static size_t sums_bytes(const ReduceProblem& r) { return size_t(r.x.numel()) * sizeof(float); }
  static ReduceProblem reduction(const ConvProblem& p, const GemmTask& task, const Config& config) {
    const int64_t rows = sm90_sums(task, config), columns = 2 * p.y.shape[1];
    ReduceProblem r{.mode = ReduceMode::sum, .axes = 1};
    r.x = dense(DType::float32, {{rows, columns}}, Layout::channels_first, "conv: statistics");
    r.y = dense(DType::float32, {{columns}}, Layout::channels_first, "conv: statistics");
    return r;
  }

  std::string name() const override { return "cuda.conv.wgmma_statistics"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const Problem& p, const Device& d) const override {
    std::string why = wgmma().refusal(p);
    return why.empty() ? sm90_why_not(task_of(wgmma().relayout(p)), d) : why;
  }
  double estimate_us(const Problem& p, const Device& d) const override {
    const OperandRelayout<ConvProblem> r = wgmma().relayout(p);
    const GemmTask task = task_of(r);
    return sm90_estimate_us(task, d) + r.copies_us(d) +
           choose_on(d, reduction(p, task, configs(p, d).front())).estimate_us;
  }
  std::vector<Config> configs(const Problem& p, const Device& d) const override {
    return sm90_configs(task_of(wgmma().relayout(p)), d);
  }
  // The workspace holds copies, the sums of the warpgroups, then the workspace of the reduction.
  size_t workspace_bytes(const Problem& p, const Device& d, const Config& config) const override {
    const OperandRelayout<ConvProblem> r = wgmma().relayout(p);
    const ReduceProblem sums = reduction(p, task_of(r), config);
    return r.bytes + sums_bytes(sums) + choose_on(d, sums).workspace_bytes;
  }
  std::unique_ptr<Plan<Problem>> build(const Problem& p, const Device& d, const Config& config) const override {
    const OperandRelayout<ConvProblem> r = wgmma().relayout(p);
    const GemmTask task = task_of(r);
    const ReduceProblem sums = reduction(p, task, config);
    std::shared_ptr<const Plan<ReduceProblem>> reduce = plan_on(d, sums).plan;
    std::shared_ptr<const GemmPlan> product = sm90_plan(task, d, config);
    std::shared_ptr<const Plan<ConvProblem>> conv =
        plan_after_copies(r, d, [product, problem = r.problem](const ConvArgs& a, void* sums, Stream stream) {
          GemmArgs args = gemm_args(problem, a);
          args.sums = static_cast<float*>(sums);
          product->run(args, nullptr, stream);
        });
    return make_plan<Problem>([reduce, conv, at = r.bytes, bytes = sums_bytes(sums)](const ConvStatisticsArgs& a,
                                                                                     void* workspace, Stream stream) {
      conv->run(a, workspace, stream);
      char* const rows = static_cast<char*>(workspace) + at;
      reduce->run({rows, a.sums}, rows + bytes, stream);
    });
  }
  std::vector<KernelSpec> kernels() const override { return sm90_kernels_with_sums(); }
};

}  // namespace

const Engine<ConvProblem>& conv_wgmma() { return wgmma(); }
const Engine<ConvProblem>& conv_wgmma_3xtf32() {
  static const ThreeTf32 engine;
  return engine;
}
const Engine<ConvStatisticsProblem>& conv_wgmma_statistics() {
  static const WgmmaStatistics engine;
  return engine;
}

}  // namespace minidnn
