// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/group_conv.h"
#include "cuda/conv/depthwise/nhwc/nhwc.h"

namespace minidnn::cuda::conv {

std::optional<Nhwc3x3Tiling> nhwc_3x3_tiling(const ConvProblem& problem, bool grouped, const Device& d) {
  Nhwc3x3Tiling l;
  l.p = group_conv_params(problem);
  l.grouped = grouped;
  const GroupConv& p = l.p;
  const int64_t of_group = grouped ? 4 : 1, channels = int64_t(p.groups) * p.out_channels;
  if (!is_3x3(problem, p, true) || p.in_channels != of_group || p.out_channels != of_group || channels % 4 ||
      p.in.channel != 1 || p.out.channel != 1)
    return {};
  Nhwc3x3& b = l.block;
  b.images = int32_t(problem.y.shape[0]);
  const int64_t quads = grouped ? kQuadsOfChannelTile : channels / 4, channel_tiles = ceil_div(channels / 4, quads);
  b.quads = FastDivmod(quads);
  b.channel_tiles = FastDivmod(channel_tiles);
  b.spans = FastDivmod(ceil_div(p.width.out, kColumnsOfRows));
  // Chooses the number of strips (rows of one thread) with the least estimated time. More strips keep more SMs busy,
  // but adjacent strips read the same two rows.
  Nhwc3x3Tiling best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t strips = 1; strips <= 64 && strips <= p.height.out; ++strips) {
    b.rows = int32_t(ceil_div<int64_t>(p.height.out, strips));
    b.strips = FastDivmod(ceil_div(p.height.out, b.rows));
    const double items = double(quads * b.spans.divisor) * b.strips.divisor * b.images;
    if (items * double(channel_tiles) >= double(kIndexLimit)) return {};
    const int64_t blocks = ceil_div(int64_t(items), int64_t(kThreadsOfRows)) * channel_tiles;
    const int64_t registers = itemsize(operand_dtype(problem)) == 4 ? 208 : grouped ? 128 : 168;
    set_blocks(l, blocks, kThreadsOfRows, 150 + (b.rows + 2) * (grouped ? 770.0 : 260.0), registers);
    if (double us = issue_us(l, d); us < least) {
      best = l;
      least = us;
    }
  }
  return best;
}

std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem& problem, const Nhwc3x3Tiling& tiling,
                                                   const Device& d) {
  Nhwc3x3Tiling l = tiling;
  const auto [kernel, config] = load(nhwc_3x3_kernel(l.grouped, operand_dtype(problem)), problem, l, d);
  const bool backward = problem.direction == ConvDirection::backward_data;
  return make_plan<ConvProblem>([=](const ConvArgs& a, void*, Stream stream) {
    launch(*kernel, config, stream, l.p, l.block, backward ? a.dy : a.x, a.w, a.bias, a.residual, a.out,
           float(a.activation_alpha));
  });
}

KernelSpec nhwc_3x3_kernel(bool grouped, DType t) {
  return {"cuda/conv/depthwise/nhwc/nhwc_3x3.cu",
          cat("minidnn::conv_nhwc_3x3<", cuda_name(t), ", ", grouped ? "true" : "false", ">")};
}

}  // namespace minidnn::cuda::conv
