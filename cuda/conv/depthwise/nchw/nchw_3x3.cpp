// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/group_conv.h"
#include "cuda/conv/depthwise/nchw/nchw.h"

namespace minidnn::cuda::conv {

std::optional<Nchw3x3Tiling> nchw_3x3_tiling(const ConvProblem& problem, const Device& d) {
  Nchw3x3Tiling l;
  l.p = group_conv_params(problem);
  const GroupConv& p = l.p;
  if (!is_3x3(problem, p, false) || p.in_channels != 1 || p.out_channels != 1 || p.in.column != 1 ||
      p.out.column != 1 || p.width.pad != 1 || p.width.in % 4 || p.width.out % 4)
    return {};
  Nchw3x3& b = l.block;
  b.images = int32_t(problem.y.shape[0]);
  b.spans = FastDivmod(ceil_div(p.width.out, 4 * kQuadsOfSpan));
  b.strips = FastDivmod(ceil_div(p.height.out, kRowsOfStrip));
  b.channels = FastDivmod(p.groups);
  const double items = 32.0 * b.spans.divisor * b.strips.divisor * p.groups * b.images;
  if (items > 4.0 * kThreadsOfStrips * d.sm_count) return {};
  set_blocks(l, ceil_div(int64_t(items), int64_t(kThreadsOfStrips)), kThreadsOfStrips, 300, 64);
  return l;
}

std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem& problem, const Nchw3x3Tiling& tiling,
                                                   const Device& d) {
  Nchw3x3Tiling l = tiling;
  const auto [kernel, config] = load(nchw_3x3_kernel(operand_dtype(problem)), problem, l, d);
  const bool backward = problem.direction == ConvDirection::backward_data;
  return make_plan<ConvProblem>([=](const ConvArgs& a, void*, Stream stream) {
    launch(*kernel, config, stream, l.p, l.block, backward ? a.dy : a.x, a.w, a.bias, a.residual, a.out,
           float(a.activation_alpha));
  });
}

KernelSpec nchw_3x3_kernel(DType t) {
  return {"cuda/conv/depthwise/nchw/nchw_3x3.cu", cat("minidnn::conv_nchw_3x3<", cuda_name(t), ">")};
}

}  // namespace minidnn::cuda::conv
