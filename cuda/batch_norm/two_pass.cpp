// SPDX-License-Identifier: Apache-2.0
// cuda.batch_norm.two_pass is the engine for batch norm of dense NCHW or NHWC tensors, which reads x twice. The kernels
// are in cuda/norm/channel_passes.cu.
#include "cpp/engine/engine_object.h"
#include "cuda/norm/channel_passes.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::batch_norm {
namespace {

// Processes planes as columns if a plane is not a whole number of 16-byte vectors, but an image is. A plane is the
// contiguous elements of a channel in one image (NCHW). Each image becomes one row of a matrix, and each of its
// elements a column. With fewer than 16 images, the partial results of each column would cost too much memory traffic.
void planes_as_columns(const BatchNormProblem& p, ChannelTiling& c) {
  if (c.plane == 1 || vector_of(p, c) > 1) return;
  ChannelTiling columns = c;
  columns.channels = c.channels * c.plane;
  columns.plane = 1;
  columns.by_group = FastDivmod(c.plane);
  const int64_t images = c.members / c.plane;
  if (vector_of(p, columns) == 1 || images < 16 || columns.channels >= kMostItems) return;
  columns.items = uint32_t(images);
  c = columns;
}
ChannelTiling split_of(const BatchNormProblem& p, const Device& d) {
  ChannelTiling c;
  dense_channels(p, c);
  c.items = uint32_t(c.members);
  planes_as_columns(p, c);
  divide_channels(c, vector_of(p, c), d);
  return c;
}
KernelSpec finish_spec(bool backward) {
  return {"cuda/norm/channel_passes.cu", cat("minidnn::norm_finish<", backward ? "true" : "false", ">")};
}

}  // namespace

struct TwoPass final : Engine<BatchNormProblem> {
  std::string name() const override { return "cuda.batch_norm.two_pass"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const BatchNormProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    ChannelTiling c;
    return dense_channels(p, c);
  }
  double estimate_us(const BatchNormProblem& p, const Device& d) const override {
    const ChannelTiling c = split_of(p, d);
    const bool sums = p.direction != NormDirection::inference;
    const double once = double(p.x.numel()) * double(itemsize(p.x.dtype));
    const double again = !sums ? 0 : once * double(1 + (p.direction == NormDirection::backward) * (1 + p.relu));
    // The numbers of this estimate are guesses.
    return roofline_us(norm_flop(p), norm_bytes(p) + again, d, vector_of(p, c) > 1 ? 0.85 : 0.4) + (sums ? 4 : 0);
  }
  size_t workspace_bytes(const BatchNormProblem& p, const Device& d, const Config&) const override {
    if (p.direction == NormDirection::inference) return 0;
    return partial_bytes(split_of(p, d));
  }
  std::unique_ptr<Plan<BatchNormProblem>> build(const BatchNormProblem& p, const Device& d,
                                                const Config&) const override {
    const ChannelTiling c = split_of(p, d);
    std::shared_ptr<const cuda::Kernel> sums, finish, map = cuda::load_kernel(channel_pass(p, c, "map"), d.place.index);
    if (p.direction != NormDirection::inference) {
      sums = cuda::load_kernel(channel_pass(p, c, "sums"), d.place.index);
      finish = cuda::load_kernel(finish_spec(p.direction == NormDirection::backward), d.place.index);
    }
    cuda::LaunchConfig blocks, joining;
    blocks.block = {kChannelThreads};
    blocks.grid = {unsigned(blocks_of(c))};
    joining.block = {kFinishThreads};
    joining.grid = {unsigned(ceil_div(c.channels / int64_t(c.by_group.divisor), int64_t(kFinishChannels)))};
    const bool early = sums && d.arch >= 90;
    return make_plan<BatchNormProblem>([=](const BatchNormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig wide = blocks, narrow = joining;
      if (sums) {
        cuda::launch(*sums, wide, stream, c, a, workspace);
        wide.programmatic = narrow.programmatic = early;
        cuda::launch(*finish, narrow, stream, c, a, static_cast<const void*>(workspace));
      }
      cuda::launch(*map, wide, stream, c, a, static_cast<const ChannelCoefficients*>(nullptr));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{finish_spec(false), finish_spec(true)};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true})
        for (const char* kind : {"planes_sums", "planes_map", "columns_sums", "columns_map"})
          for (int64_t vector : {int64_t(16 / itemsize(t)), int64_t(1)})
            all.push_back({"cuda/norm/channel_passes.cu", cat("minidnn::norm_", kind, "<", cuda_name(t), ", ", vector,
                                                              ", ", backward ? "true" : "false", ">")});
    return all;
  }
};

}  // namespace cuda::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cuda::batch_norm::TwoPass>();

}  // namespace minidnn
