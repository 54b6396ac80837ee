// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.strided_axis: the axis is not the innermost dimension in memory; a block holds columns in registers.
#include "cpp/engine/engine_object.h"
#include "cpp/softmax/softmax.h"
#include "cuda/runtime/plan.h"
#include "cuda/softmax/softmax_params.h"

namespace minidnn {
namespace cuda::softmax {
namespace {

constexpr DType kDTypes[] = {DType::float32, DType::float16, DType::bfloat16};
constexpr int64_t kFewestLanes = 2;  // lanes with vectors of 16 bytes: they read whole sectors of 32 bytes

int64_t inner_of(const SoftmaxProblem& p) { return p.cols() > 1 ? p.in.stride[p.axis] : p.in.numel(); }
int64_t width_of(const SoftmaxProblem& p) {
  const int64_t width = 16 / itemsize(p.in.dtype);
  return p.alignment == 16 && inner_of(p) % width == 0 ? width : 1;
}
int64_t held_of(const SoftmaxProblem& p, int64_t width) {
  if (p.direction == SoftmaxDirection::backward)
    return width == 1 ? kSoftmaxColumnsBackward<1> : kSoftmaxColumnsBackward<8>;
  return width == 1 ? kSoftmaxColumnsForward<1> : width == 4 ? kSoftmaxColumnsForward<4> : kSoftmaxColumnsForward<8>;
}

struct Cut {
  int64_t width, threads, lanes, columns;
  bool fits;
};
// Chooses as many lanes as leave enough threads for each column. Blocks have 256 threads, or 1024 where 256 would leave
// fewer lanes than a line of 128 bytes has.
Cut cut_of(const SoftmaxProblem& p) {
  Cut c{width_of(p), 256, 0, 0, true};
  c.columns = p.in.numel() / p.cols() / c.width;
  const int64_t wanted = ceil_div(p.cols(), held_of(p, c.width));
  int64_t threads_of_column = 1;
  while (threads_of_column < wanted) threads_of_column *= 2;
  const int64_t fewest = c.width == 1 ? 8 * kFewestLanes : kFewestLanes;
  if (c.threads / threads_of_column < 4 * fewest) c.threads = 1024;
  c.lanes = c.threads / threads_of_column;
  c.fits = c.lanes >= fewest;
  return c;
}

}  // namespace

struct StridedAxis final : Engine<SoftmaxProblem> {
  std::string name() const override { return "cuda.softmax.strided_axis"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const SoftmaxProblem& p, const Device&) const override {
    if (p.in.dtype == DType::float64) return "float64 is not supported";
    const bool backward = p.direction == SoftmaxDirection::backward;
    if (!is_dense(p.in) || !same_strides(p.in, p.out) || (backward && !same_strides(p.in, p.dy)))
      return "needs dense tensors with equal strides";
    if (inner_of(p) == 1) return "an axis that is the innermost dimension in memory is not supported";
    if (p.masked != SoftmaxMask::none) return "masks are not supported";
    const Cut c = cut_of(p);
    if (!c.fits) return cat("supports columns that fit in a block; got ", p.cols(), " elements");
    if (c.columns > INT32_MAX) return cat("supports at most 2^31 - 1 columns; got ", c.columns);
    return "";
  }
  // A guess, to be measured: a lower rate where a vector is one element, or several blocks read a line.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    const Cut c = cut_of(p);
    const double line = std::min<double>(double(c.lanes * c.width * itemsize(p.in.dtype)), 128) / 128;
    const double filled =
        std::min(1.0, double(ceil_div(c.columns, c.lanes)) * double(c.threads) / (512.0 * d.sm_count));
    return 1 + roofline_us(0, softmax_bytes(p), d, (c.width == 1 ? 0.6 : 0.85) * (0.6 + 0.4 * line) * filled);
  }
  KernelSpec spec(DType dtype, SoftmaxDirection direction, int64_t width) const {
    const bool forward = direction == SoftmaxDirection::forward;
    return {"cuda/softmax/strided_axis.cu", cat("minidnn::softmax_columns_", forward ? "forward" : "backward", "<",
                                                cuda_name(dtype), ", ", width, ">")};
  }
  std::unique_ptr<Plan<SoftmaxProblem>> build(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    const Cut c = cut_of(p);
    SoftmaxColumns task;
    task.inner = inner_of(p);
    task.cols = int32_t(p.cols());
    task.columns = int32_t(c.columns);
    task.lanes = int32_t(c.lanes);
    task.log = int32_t(p.log);
    task.columns_of_outer = FastDivmod(task.inner / c.width);
    cuda::LaunchConfig config;
    config.block = {unsigned(c.threads)};
    config.grid = {unsigned(ceil_div(c.columns, c.lanes))};
    config.smem_bytes = unsigned(softmax_columns_smem(c.threads, c.lanes, c.width));
    auto kernel = cuda::load_kernel(spec(p.in.dtype, p.direction, c.width), d.place.index, int(config.smem_bytes));
    return make_plan<SoftmaxProblem>(
        [=](const SoftmaxArgs& a, void*, Stream stream) { cuda::launch(*kernel, config, stream, task, a); });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kDTypes)
      for (auto direction : {SoftmaxDirection::forward, SoftmaxDirection::backward})
        for (int64_t width : {int64_t(1), 16 / int64_t(itemsize(t))}) all.push_back(spec(t, direction, width));
    return all;
  }
};

}  // namespace cuda::softmax

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::StridedAxis>();

}  // namespace minidnn
