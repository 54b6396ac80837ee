// SPDX-License-Identifier: Apache-2.0
// cuda.layer_norm.two_pass_groups is the engine for group and instance norm of dense NCHW or NHWC tensors. It reads the
// channels of each sample twice. The kernels are in cuda/norm/channel_passes.cu.
#include "cpp/engine/engine_object.h"
#include "cuda/layer_norm/rows.h"
#include "cuda/norm/channel_passes.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::layer_norm {
namespace {

// Returns the tiling of a group norm. The channels of each sample are divided among blocks separately.
ChannelTiling split_of(const LayerNormProblem& p, const BatchNormProblem& like, const Device& d) {
  ChannelTiling c;
  dense_channels(like, c);
  const int64_t samples = p.x.shape[0], channels = c.channels, of_group = channels / p.groups;
  c.items = uint32_t(c.members / samples);
  c.members = c.members / samples * of_group;
  // A plane is one channel of one sample. If there is only one channel, dense_channels() counts all samples as one
  // plane, so the size of a plane is corrected here.
  if (channels == 1) c.plane = c.items;
  c.parameters = channels;
  c.by_group = FastDivmod(of_group);
  if (c.plane > 1) c.channels *= samples;
  else c.samples = samples;
  divide_channels(c, vector_of(like, c), d);
  return c;
}

KernelSpec groups_finish_spec(bool backward) {
  return {"cuda/norm/channel_passes.cu", cat("minidnn::norm_groups_finish<", backward ? "true" : "false", ">")};
}

// Returns a batch norm problem with the tensors of a group norm, because the shared tiling functions take a batch norm
// problem.
BatchNormProblem batch_norm_like(const LayerNormProblem& p) {
  BatchNormProblem like{p.backward ? NormDirection::backward : NormDirection::training, p.x, p.dy, p.out, 1, 2};
  like.alignment = p.alignment;
  return like;
}

}  // namespace

struct TwoPassGroups final : Engine<LayerNormProblem> {
  std::string name() const override { return "cuda.layer_norm.two_pass_groups"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LayerNormProblem& p, const Device&) const override {
    if (p.kind != RowNorm::group) return "supports group and instance norm only";
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    ChannelTiling c;
    std::string why = dense_channels(batch_norm_like(p), c);
    if (why.empty() && p.x.shape[0] * c.channels >= int64_t(1) << 24)
      why = cat("supports fewer than 2^24 channels of all samples together; got ", p.x.shape[0] * c.channels);
    return why;
  }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    const BatchNormProblem like = batch_norm_like(p);
    ChannelTiling c;
    dense_channels(like, c);
    const double again = row_norm_bytes(p) * (p.backward ? 2.0 / 3 : 0.5);
    // Small planes (NCHW) leave some threads of a block idle.
    const double busy = c.plane > 1 ? std::min(1.0, double(c.plane) / (4 * kChannelThreads)) : 1;
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) + again, d,
                       (vector_of(like, c) > 1 ? 0.8 : 0.4) * std::max(busy, 0.1)) +
           5;
  }
  size_t workspace_bytes(const LayerNormProblem& p, const Device& d, const Config&) const override {
    const ChannelTiling c = split_of(p, batch_norm_like(p), d);
    return partial_bytes(c) + size_t(c.samples * c.channels) * (sizeof(ChannelCoefficients) + 2 * sizeof(float));
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device& d,
                                                const Config&) const override {
    const BatchNormProblem like = batch_norm_like(p);
    const ChannelTiling c = split_of(p, like, d);
    auto sums = cuda::load_kernel(channel_pass(like, c, "sums"), d.place.index);
    auto finish = cuda::load_kernel(groups_finish_spec(p.backward), d.place.index);
    auto map = cuda::load_kernel(channel_pass(like, c, "map"), d.place.index);
    std::shared_ptr<const cuda::Kernel> parameters;
    const ParameterSums join = parameter_sums(p.x.shape[0]);
    if (p.backward) parameters = cuda::load_kernel(join.kernel, d.place.index);
    cuda::LaunchConfig blocks, groups, channels;
    blocks.block = {kChannelThreads};
    blocks.grid = {unsigned(blocks_of(c))};
    groups.block = {kChannelThreads};
    groups.grid = {unsigned(ceil_div(p.x.shape[0] * p.groups, int64_t(kChannelThreads / 32)))};
    channels.block = {unsigned(join.threads)};
    channels.grid = {unsigned(ceil_div(c.parameters, join.columns))};
    return make_plan<LayerNormProblem>([=, samples = p.x.shape[0], partials = partial_bytes(c), early = d.arch >= 90](
                                           const LayerNormArgs& r, void* workspace, Stream stream) {
      BatchNormArgs a{.x = r.x,
                      .dy = r.dy,
                      .out = r.out,
                      .scale = r.scale,
                      .bias = r.bias,
                      .mean = r.mean,
                      .inv_std = r.inv_std,
                      .dscale = r.dscale,
                      .dbias = r.dbias,
                      .eps = r.eps};
      auto* lines = reinterpret_cast<ChannelCoefficients*>(static_cast<char*>(workspace) + partials);
      const void* const sample_sums = lines + samples * c.parameters;
      cuda::LaunchConfig wide = blocks, narrow = groups, last = channels;
      cuda::launch(*sums, wide, stream, c, a, workspace);
      wide.programmatic = narrow.programmatic = early;
      cuda::launch(*finish, narrow, stream, c, a, workspace, sample_sums, lines);
      if (parameters) cuda::launch(*parameters, last, stream, c.parameters, samples, sample_sums, r.dscale, r.dbias);
      cuda::launch(*map, wide, stream, c, a, lines);
    });
  }
  std::vector<KernelSpec> kernels() const override { return {groups_finish_spec(false), groups_finish_spec(true)}; }
};

}  // namespace cuda::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cuda::layer_norm::TwoPassGroups>();

}  // namespace minidnn
