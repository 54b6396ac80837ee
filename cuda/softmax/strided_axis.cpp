// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.strided_axis is the engine for softmax along an axis that is not the innermost dimension in memory. A
// block keeps whole columns in registers.
#include "cpp/engine/engine_object.h"
#include "cpp/softmax/softmax.h"
#include "cuda/runtime/plan.h"
#include "cuda/softmax/softmax_params.h"

namespace minidnn {
namespace cuda::softmax {
namespace {

constexpr DType kDTypes[] = {DType::float32, DType::float16, DType::bfloat16};
constexpr int64_t kFewestLanes = 2;  // Two lanes with 16-byte vectors read a whole sector of 32 bytes.

int64_t inner_of(const SoftmaxProblem& p) { return p.cols() > 1 ? p.in.stride[p.axis] : p.in.numel(); }
int64_t width_of(const SoftmaxProblem& p) {
  const int64_t width = 16 / itemsize(p.in.dtype);
  return p.alignment == 16 && inner_of(p) % width == 0 ? width : 1;
}
int64_t vectors_per_thread(const SoftmaxProblem& p, int64_t width) {
  if (p.direction == SoftmaxDirection::backward)
    return width == 1 ? kSoftmaxColumnsBackward<1> : kSoftmaxColumnsBackward<8>;
  return width == 1 ? kSoftmaxColumnsForward<1> : width == 4 ? kSoftmaxColumnsForward<4> : kSoftmaxColumnsForward<8>;
}

struct Tiling {
  int64_t width;    // the number of elements in a vector
  int64_t threads;  // the number of threads in a block
  // the number of threads of a block that read adjacent vectors; all other threads have other indices along the axis
  int64_t lanes;
  // the number of columns divided by `width`
  int64_t columns;
  bool fits;  // whether a block has enough threads to keep whole columns in registers
};
// Chooses the number of lanes: threads that read adjacent vectors. The block has `lanes` threads for each index along
// the axis. It has 256 threads, or 1024 if the lanes would otherwise be too few to read whole cache lines of 128 bytes.
Tiling tiling_of(const SoftmaxProblem& p) {
  Tiling t{width_of(p), 256, 0, 0, true};
  t.columns = p.in.numel() / p.cols() / t.width;
  const int64_t wanted = ceil_div(p.cols(), vectors_per_thread(p, t.width));
  int64_t threads_of_column = 1;
  while (threads_of_column < wanted) threads_of_column *= 2;
  const int64_t fewest = t.width == 1 ? 8 * kFewestLanes : kFewestLanes;
  if (t.threads / threads_of_column < 4 * fewest) t.threads = 1024;
  t.lanes = t.threads / threads_of_column;
  t.fits = t.lanes >= fewest;
  return t;
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
    const Tiling t = tiling_of(p);
    if (!t.fits) return cat("supports columns that fit in a block; got ", p.cols(), " elements");
    if (t.columns > INT32_MAX) return cat("supports at most 2^31 - 1 columns; got ", t.columns);
    return "";
  }
  // The estimate of the time is a guess: 0.85 of the copy rate with 16-byte vectors, 0.6 with single elements. The rate
  // is lower if several blocks read the same cache line of 128 bytes.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    const Tiling t = tiling_of(p);
    const double line = std::min<double>(double(t.lanes * t.width * itemsize(p.in.dtype)), 128) / 128;
    const double filled =
        std::min(1.0, double(ceil_div(t.columns, t.lanes)) * double(t.threads) / (512.0 * d.sm_count));
    return 1 + roofline_us(0, softmax_bytes(p), d, (t.width == 1 ? 0.6 : 0.85) * (0.6 + 0.4 * line) * filled);
  }
  KernelSpec spec(DType dtype, SoftmaxDirection direction, int64_t width) const {
    const bool forward = direction == SoftmaxDirection::forward;
    return {"cuda/softmax/strided_axis.cu", cat("minidnn::softmax_columns_", forward ? "forward" : "backward", "<",
                                                cuda_name(dtype), ", ", width, ">")};
  }
  std::unique_ptr<Plan<SoftmaxProblem>> build(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    const Tiling t = tiling_of(p);
    SoftmaxColumns params;
    params.inner = inner_of(p);
    params.cols = int32_t(p.cols());
    params.columns = int32_t(t.columns);
    params.lanes = int32_t(t.lanes);
    params.log = int32_t(p.log);
    params.columns_of_outer = FastDivmod(params.inner / t.width);
    cuda::LaunchConfig config;
    config.block = {unsigned(t.threads)};
    config.grid = {unsigned(ceil_div(t.columns, t.lanes))};
    config.smem_bytes = unsigned(softmax_columns_smem(t.threads, t.lanes, t.width));
    auto kernel = cuda::load_kernel(spec(p.in.dtype, p.direction, t.width), d.place.index, int(config.smem_bytes));
    return make_plan<SoftmaxProblem>(
        [=](const SoftmaxArgs& a, void*, Stream stream) { cuda::launch(*kernel, config, stream, params, a); });
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
