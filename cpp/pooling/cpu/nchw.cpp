// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.nchw: the gradient of max pooling without indices, for contiguous rows. Threads share slices, which are
// groups of adjacent rows of one channel.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pooling/cpu/nchw_kernel.h"
#include "cpp/pooling/pooling.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace cpu::pooling {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least number of elements that one thread processes
// If dx has more bytes than this, it is written with non-temporal stores.
constexpr int64_t kStreamBytes = 12 << 20;

// The number of floats of scratch memory for a slice, which fit a first-level cache.
constexpr int64_t kScratchFloats = 8 << 10;

struct Tiling {
  PoolingProblem p;
  PoolingNchwChunk chunk{};
  int64_t tasks = 0, threads = 1, scratch_floats = 0;

  Tiling(const PoolingProblem& problem, int64_t cores) : p(padded_in_front(problem)) {
    const int64_t planes = p.x.shape[0] * p.x.shape[1] * spatial_size(p.x, 0), H = spatial_size(p.x, 1);
    threads = std::clamp<int64_t>(p.x.numel() / cpu::work_size(kGrain), 1, cores);
    // Windows that belong to two slices of rows are processed twice. To keep them rare, a slice has the rows of several
    // windows.
    const int64_t fewest = min_of(cpu::work_size(8) * p.window[1] * p.spatial.dilation[1], H);
    chunk.rows = H;
    while (chunk.rows > fewest && (SliceLayout(p, chunk.rows).floats(p) > cpu::work_size(kScratchFloats) ||
                                   planes * ceil_div(H, chunk.rows) < 4 * threads))
      chunk.rows = max_of(ceil_div<int64_t>(chunk.rows, 2), fewest);
    chunk.non_temporal = p.out.numel() * int64_t(itemsize(p.out.dtype)) > cpu::work_size(kStreamBytes);
    tasks = planes * ceil_div(H, chunk.rows);
    threads = min_of(threads, tasks);
    scratch_floats = ceil_div<int64_t>(SliceLayout(p, chunk.rows).floats(p), 16) * 16;
  }
};

}  // namespace

struct Nchw final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.nchw"; }
  std::string why_not(const PoolingProblem& problem, const Device&) const override {
    if (problem.direction != PoolingDirection::backward || problem.mode != PoolingMode::max)
      return "supports the backward pass of mode 'max' only";
    if (problem.x.dtype == DType::float64) return "float64 is not supported";
    if (problem.adaptive) return "adaptive windows of unequal sizes are not supported";
    if (problem.indices.rank) return "indices are not supported";
    if (problem.x.numel() == 0 || problem.dy.numel() == 0) return "x or dy is empty";
    const PoolingProblem p = padded_in_front(problem);
    if (p.window[0] != 1 || p.spatial.stride[0] != 1 || spatial_size(p.x, 0) != spatial_size(p.dy, 0))
      return "three-dimensional windows are not supported";
    for (int i = 1; i < kMaxSpatial; ++i)
      if (p.window[i] > kMostWindow || p.spatial.stride[i] > kMostStride)
        return cat("supports windows of at most ", kMostWindow, " and strides of at most ", kMostStride, "; got ",
                   p.window[i], " and ", p.spatial.stride[i]);
    for (const TensorDesc* d : {&p.x, &p.dy, &p.out})
      if (d->shape[4] != 1 && d->stride[4] != 1) return "needs the last dimension to be contiguous in x, dy and dx";
    for (const TensorDesc* d : {&p.x, &p.out})
      for (int i = 0; i < d->rank; ++i)
        if (d->stride[i] < 0 || (i == 3 && d->shape[4] > d->stride[3] && d->shape[3] > 1))
          return "negative strides and overlapping rows of x and dx are not supported";
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    // Starting and ending the loops takes about 0.2 us per slice of rows (Zen 5, 2026-11-22). For small images,
    // cpu.pooling.nhwc is faster for this reason.
    const Tiling c(p, d.sm_count);
    // With horizontal strides above 2, rows are split and written one element at a time.
    const double of_stride = c.p.spatial.stride[2] <= 2 ? 1 : itemsize(p.x.dtype) == 2 ? 6 : 2;
    return roofline_us(pooling_flop(p) / 160, pooling_bytes(p), d, 0.9) * of_stride +
           0.2 * double(c.tasks) / double(c.threads);
  }
  size_t workspace_bytes(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Tiling c(p, d.sm_count);
    return size_t(c.threads * c.scratch_floats) * sizeof(float);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return make_plan<PoolingProblem>([c = Tiling(p, d.sm_count)](const PoolingArgs& a, void* workspace, Stream) {
      const auto run = cpu::typed_kernels(pooling_nchw_kernels(), c.p.x.dtype);
      const int64_t batch = max_of<int64_t>(c.tasks / (c.threads * 8), 1);
      cpu::parallel_batches(c.tasks, batch, c.threads, [&](int64_t begin, int64_t end, int64_t thread_id) {
        PoolingNchwChunk chunk = c.chunk;
        chunk.begin = begin;
        chunk.end = end;
        run(c.p, a, chunk, static_cast<float*>(workspace) + thread_id * c.scratch_floats);
      });
    });
  }
};

}  // namespace cpu::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cpu::pooling::Nchw>();

}  // namespace minidnn
