// SPDX-License-Identifier: Apache-2.0
// Two convolution methods that sum a tensor per channel, over all other dimensions. The sums are computed by engines of
// the family reduce. Each method has a CPU engine and a CUDA engine, which derive from a base class in this file.
//   {cpu,cuda}.conv.bias_reduction      computes db, the sum of dy per channel
//   {cpu,cuda}.conv.unfused_statistics  computes y with any forward engine, then reads y again and sums y and y^2
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cpp/reduce/reduce.h"

namespace minidnn {

inline ReduceProblem channel_sums(const TensorDesc& of, ReduceMode mode, int64_t alignment, DType to,
                                  int64_t stride = 1) {
  ReduceProblem r{.mode = mode, .axes = ((int64_t(1) << of.rank) - 1) & ~int64_t(2), .alignment = alignment};
  r.x = of;
  r.y.dtype = to;
  r.y.rank = 1;
  r.y.shape[0] = of.shape[1];
  r.y.stride[0] = stride;
  return r;
}

struct BiasReductionEngine : Engine<ConvProblem> {
  static ReduceProblem sum_of(const ConvProblem& p) {
    return channel_sums(p.y, ReduceMode::sum, p.alignment, p.y.dtype, p.bias_stride);
  }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    return p.direction == ConvDirection::backward_bias ? "" : "supports backward_bias only";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return choose_on(d, sum_of(p)).estimate_us;
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return choose_on(d, sum_of(p)).workspace_bytes;
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return make_plan<ConvProblem>(
        [sum = plan_on(d, sum_of(p)).plan](const ConvArgs& a, void* workspace, Stream stream) {
          sum->run({a.dy, a.out}, workspace, stream);
        });
  }
};

struct UnfusedStatisticsEngine : Engine<ConvStatisticsProblem> {
  static ReduceProblem sum_of(const ConvProblem& p, ReduceMode mode) {
    return channel_sums(p.y, mode, p.alignment, sum_dtype(p.y.dtype));
  }
  std::string why_not(const ConvStatisticsProblem&, const Device&) const override { return ""; }
  double estimate_us(const ConvStatisticsProblem& p, const Device& d) const override {
    return choose_on<ConvProblem>(d, p).estimate_us + choose_on(d, sum_of(p, ReduceMode::sum)).estimate_us +
           choose_on(d, sum_of(p, ReduceMode::sumsq)).estimate_us;
  }
  size_t workspace_bytes(const ConvStatisticsProblem& p, const Device& d, const Config&) const override {
    return std::max({choose_on<ConvProblem>(d, p).workspace_bytes,
                     choose_on(d, sum_of(p, ReduceMode::sum)).workspace_bytes,
                     choose_on(d, sum_of(p, ReduceMode::sumsq)).workspace_bytes});
  }
  std::unique_ptr<Plan<ConvStatisticsProblem>> build(const ConvStatisticsProblem& p, const Device& d,
                                                     const Config&) const override {
    const auto conv = plan_on<ConvProblem>(d, p).plan;
    const auto sum = plan_on(d, sum_of(p, ReduceMode::sum)).plan,
               squares = plan_on(d, sum_of(p, ReduceMode::sumsq)).plan;
    const size_t of_sum = size_t(p.y.shape[1]) * itemsize(sum_dtype(p.y.dtype));
    return make_plan<ConvStatisticsProblem>([=](const ConvStatisticsArgs& a, void* workspace, Stream stream) {
      conv->run(a, workspace, stream);
      sum->run({a.out, a.sums}, workspace, stream);
      squares->run({a.out, static_cast<char*>(a.sums) + of_sum}, workspace, stream);
    });
  }
};

}  // namespace minidnn
