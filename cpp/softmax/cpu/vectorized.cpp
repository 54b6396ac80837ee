// SPDX-License-Identifier: Apache-2.0
// cpu.softmax.vectorized: vectorised softmax, one row or a strip of adjacent columns at a time. Both fit a cache, so x is
// read from memory once, and y is written once.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/non_temporal.h"
#include "cpp/softmax/cpu/vectorized_kernel.h"
#include "cpp/softmax/softmax.h"

namespace minidnn {
namespace cpu::softmax {
namespace {

// The least and the greatest number of columns that are computed together.
constexpr int64_t kNarrowest = 16, kWidest = 256;
// The number of floats per strip of columns. They take 256 KB, half of a second-level cache.
constexpr int64_t kStripFloats = 65536;
// Up to this length of a row, exponentials are kept in scratch memory. For longer rows, each is computed twice.
constexpr int64_t kRowFloats = 131072;
// The least bytes of a row whose gradient is written with non-temporal stores. Its cache lines at both ends are written
// in two parts. Gradients of rows of 968 bytes took twice as long with non-temporal stores as without (2026-11).
constexpr int64_t kStreamedRow = 8192;
constexpr int64_t kGrain = 8192;  // the least number of elements that one thread processes

int64_t whole(int64_t n) { return ceil_div(n, kWholeColumns) * kWholeColumns; }

SoftmaxTiling tiling_of(const SoftmaxProblem& p) {
  const bool backward = p.direction == SoftmaxDirection::backward;
  std::vector<TensorDesc> tensors{p.in, p.out};
  if (backward) tensors.push_back(p.dy);
  const auto have_stride = [&](int64_t i, int64_t stride) {
    return std::ranges::all_of(tensors, [&](const TensorDesc& d) { return d.stride[i] == stride; });
  };
  const auto equal_strides = [&](const TensorDesc& d) { return same_strides(d, p.in); };
  const std::vector<int> dims = outer_dims(p);
  SoftmaxTiling c{};
  c.cols = p.cols();
  c.inner = 1;
  const bool rows = c.cols > 1 && have_stride(p.axis, 1);
  size_t adjacent = 0;  // the number of dimensions whose elements are adjacent in all tensors
  if (!rows)
    for (; adjacent < dims.size() && have_stride(dims[adjacent], c.inner); ++adjacent)
      c.inner *= p.in.shape[dims[adjacent]];
  c.outer = p.rows() / c.inner;
  const std::span<const int> outer = std::span(dims).subspan(adjacent);
  c.in = row_layout(p, p.in, outer);
  c.out = row_layout(p, p.out, outer);
  if (backward) c.dy = row_layout(p, p.dy, outer);
  c.masked = p.masked;
  if (p.masked != SoftmaxMask::none) c.mask = row_layout(p, p.mask, outer);
  c.log = p.log;
  c.dense = is_dense(p.in) && std::ranges::all_of(tensors, equal_strides);
  const int64_t item = itemsize(p.in.dtype);
  const bool blocks = c.dense && p.in.dtype != DType::float64;  // whether the problem may be divided into blocks
  const bool whole_rows = rows && (c.cols > kLongestShortRow || p.masked != SoftmaxMask::none || !blocks);
  const bool streams = whole_rows ? !backward || c.cols * item >= cpu::work_size(kStreamedRow) : c.dense;
  c.non_temporal = streams && cpu::non_temporal(double(p.in.numel() * item));
  if (whole_rows) {
    c.kind = SoftmaxTiling::rows;
    c.items = c.outer;
    bool keeps = !backward && (c.cols <= cpu::work_size(kRowFloats) || p.masked != SoftmaxMask::none);
    c.scratch_numbers = keeps ? max_of(whole(c.cols), kWidest) + 2 * kWholeColumns : kWidest;
    return c;
  }
  int64_t widest =
      min_of(max_of(cpu::work_size(kStripFloats) / c.cols / kWholeColumns * kWholeColumns, kWholeColumns), kWidest);
  if (c.inner >= kNarrowest || !blocks) {
    c.kind = SoftmaxTiling::strips;
    int64_t strips = ceil_div(c.inner, widest);
    c.width = whole(ceil_div(c.inner, strips));  // All strips (groups of adjacent columns) get nearly the same width.
    c.items = c.outer * ceil_div(c.inner, c.width);
    c.scratch_numbers = backward ? 0 : c.cols * c.width;
  } else {
    c.kind = SoftmaxTiling::blocks;
    int64_t outers = min_of(widest / c.inner, c.outer);
    c.width = outers * c.inner;
    c.items = ceil_div(c.outer, outers);
    c.scratch_numbers = 3 * (c.cols * whole(c.width) + kWholeColumns) + kWidest;
  }
  return c;
}

}  // namespace

struct Vectorized final : Engine<SoftmaxProblem> {
  std::string name() const override { return "cpu.softmax.vectorized"; }
  std::string why_not(const SoftmaxProblem& p, const Device&) const override {
    if (p.masked == SoftmaxMask::none) return "";
    if (p.cols() == 1 || p.in.stride[p.axis] != 1 || p.out.stride[p.axis] != 1 || p.mask.stride[p.axis] != 1)
      return "needs an axis of at least two elements that is contiguous in the tensors and the mask";
    if (p.cols() > kRowFloats)
      return cat("supports masks of at most ", kRowFloats, " elements along axis; got ", p.cols());
    return "";
  }
  // The estimate assumes twice the rates of the device (copy_gb_s and fp32_gflop_s). The estimate of
  // cpu.softmax.reference assumes 0.2 times these rates. This engine is faster, because it computes 8 or 16
  // exponentials at a time (measured on 2 Zen 3 cores, 2026-11).
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    const SoftmaxTiling c = tiling_of(p);
    const double threads_at_work = std::min(1.0, double(c.items) / std::max(d.sm_count, 1));
    // Loops compute whole vectors, and half as many doubles at a time. Starting the loops over a row takes as long as
    // about 40 elements.
    const double useful = c.kind == SoftmaxTiling::strips ? double(c.inner) / double(whole(c.inner))
                          : c.kind == SoftmaxTiling::rows ? double(c.cols) / double(c.cols + 40)
                                                          : 1;
    const double narrow = p.in.dtype == DType::float64 ? 0.4 : 1;
    return roofline_us(softmax_flop(p), softmax_bytes(p), d, 2 * useful * narrow * threads_at_work);
  }
  size_t workspace_bytes(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    return size_t(threads_for(p, d) * scratch_bytes(p, tiling_of(p)));
  }
  std::unique_ptr<Plan<SoftmaxProblem>> build(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    const SoftmaxTiling tiling = tiling_of(p);
    const SoftmaxLoops& loops = tiling.kind == SoftmaxTiling::rows     ? softmax_row_loops()
                                : tiling.kind == SoftmaxTiling::strips ? softmax_strip_loops()
                                                                       : softmax_block_loops();
    const bool backward = p.direction == SoftmaxDirection::backward;
    const SoftmaxLoop loop = (backward ? loops.backward : loops.forward)[int64_t(p.in.dtype)];
    const int64_t threads = threads_for(p, d), scratch = scratch_bytes(p, tiling);
    // A thread fetches `batch` items (rows, or groups of rows or columns) at a time.
    const int64_t batch = max_of<int64_t>(tiling.items / (threads * 8), 1);
    return make_plan<SoftmaxProblem>([=](const SoftmaxArgs& a, void* workspace, Stream) {
      cpu::parallel_batches(tiling.items, batch, threads, [&](int64_t begin, int64_t end, int64_t thread) {
        loop(tiling, a, static_cast<char*>(workspace) + thread * scratch, begin, end);
      });
    });
  }

 private:
  static int64_t scratch_bytes(const SoftmaxProblem& p, const SoftmaxTiling& c) {
    return round_up(c.scratch_numbers * itemsize(sum_dtype(p.in.dtype)), 64);
  }
  static int64_t threads_for(const SoftmaxProblem& p, const Device& d) {
    int64_t worth = max_of<int64_t>(p.in.numel() / cpu::work_size(kGrain), 1);
    return min_of(min_of<int64_t>(worth, tiling_of(p).items), int64_t(d.sm_count));
  }
};

}  // namespace cpu::softmax

SoftmaxSums row_exponentials(const float* x, float* e, int64_t n, float scale) {
  return softmax_row_steps().exponentials(x, e, n, scale);
}
void softmax_short_rows(SoftmaxDirection direction, bool log, const SoftmaxArgs& a, int64_t rows, int64_t cols) {
  SoftmaxTiling tiling{.kind = SoftmaxTiling::blocks, .outer = rows, .cols = cols, .inner = 1, .width = rows};
  tiling.log = log;
  tiling.dense = 1;
  const SoftmaxLoops& loops = softmax_block_loops();
  const bool backward = direction == SoftmaxDirection::backward;
  (backward ? loops.backward : loops.forward)[int64_t(DType::float32)](tiling, a, nullptr, 0, 1);
}
float softmax_gradient_sum(const float* y, const float* dy, int64_t n, bool log) {
  return softmax_row_steps().gradient_sum(y, dy, n, log);
}
void softmax_gradient_span(const float* y, const float* dy, float* dx, int64_t n, bool log, float sum, float scale) {
  softmax_row_steps().gradient(y, dy, dx, n, log, sum, scale);
}

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cpu::softmax::Vectorized>();

}  // namespace minidnn
