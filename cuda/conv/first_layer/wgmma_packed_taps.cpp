// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma_packed_taps: an engine for x of up to eight channels, as in a network's first layer. It runs the
// tensor-core main loop of sm_90a (cuda/gemm/sm90/kernel.cu). First, it copies x with its padding, and rounds the
// number of channels up to a power of two. In the copy, all elements that one row of a window reads are contiguous. The
// main loop treats them as the channels of one pixel. So neighbouring pixels overlap in memory, and windows are one
// pixel wide.
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cpp/engine/roofline.h"
#include "cpp/transform/transform.h"
#include "cuda/conv/first_layer/pad_channels.h"
#include "cuda/gemm/sm90/plan.h"

namespace minidnn {
namespace cuda::conv {
namespace {

constexpr int64_t kMostChannels = 8;

struct Taps {
  Padded x, w;
  ConvProblem problem;         // the convolution of the padded copies
  TransformProblem filters{};  // copies dw to the caller's layout

  explicit Taps(const ConvProblem& p) : problem(p) {
    const int64_t item = int64_t(itemsize(p.x.dtype)), taps = p.w.shape[3], step = p.spatial.stride[1];
    // The number of channels of the padded copies. With it, all windows start at multiples of 16 bytes.
    int64_t channels = 4;
    while (channels < p.x.shape[1] || step * channels * item % 16) channels *= 2;
    auto columns_of = [&](int64_t least) {
      return ceil_div(least * channels * item, int64_t(16)) * 16 / channels / item;
    };
    x.x = p.x;
    x.channels = channels;
    x.rows = (p.y.shape[2] - 1) * p.spatial.stride[0] + (p.w.shape[2] - 1) * p.spatial.dilation[0] + 1;
    x.columns = columns_of((p.y.shape[3] - 1) * step + taps);
    x.before[0] = p.spatial.before[0];
    x.before[1] = p.spatial.before[1];
    w.x = p.w;
    w.rows = p.w.shape[2];
    w.columns = columns_of(taps);
    w.channels = channels;

    const int64_t x_line = x.columns * channels, w_line = w.columns * channels;
    problem.x.shape[1] = problem.w.shape[1] = taps * channels;
    problem.x.shape[2] = x.rows;
    problem.x.shape[3] = p.y.shape[3];
    const int64_t x_strides[] = {x.rows * x_line, 1, x_line, step * channels};
    const int64_t w_strides[] = {w.rows * w_line, 1, w_line, w_line};
    std::ranges::copy(x_strides, problem.x.stride);
    std::ranges::copy(w_strides, problem.w.stride);
    problem.w.shape[3] = 1;
    problem.spatial.stride[1] = problem.spatial.dilation[1] = 1;
    for (int i = 0; i < 2; ++i) problem.spatial.before[i] = problem.spatial.after[i] = 0;
    filters.x = filters.y = p.w;
    const int64_t dw_strides[] = {w.rows * w_line, 1, w_line, channels};
    std::ranges::copy(dw_strides, filters.x.stride);
  }

  GemmTask task() const {
    GemmTask t = gemm_task(problem);
    t.bytes = double(x.bytes()) + double(problem.y.numel()) * double(itemsize(problem.y.dtype));
    return t;
  }
  size_t copies() const { return x.bytes() + w.bytes(); }
};

}  // namespace

struct WgmmaPackedTaps final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma_packed_taps"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction != ConvDirection::forward && p.direction != ConvDirection::backward_filter)
      return "supports forward and backward_filter only";
    if (p.ieee && operand_dtype(p) == DType::float32)
      return "math='ieee' is not supported: float32 is multiplied as TF32";
    if (p.x.rank != 4) return cat("supports two spatial dimensions only; got ", p.x.rank - 2);
    if (p.groups != 1) return cat("supports groups=1 only; got ", p.groups);
    if (p.x.shape[1] > kMostChannels)
      return cat("supports at most ", kMostChannels, " channels of x; got ", p.x.shape[1]);
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
    if (itemsize(p.x.dtype) > 4) return "float64 is not supported";
    if (p.flip) return "mode='convolution' is not supported";
    if (p.w.shape[3] > 1 && p.spatial.dilation[1] != 1)
      return cat("needs dilation 1 along the width; got ", p.spatial.dilation[1]);
    const Taps t(p);
    for (const Padded* copy : {&t.x, &t.w})
      for (int64_t size : {copy->x.shape[0] * copy->rows * copy->columns, copy->before[0], copy->before[1]})
        if (size >= int64_t(1) << 31) return cat("supports fewer than 2^31 padded pixels; got ", size);
    return sm90_why_not(t.task(), d);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const Taps t(p);
    const double read = double(p.x.numel()) * double(itemsize(p.x.dtype));
    // TMA takes 8 to 12 clocks per row of a window (docs/notes/conv.md).
    const double lines = double(p.y.numel() / p.y.shape[1]) * double(p.w.shape[2]);
    double us = std::max(sm90_estimate_us(t.task(), d), lines / d.sm_count * (is_forward(p) ? 12 : 8) / 1700);
    us += roofline_us(0, read + double(t.x.bytes()), d, 0.7);
    // 3 us: the copy of the filters
    us += is_forward(p) ? 3 : choose_on(d, t.filters).estimate_us;
    return us;
  }
  std::vector<Config> configs(const ConvProblem& p, const Device& d) const override {
    return sm90_configs(Taps(p).task(), d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device&, const Config& config) const override {
    const Taps t(p);
    return t.copies() + sm90_workspace_bytes(t.task(), config);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config& config) const override {
    struct Steps {
      Taps taps;
      std::shared_ptr<const cuda::Kernel> pad_x, pad_w;
      std::unique_ptr<GemmPlan> product;
      std::shared_ptr<const Plan<TransformProblem>> filters;
    };
    auto steps = std::make_shared<Steps>(Taps(p));
    const Taps& t = steps->taps;
    const bool forward = is_forward(p);
    steps->pad_x = cuda::load_kernel(t.x.kernel(), d.place.index);
    if (forward) steps->pad_w = cuda::load_kernel(t.w.kernel(), d.place.index);
    else steps->filters = plan_on(d, t.filters).plan;
    steps->product = sm90_plan(t.task(), d, config);
    return make_plan<ConvProblem>([steps, forward](const ConvArgs& args, void* workspace, Stream stream) {
      const Taps& taps = steps->taps;
      char* const x = static_cast<char*>(workspace);
      char* const w = x + taps.x.bytes();
      ConvArgs now = args;
      now.x = x;
      taps.x.run(*steps->pad_x, args.x, x, stream);
      if (forward) {
        taps.w.run(*steps->pad_w, args.w, w, stream);
        now.w = w;
      } else now.out = w;
      steps->product->run(gemm_args(taps.problem, now), w + taps.w.bytes(), stream);
      if (!forward) steps->filters->run({w, args.out}, nullptr, stream);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType type : {DType::float16, DType::float32})
      for (int64_t channels : {4, 8}) all.push_back(Padded::kernel_for(type, channels));
    return all;
  }

 private:
  static bool is_forward(const ConvProblem& p) { return p.direction == ConvDirection::forward; }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::WgmmaPackedTaps>();

}  // namespace minidnn
