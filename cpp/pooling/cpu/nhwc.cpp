// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.nhwc: pooling in which each lane of a vector computes one channel. If channels are not contiguous,
// kPlanes planes (each is one channel of one image) are transposed to scratch memory, which fits a cache. Threads share
// the lines of y (along its last dimension), or slices: ranges of indices along one axis.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pooling/cpu/nhwc_kernel.h"
#include "cpp/pooling/pooling.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace cpu::pooling {
namespace {

constexpr int64_t kGrain = 16384;  // the least number of elements that one thread processes
// The number of floats of scratch memory for the part of an image that is processed at a time. They fit the cache of a
// core.
constexpr int64_t kSliceFloats = 64 << 10;
// If dx has more bytes than this, it is written with non-temporal stores.
constexpr int64_t kStreamBytes = 12 << 20;

bool is_backward(const PoolingProblem& p) { return p.direction == PoolingDirection::backward; }

// Whether dimension `dim` is contiguous: its stride or its size is 1 in all tensors that are read or written.
bool is_contiguous(const PoolingProblem& p, int dim) {
  auto is_contiguous = [&](const TensorDesc& d) { return d.stride[dim] == 1 || d.shape[dim] == 1; };
  const bool reads_x = !is_backward(p) || p.mode == PoolingMode::max;
  return is_contiguous(p.out) && is_contiguous(p.dy) && (!reads_x || is_contiguous(p.x));
}

struct Tiling {
  PoolingProblem p;
  bool in_place;  // true if channels are contiguous, so that nothing is transposed
  // Threads share tasks. A task is a line of y or a slice of dx, or one of `chunks` ranges of its channels.
  int64_t tasks, chunks = 1;
  PoolingChunk chunk{};
  int64_t batch, threads;
  int64_t scratch_floats;  // the number of floats of scratch memory per thread
};

Tiling tiling_of(const PoolingProblem& problem, const Device& d) {
  Tiling c{padded_in_front(problem)};
  const PoolingProblem& p = c.p;
  const int64_t N = p.x.shape[0], C = p.x.shape[1];
  c.in_place = is_contiguous(p, 1) && (C > 1 || !is_contiguous(p, 4));
  c.chunk.channels = C;
  if (c.in_place && !is_backward(p)) {
    // If y has few lines, threads share the channels as well, in ranges of at least a few cache lines.
    const int64_t fewest = cpu::work_size(128);
    const int64_t lines = N * spatial_size(p.out, 0) * spatial_size(p.out, 1);
    c.chunks = std::clamp<int64_t>(ceil_div<int64_t>(4 * d.sm_count, lines), 1, max_of<int64_t>(C / fewest, 1));
    c.chunk.channels = ceil_div(ceil_div(C, c.chunks), fewest) * fewest;
    c.chunks = ceil_div(C, c.chunk.channels);
    c.tasks = lines * c.chunks;
    c.scratch_floats = forward_scratch(min_of(C, c.chunk.channels));
  } else {
    // x is sliced along its longest spatial axis.
    int axis = 0;
    for (int i = 1; i < kMaxSpatial; ++i)
      if (spatial_size(p.x, i) > spatial_size(p.x, axis)) axis = i;
    // The number of positions of x (and of y) with the same index along `axis`.
    int64_t x_line = 1, y_line = 1;
    for (int i = 0; i < kMaxSpatial; ++i)
      if (i != axis) {
        x_line *= spatial_size(p.x, i);
        y_line *= spatial_size(p.dy, i);
      }
    const int64_t x_size = spatial_size(p.x, axis), y_size = spatial_size(p.dy, axis);
    // The largest distance of adjacent windows, and of the elements of a window.
    const int64_t stride = p.adaptive ? ceil_div(x_size, y_size) : p.spatial.stride[axis];
    const int64_t reach = (p.window[axis] - 1) * p.spatial.dilation[axis];
    const int64_t size = is_backward(p) ? x_size : y_size, unit = is_backward(p) ? stride : 1;
    const int64_t groups = c.in_place ? N : ceil_div(N * C, kPlanes);
    // A slice covers at least two strides, so that few windows are computed for two slices.
    const int64_t floats = x_line * stride * (c.in_place ? padded(C) : kPlanes);
    int64_t step = max_of<int64_t>(cpu::work_size(kSliceFloats) / floats, 2) * unit;
    while (step > 2 * unit && groups * ceil_div(size, step) < 2 * d.sm_count) step = ceil_div<int64_t>(step, 2);
    step = min_of(step, size);
    c.chunk.axis = axis;
    c.chunk.slice = step;
    c.tasks = groups * ceil_div(size, step);
    const int64_t windows = !is_backward(p) ? step
                            : p.adaptive    ? min_of(ceil_div(step * y_size, x_size) + 1, y_size)
                                            : min_of((step - 1 + reach) / stride + 1, y_size);
    const int64_t x_needed = min_of((windows - 1) * stride + reach + 1, x_size);
    if (c.in_place) c.scratch_floats = 0;
    else if (is_backward(p)) c.scratch_floats = transposed_scratch(step * x_line, x_needed * x_line, windows * y_line);
    else c.scratch_floats = transposed_scratch(step * y_line, x_needed * x_line, 0) + forward_scratch(kPlanes);
    if (is_backward(p)) c.scratch_floats += backward_scratch(p, c.in_place ? step * x_line : 0, C);
  }
  c.chunk.non_temporal =
      c.in_place && is_backward(p) && p.out.numel() * int64_t(itemsize(p.out.dtype)) > cpu::work_size(kStreamBytes);
  const double work = double(max_of(p.x.numel(), max_of(p.out.numel(), p.dy.numel())));
  c.threads =
      std::clamp<int64_t>(int64_t(work / double(cpu::work_size(kGrain))), 1, min_of<int64_t>(d.sm_count, c.tasks));
  c.batch = max_of<int64_t>(c.tasks / (c.threads * 8), 1);
  return c;
}

void compute(const Tiling& c, const PoolingArgs& args, float* workspace) {
  const PoolingNhwcKernels::Typed& kernels =
      cpu::typed_kernels(c.in_place ? pooling_nhwc_kernels() : pooling_nhwc_transposed_kernels(), c.p.x.dtype);
  const auto run = is_backward(c.p) ? kernels.backward : kernels.forward;
  cpu::parallel_batches(c.tasks, c.batch, c.threads, [&](int64_t begin, int64_t end, int64_t thread_id) {
    PoolingChunk chunk = c.chunk;
    float* scratch = workspace + thread_id * c.scratch_floats;
    if (c.chunks == 1) {
      chunk.begin = begin;
      chunk.end = end;
      chunk.channels = c.p.x.shape[1];
      return run(c.p, args, chunk, scratch);
    }
    for (int64_t task = begin; task < end; ++task) {
      chunk.begin = task / c.chunks;
      chunk.end = chunk.begin + 1;
      chunk.first_channel = task % c.chunks * c.chunk.channels;
      chunk.channels = min_of(c.chunk.channels, c.p.x.shape[1] - chunk.first_channel);
      run(c.p, args, chunk, scratch);
    }
  });
}

}  // namespace

struct Nhwc final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.nhwc"; }
  std::string why_not(const PoolingProblem& problem, const Device&) const override {
    if (problem.x.dtype == DType::float64) return "float64 is not supported";
    if (problem.mode == PoolingMode::lp) return "mode 'lp' is not supported";
    if (problem.indices.rank) return "indices are not supported";
    if (problem.x.numel() == 0) return "x is empty";
    const PoolingProblem p = padded_in_front(problem);
    if (!is_contiguous(p, 1) && !is_contiguous(p, 4))
      return "needs the channels, or the last dimension, to be contiguous in x, y, dy and dx";
    int64_t over = 1, taps = 1;
    for (int i = 0; i < kMaxSpatial; ++i) {
      over *= most_windows_over(p, i);
      taps *= p.window[i];
      constexpr int64_t kMost = 1 << 24;
      if (taps > kMost || over > kMost)
        return cat("supports at most ", kMost, " elements in a window, and windows over an element of x; got at least ",
                   max_of(taps, over));
    }
    if (is_backward(p) && over > kMaxWindowsOver)
      return cat("supports at most ", kMaxWindowsOver, " windows over an element of x; got up to ", over);
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    // Transposing x, dy and dx takes as long as computing the gradient of max pooling.
    const bool transposes_all = is_backward(p) && p.mode == PoolingMode::max && !is_contiguous(padded_in_front(p), 1);
    return roofline_us(pooling_flop(p) / 80, pooling_bytes(p), d, transposes_all ? 0.5 : 0.8);
  }
  size_t workspace_bytes(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Tiling c = tiling_of(p, d);
    return size_t(c.threads * c.scratch_floats) * sizeof(float);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return make_plan<PoolingProblem>([c = tiling_of(p, d)](const PoolingArgs& args, void* workspace, Stream) {
      compute(c, args, static_cast<float*>(workspace));
    });
  }
};

}  // namespace cpu::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cpu::pooling::Nhwc>();

}  // namespace minidnn
