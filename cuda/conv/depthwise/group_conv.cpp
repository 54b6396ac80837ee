// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/group_conv.h"

#include <variant>

#include "cuda/conv/depthwise/nchw/nchw.h"
#include "cuda/conv/depthwise/nhwc/nhwc.h"
#include "cuda/conv/filter_reduce/filter_reduce.h"

namespace minidnn::cuda::conv {
namespace {

int64_t span_of(const ConvTensorView& s) {
  int64_t reach = 0;
  for (int j = 1; j < kMaxSpatial; ++j) reach += (s.size[j] - 1) * std::abs(s.space[j]);
  return reach;
}

GroupConvStrides side_of(const ConvTensorView& s, int64_t images) {
  GroupConvStrides side;
  side.image = images > 1 ? s.image : 0;
  side.channel = s.channel;
  side.depth = s.space[0];
  side.row = int32_t(s.space[1]);
  side.column = int32_t(s.space[2]);
  return side;
}

using AnyTiling = std::variant<NchwTiling, Nchw3x3Tiling, NhwcTiling, Nhwc3x3Tiling>;
const GroupConvTiling& common(const AnyTiling& any) {
  return std::visit([](const GroupConvTiling& l) -> const GroupConvTiling& { return l; }, any);
}

AnyTiling tiling_of(const ConvProblem& p, GroupConvLayout layout, int filters, const Device& d) {
  if (layout == GroupConvLayout::nchw) {
    if (filters == 1)
      if (auto l = nchw_3x3_tiling(p, d)) return *l;
    return nchw_tiling(p, filters, d);
  }
  const bool grouped = layout == GroupConvLayout::nhwc_groups;
  if (auto l = nhwc_3x3_tiling(p, grouped, d)) return *l;
  return nhwc_tiling(p, grouped, d);
}

}  // namespace

std::string group_conv_index_why_not(const ConvProblem& p) {
  if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
  const ConvGeometry g = conv_geometry(p);
  for (int j = 0; j < kMaxSpatial; ++j) {
    const int64_t stride = g.backward_data ? 1 : g.stride[j], out = g.backward_data ? g.x.size[j] : g.y.size[j];
    // A tile may extend up to 64 outputs past the last output of a dimension.
    const double reach = (double(out) + 64.0 * double(g.dilation[j]) + 64) * double(stride) +
                         2.0 * double(g.window[j]) * double(g.dilation[j]) + double(g.pad[j]) + double(g.x.size[j]) +
                         double(g.y.size[j]) * double(g.stride[j]);
    if (reach >= double(kIndexLimit)) return cat("supports padded dimensions below 2^31 elements; got up to ", reach);
  }
  for (const ConvTensorView* s : {&g.x, &g.y, &g.residual})
    if (int64_t span = span_of(*s); span >= kIndexLimit)
      return cat("supports planes that span fewer than 2^31 elements; got ", span);
  int64_t w_span = 0;
  for (int i = 0; i < p.w.rank; ++i) w_span += (p.w.shape[i] - 1) * std::abs(p.w.stride[i]);
  if (w_span >= kIndexLimit) return cat("supports a w that spans fewer than 2^31 elements; got ", w_span);
  const double outputs = double(g.images) * double(g.groups) * double(std::max(g.x.channels, g.y.channels)) *
                         double(std::max(g.x.size[0], g.y.size[0]));
  if (outputs >= double(kIndexLimit)) return cat("supports fewer than 2^31 planes; got ", outputs);
  return "";
}

GroupConv group_conv_params(const ConvProblem& problem) {
  const ConvGeometry g = conv_geometry(problem);
  const bool backward = g.backward_data;
  GroupConv p;
  p.groups = int32_t(g.groups);
  p.in_channels = int32_t(backward ? g.y.channels : g.x.channels);
  p.out_channels = int32_t(backward ? g.x.channels : g.y.channels);
  p.in = side_of(backward ? g.y : g.x, g.images);
  p.out = side_of(backward ? g.x : g.y, g.images);
  p.w_origin = int32_t(g.w_origin);
  p.w_group = int32_t(g.groups > 1 ? g.y.channels * g.w_filter : 0);
  p.w_out = int32_t(backward ? g.w_channel : g.w_filter);
  p.w_in = int32_t(backward ? g.w_filter : g.w_channel);
  GroupConvDim* const dims[] = {&p.depth, &p.height, &p.width};
  for (int j = 0; j < kMaxSpatial; ++j) {
    GroupConvDim& d = *dims[j];
    d.in = int32_t(backward ? g.y.size[j] : g.x.size[j]);
    d.out = int32_t(backward ? g.x.size[j] : g.y.size[j]);
    d.taps = int32_t(g.window[j]);
    d.step = int32_t(g.dilation[j]);
    d.stride = int32_t(backward ? 1 : g.stride[j]);
    d.up = int32_t(backward ? g.stride[j] : 1);
    const int64_t reach = (g.window[j] - 1) * g.dilation[j];
    d.pad = int32_t(backward ? reach - g.pad[j] : g.pad[j]);
    const int64_t common = detail::gcd(d.stride, d.step);
    d.spread = int32_t(d.step / common);
    d.hop = int32_t(d.stride / common);
    d.phases = std::min(d.spread, d.out);
    p.w_tap[j] = int32_t(g.w_space[j]);
    if (backward) {
      p.w_origin += int32_t((g.window[j] - 1) * g.w_space[j]);
      p.w_tap[j] = -p.w_tap[j];
    }
  }
  p.has_bias = int32_t(g.has_bias);
  p.bias_stride = g.bias_stride;
  p.has_residual = int32_t(g.has_residual);
  if (g.has_residual) p.residual = side_of(g.residual, g.images);
  p.activation = g.activation;
  p.wide = itemsize(operand_dtype(problem)) == 2 && out_dtype(problem) == DType::float32;
  return p;
}

std::string group_conv_why_not(const ConvProblem& p, GroupConvLayout layout, int filters, const Device& d) {
  std::string why = group_conv_index_why_not(p);
  return why.empty() ? common(tiling_of(p, layout, filters, d)).why_not : why;
}

// Estimates the time of a call in us. rate() returns the bandwidth of an access pattern, as a fraction of the bandwidth
// of a device-to-device copy. 0.6 and 0.7 are measured; the lower fractions are guesses.
double group_conv_estimate_us(const ConvProblem& problem, GroupConvLayout layout, int filters, const Device& d) {
  const AnyTiling any = tiling_of(problem, layout, filters, d);
  const GroupConvTiling& l = common(any);
  const GroupConv& p = l.p;
  const bool nchw = layout == GroupConvLayout::nchw, dw = is_dw(problem);
  const int64_t vector = nchw ? 4 : 16 / int64_t(itemsize(operand_dtype(problem)));
  const auto rate = [&](const GroupConvStrides& s, bool written) {
    const bool by_columns = nchw && s.column == 1;
    if (nchw && !written && s.channel == 1 && (&s == &p.out || p.in_channels <= 4) && l.dy_by_filters)
      // nchw_filter.cu reads NHWC: a warp reads 8 contiguous filters of dy, or all channels (at most 4) of pixels of x.
      return 0.6;
    if (by_columns || !nchw) return !written || steps_by(s, vector, !by_columns) ? 0.7 : 0.5;
    // If columns are not contiguous, an access uses only a part of each 32-byte sector.
    return written && s.channel == 1 && filters > 1 && steps_by(s, 4, true) ? 0.4 : 0.15;
  };
  const bool backward = problem.direction == ConvDirection::backward_data;
  const TensorDesc &in = backward ? problem.y : problem.x, &out = backward ? problem.x : problem.y;
  const auto bytes = [](const TensorDesc& t) { return double(t.numel()) * double(itemsize(t.dtype)); };
  const double memory_us = roofline_us(0, bytes(in) / rate(p.in, false) + bytes(out) / rate(p.out, !dw), d, 1.0);
  // 4 us: the launch of filter_reduce.cu
  return std::max(memory_us, roofline_us(0, 0, d, 1.0) + issue_us(l, d)) + (dw ? 4 : 0);
}

size_t group_conv_workspace_bytes(const ConvProblem& p, GroupConvLayout layout, int filters, const Device& d) {
  if (!is_dw(p)) return 0;
  return common(tiling_of(p, layout, filters, d)).tiles.splits * size_t(p.w.numel()) * sizeof(float);
}

std::unique_ptr<Plan<ConvProblem>> build_group_conv(const ConvProblem& p, GroupConvLayout layout, int filters,
                                                    const Device& d) {
  return std::visit([&](const auto& tiling) { return group_conv_plan(p, tiling, d); },
                    tiling_of(p, layout, filters, d));
}

std::vector<KernelSpec> group_conv_kernels(GroupConvLayout layout, int filters, std::initializer_list<DType> dtypes) {
  const bool nchw = layout == GroupConvLayout::nchw, grouped = layout == GroupConvLayout::nhwc_groups;
  std::vector<KernelSpec> all;
  for (DType t : dtypes) {
    for (KernelSpec& s : nchw ? nchw_kernels(filters, t) : nhwc_kernels(grouped, t)) all.push_back(std::move(s));
    if (!nchw) all.push_back(nhwc_3x3_kernel(grouped, t));
    else if (filters == 1) all.push_back(nchw_3x3_kernel(t));
    all.push_back(filter_reduce_kernel(t));
  }
  return all;
}

}  // namespace minidnn::cuda::conv
