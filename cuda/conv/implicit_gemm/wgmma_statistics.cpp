// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma_statistics: an engine that runs the forward kernel of cuda.conv.wgmma, and also sums y and y^2 over
// each channel. While a warpgroup stores rows of y (pixels), it adds up these rows for each column (channel). A
// reduction then adds the sums of all warpgroups.
#include "cpp/engine/engine_object.h"
#include "cpp/reduce/reduce.h"
#include "cuda/conv/implicit_gemm/wgmma.h"

namespace minidnn {
namespace cuda::conv {

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
  // The workspace: copies of operands, sums of the warpgroups, workspace of the reduction.
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

}  // namespace cuda::conv

template const Engine<ConvStatisticsProblem>& engine_object<ConvStatisticsProblem, cuda::conv::WgmmaStatistics>();

}  // namespace minidnn
