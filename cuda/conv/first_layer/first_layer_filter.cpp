// SPDX-License-Identifier: Apache-2.0
// cuda.conv.first_layer_filter: an engine that computes dw of a network's first layer in NHWC by tensor cores
// (first_layer_filter.cu). float32 operands are multiplied as TF32.
// Times on an H100 for 3 -> 64 channels, 7x7 at stride 2, 64 images of 224 x 224: the expected times, which were not
// measured, are 70 us in 16 bits and 130 us in float32. To read x and dy takes at least 41 us in 16 bits and 81 us in
// float32. The implicit GEMM of cuda.conv.mma takes 340 us in bfloat16.
#include "cpp/engine/engine_object.h"
#include "cuda/conv/first_layer/first_layer_filter_params.h"

#include "cuda/conv/depthwise/group_conv.h"
#include "cuda/conv/filter_reduce/filter_reduce.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::conv {
namespace {

// The largest number of elements (columns x channels) in a row of the window: four tiles of 8.
constexpr int64_t kMostBand = 32;

struct Tiling {
  GroupConv p;
  GroupConvTiles tiles;
  FirstLayerFilterBlock b;
  // steps: main-loop iterations per warp, over all of its tiles
  int64_t channel_tiles = 1, threads = 0, smem_bytes = 0, eights = 0, steps = 0;
  std::string why_not;
};

// Chooses a tile of at most rows x columns pixels of dy. Returns whether shared memory has room for two buffers, each
// with such a tile and the tile of x that it needs.
bool fits(Tiling& l, int64_t item, int64_t rows, int64_t columns, const Device& d) {
  GroupConv& p = l.p;
  FirstLayerFilterBlock& b = l.b;
  const int64_t elements = 16 / item, pixels = 2 * elements;
  p.height.tile = int32_t(ceil_div<int64_t>(p.height.out, ceil_div<int64_t>(p.height.out, rows)));
  p.width.tile = int32_t(round_up(ceil_div<int64_t>(p.width.out, ceil_div<int64_t>(p.width.out, columns)), pixels));
  b.columns = FastDivmod(p.width.tile);
  b.steps = FastDivmod(p.width.tile / pixels);
  b.x_rows = (p.height.tile - 1) * p.height.stride + p.height.taps;
  // reach: the elements of a row of x that a tile needs, including those that the alignment of 16-byte copies adds
  const int64_t reach = elements - 1 + int64_t(p.width.tile - 1) * p.width.stride * b.channels + 8 * l.eights;
  b.copies = FastDivmod(ceil_div(reach, elements));
  const int64_t pitch = item == 4 ? kFirstLayerPitch<float> : kFirstLayerPitch<float16>,
                x_pitch = 16 * int64_t(b.copies.divisor);
  const int64_t x_offset = int64_t(p.height.tile) * p.width.tile * pitch, buffer = x_offset + b.x_rows * x_pitch;
  const int64_t sums =
      // the bytes of the sums of all threads
      l.threads * 16 * l.eights * 4;
  l.smem_bytes = std::max(2 * buffer, sums);
  b.x_pitch = int32_t(x_pitch);
  b.x_offset = int32_t(x_offset);
  b.buffer = int32_t(buffer);
  return l.smem_bytes <= d.max_smem_bytes;
}

Tiling tiling_of(const ConvProblem& problem, const Device& d) {
  Tiling l;
  const DType t = operand_dtype(problem);
  const int64_t item = int64_t(itemsize(t)), elements = 16 / item;
  if (t == DType::float64) return l.why_not = "float64 is not supported", l;
  if (problem.groups != 1) return l.why_not = cat("supports groups=1 only; got ", problem.groups), l;
  l.why_not = group_conv_index_why_not(problem);
  if (!l.why_not.empty()) return l;
  l.p = group_conv_params(problem);
  const GroupConv& p = l.p;
  if (p.depth.taps != 1 || p.depth.in != 1 || p.depth.out != 1 || p.depth.pad != 0)
    return l.why_not = "needs a depth of 1 in x, w and y, without padding", l;
  if (p.height.step != 1 || p.width.step != 1) return l.why_not = "needs dilation 1", l;
  const int64_t band = int64_t(p.width.taps) * p.in_channels;
  if (band > kMostBand)
    return l.why_not = cat("supports a window width times channels of at most ", kMostBand, "; got ", band), l;
  if (p.height.taps > kFirstLayerWarps)
    return l.why_not = cat("supports windows of at most ", kFirstLayerWarps, " rows; got ", p.height.taps), l;
  if (p.in.column != p.in_channels || (p.in_channels > 1 && p.in.channel != 1))
    return l.why_not = "needs contiguous rows of x with channels innermost (NHWC)", l;
  if (p.out.channel != 1 && p.out_channels > 1) return l.why_not = "needs contiguous channels of dy (NHWC)", l;
  const auto whole = [&](int64_t n) { return n % elements == 0; };
  if (problem.alignment < 16 || !whole(p.in.row) || !whole(p.in.image) || !whole(p.width.in * p.in_channels) ||
      !whole(p.out.image) || !whole(p.out.row) || !whole(p.out.column) || !whole(p.out_channels))
    return l.why_not = "needs rows of x and pixels of dy that are multiples of 16 bytes long and aligned to 16 bytes",
           l;

  FirstLayerFilterBlock& b = l.b;
  b.channels = p.in_channels;
  b.step_splits = kFirstLayerWarps / p.height.taps;
  l.eights = std::max<int64_t>(ceil_div<int64_t>(band, 8), 2);
  l.threads = int64_t(b.step_splits) * p.height.taps * 32;
  bool found = false;
  for (int64_t columns = 128; !found && columns >= 16; columns /= 2)
    for (int64_t rows : {8, 4, 2, 1})
      if (!found) found = fits(l, item, rows, columns, d);
  if (!found) {
    l.why_not = cat("needs ", l.smem_bytes, " bytes of shared memory for two tiles; the device has ", d.max_smem_bytes);
    return l;
  }
  l.channel_tiles = ceil_div(p.out_channels, kFirstLayerFilters);
  l.tiles.height = FastDivmod(p.height.tiles());
  l.tiles.width = FastDivmod(p.width.tiles());
  l.tiles.channel_tiles = FastDivmod(l.channel_tiles);
  const double count = double(problem.y.shape[0]) * double(p.height.tiles()) * double(p.width.tiles());
  if (count * double(l.channel_tiles) >= double(int64_t(1) << 31)) {
    l.why_not = cat("supports fewer than 2^31 tiles; got ", count * double(l.channel_tiles));
    return l;
  }
  l.tiles.count = uint32_t(count);
  l.tiles.splits = uint32_t(std::min<int64_t>(l.tiles.count, ceil_div<int64_t>(d.sm_count, l.channel_tiles)));
  l.steps = ceil_div<int64_t>(l.tiles.count, l.tiles.splits) *
            ceil_div<int64_t>(int64_t(p.height.tile) * b.steps.divisor, b.step_splits);
  return l;
}

KernelSpec kernel_of(DType t, int64_t eights) {
  return {"cuda/conv/first_layer/first_layer_filter.cu",
          cat("minidnn::conv_first_layer_filter<", cuda_name(t), ", ", eights, ">")};
}

}  // namespace

struct FirstLayerFilter final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.first_layer_filter"; }
  unsigned traits() const override { return kNeedsJit | kReducedPrecision; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction != ConvDirection::backward_filter) return "supports backward_filter only";
    if (d.arch < 80) return cat("needs the tensor cores of sm_80 or later; got sm_", d.arch);
    if (p.ieee && operand_dtype(p) == DType::float32)
      return "math='ieee' is not supported: float32 is multiplied as TF32";
    return tiling_of(p, d).why_not;
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    constexpr double kShareOfCopyRate = 0.8, kShareOfVisits = 0.6;  // guessed fractions of the peak rates
    const Tiling l = tiling_of(p, d);
    const bool narrow = itemsize(operand_dtype(p)) == 2;
    // The shared-memory accesses of a warp per iteration: 16 to dy, and 4 (16 bits) or 2 (float32) to x for each tile
    // of 8 elements. An SM executes one access per clock.
    const double visits = 16 + (narrow ? 4.0 : 2.0) * double(l.eights);
    const double clocks_us = 1e3 * d.fp32_gflop_s / (2.0 * 128 * d.sm_count);
    const double shared_us = double(l.steps) * visits * double(l.threads / 32) / clocks_us / kShareOfVisits;
    return 4 + std::max(shared_us + 3,
                        roofline_us(0, conv_bytes(p) * double(l.channel_tiles > 1 ? 1.2 : 1), d, kShareOfCopyRate));
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return tiling_of(p, d).tiles.splits * size_t(p.w.numel()) * sizeof(float);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    const Tiling l = tiling_of(p, d);
    auto kernel = cuda::load_kernel(kernel_of(operand_dtype(p), l.eights), d.place.index, int(l.smem_bytes));
    cuda::LaunchConfig config;
    config.grid = {unsigned(l.channel_tiles * l.tiles.splits)};
    config.block = {unsigned(l.threads)};
    config.smem_bytes = unsigned(l.smem_bytes);
    return make_plan<ConvProblem>(
        [=, add = filter_reduce(p, l.tiles.splits, d)](const ConvArgs& a, void* workspace, Stream stream) {
          cuda::launch(*kernel, config, stream, l.p, l.tiles, l.b, a.x, a.dy, workspace);
          add(workspace, a.out, stream);
        });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16}) {
      for (int eights : {2, 3, 4}) all.push_back(kernel_of(t, eights));
      all.push_back(filter_reduce_kernel(t));
    }
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::FirstLayerFilter>();

}  // namespace minidnn
