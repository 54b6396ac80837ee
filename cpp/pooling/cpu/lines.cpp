// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.lines: max and average pooling of float64, for any strides. A vector has several channels of a window if
// channels are contiguous, else several windows of a line (the last dimension of y). The gradient of max pooling finds
// the maxima of these windows, and then adds dy to dx there.
#include <algorithm>
#include <vector>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pooling/cpu/lines_kernel.h"
#include "cpp/pooling/pooling.h"

namespace minidnn {
namespace cpu::pooling {
namespace {

using minidnn::detail::Position, minidnn::detail::Range;

constexpr int64_t kGrain = 1 << 14;  // the least number of elements that one thread processes
// If channels are contiguous, a task of the gradient has this number of them.
constexpr int64_t kChannels = 64;

struct Tiling {
  PoolingProblem p;
  bool backward, by_channels;
  int64_t channels;             // the channels of a task
  int64_t together;             // the results that a loop computes at most: the channels, or the windows of a line
  int64_t most_taps = 1;        // the largest number of elements of a window inside x
  std::vector<double> counted;  // for averages: the elements that count along the last dimension, for each window
  Range whole{0, 0};            // the windows of a line that are computed by one loop, as none exceeds x
  int64_t tasks, threads;

  Tiling(const PoolingProblem& problem, int64_t cores) : p(padded_in_front(problem)) {
    backward = p.direction == PoolingDirection::backward;
    const TensorDesc& y = windows();
    const int64_t C = p.x.shape[1], columns = spatial_size(y, 2);
    auto is_contiguous = [&](const TensorDesc& d) { return d.stride[1] == 1; };
    by_channels = C > 1 && is_contiguous(y) && is_contiguous(p.out) && is_contiguous(p.x);
    channels = !by_channels ? 1 : backward ? min_of(C, cpu::work_size(kChannels)) : C;
    together = by_channels ? channels : columns;
    tasks = p.x.shape[0] * ceil_div(C, channels) * (backward ? 1 : spatial_size(y, 0) * spatial_size(y, 1));
    threads = std::clamp<int64_t>(max_of(p.x.numel(), y.numel()) / cpu::work_size(kGrain), 1, min_of(cores, tasks));
    if (p.mode != PoolingMode::max)
      for (int64_t q = 0; q < columns; ++q) counted.push_back(double(counted_along(2, q)));
    for (int i = 0; i < kMaxSpatial; ++i) most_taps *= min_of(p.window[i], spatial_size(p.x, i));
    const int64_t before = p.spatial.before[2], stride = p.spatial.stride[2],
                  most = spatial_size(p.x, 2) + before - (p.window[2] - 1) * p.spatial.dilation[2] - 1;
    if (!by_channels && !p.adaptive && most >= 0)
      whole = {min_of(ceil_div(before, stride), columns), min_of(most / stride + 1, columns)};
  }
  const TensorDesc& windows() const { return backward ? p.dy : p.out; }
  // The scratch memory of a thread, in numbers of 8 bytes: `together` results, and two lists of offsets
  int64_t scratch() const { return together + 2 * most_taps; }
  int64_t counted_along(int i, int64_t at) const {
    return p.mode == PoolingMode::avg ? minidnn::detail::counted<PoolingMode::avg>(p, i, at)
                                      : minidnn::detail::counted<PoolingMode::avg_exclude_padding>(p, i, at);
  }
};

// The windows of a line of y, for one channel or several. x and dx may have different strides.
struct Line {
  const Tiling& c;
  const PoolingProblem& p = c.p;
  Position y;
  int64_t channels;
  const double* x = nullptr;  // the gradient of averages does not read x
  double counted_lines = 1;   // the elements of a window that count for an average, along the first two dimensions
  double* results;            // scratch memory
  int64_t *taps, *dx_taps;    // the offsets of the elements of a window in x and in dx, from its first element inside x

  Line(const Tiling& tiling, const PoolingArgs& a, const Position& at, double* scratch)
      : c(tiling), y(at), results(scratch) {
    taps = reinterpret_cast<int64_t*>(scratch + c.together);
    dx_taps = taps + c.most_taps;
    channels = c.by_channels ? min_of(c.channels, p.x.shape[1] - y.c) : 1;
    if (a.x != nullptr) x = static_cast<const double*>(a.x) + y.n * p.x.stride[0] + y.c * p.x.stride[1];
    if (p.mode != PoolingMode::max) counted_lines = double(c.counted_along(0, y.at[0]) * c.counted_along(1, y.at[1]));
  }
  double divisor(int64_t q) const {
    return p.mode == PoolingMode::max ? 1 : max_of(counted_lines * c.counted[size_t(q)], 1.0);
  }

  // Calls visit(q, run, dx) for runs of windows: q is the first of them, and dx the offset in dx of its first element.
  // A run without elements has only a length.
  template <class Visit> void each_run(Visit&& visit) const {
    const Range r0 = minidnn::detail::taps_in_x(p, 0, y.at[0]), r1 = minidnn::detail::taps_in_x(p, 1, y.at[1]);
    const int64_t(&dilation)[kMaxSpatial] = p.spatial.dilation;
    Position first{0,
                   0,
                   {minidnn::detail::first_of(p, 0, y.at[0]) + r0.begin * dilation[0],
                    minidnn::detail::first_of(p, 1, y.at[1]) + r1.begin * dilation[1], 0}};
    const int64_t columns = spatial_size(c.windows(), 2);
    int64_t listed = -1;  // the size along the last dimension of the windows whose elements are listed
    for (int64_t q = 0, n; q < columns; q += n) {
      n = c.whole.has(q) ? c.whole.end - q : 1;
      const Range r2 = minidnn::detail::taps_in_x(p, 2, q);
      PoolingRun run{x, 1, c.by_channels ? channels : n, taps, r0.size() * r1.size() * r2.size()};
      if (!c.by_channels) run.step = p.spatial.stride[2] * p.x.stride[4];
      first.at[2] = minidnn::detail::first_of(p, 2, q) + r2.begin * dilation[2];
      if (run.count > 0 && r2.size() != listed) {
        listed = r2.size();
        int64_t t = 0;
        for (int64_t a = 0; a < r0.size(); ++a)
          for (int64_t b = 0; b < r1.size(); ++b) {
            const Position at{0, 0, {a * dilation[0], b * dilation[1], 0}};
            const int64_t from = at.offset_in(p.x), to = at.offset_in(p.out);
            for (int64_t k = 0; k < listed; ++k, ++t) {
              taps[t] = from + k * dilation[2] * p.x.stride[4];
              dx_taps[t] = to + k * dilation[2] * p.out.stride[4];
            }
          }
      }
      if (run.count > 0 && x != nullptr) run.x += first.offset_in(p.x);
      visit(q, run, first.offset_in(p.out));
    }
  }
};

void forward_line(const Line& l, const PoolingArgs& a) {
  const PoolingProblem& p = l.p;
  const bool is_max = p.mode == PoolingMode::max;
  const auto pool = is_max ? pooling_lines_kernels().max : pooling_lines_kernels().average;
  double* const out = static_cast<double*>(a.out) + l.y.offset_in(p.out);
  const int64_t step = p.out.stride[4];
  l.each_run([&](int64_t q, const PoolingRun& run, int64_t) {
    const bool direct = l.c.by_channels || step == 1 || run.n == 1;
    double* const to = direct ? out + q * step : l.results;
    if (run.count > 0) pool(run, l.divisor(q), to);
    else std::fill_n(to, run.n, is_max ? -INFINITY : 0.0);
    for (int64_t i = 0; !direct && i < run.n; ++i) out[(q + i) * step] = to[i];
  });
}

// Adds the gradients of the windows of a line to dx.
void backward_line(const Line& l, const PoolingArgs& a) {
  const PoolingProblem& p = l.p;
  const PoolingLinesKernels& kernels = pooling_lines_kernels();
  const double* const dy = static_cast<const double*>(a.dy) + l.y.offset_in(p.dy);
  double* const dx = static_cast<double*>(a.out) + l.y.n * p.out.stride[0] + l.y.c * p.out.stride[1];
  const int64_t dy_step = l.c.by_channels ? 1 : p.dy.stride[4];
  const int64_t dx_step = l.c.by_channels ? 1 : p.spatial.stride[2] * p.out.stride[4];
  l.each_run([&](int64_t q, const PoolingRun& run, int64_t first) {
    if (run.count == 0) return;
    const double* const from = dy + q * p.dy.stride[4];
    if (p.mode == PoolingMode::max) {
      int64_t* const numbers = reinterpret_cast<int64_t*>(l.results);
      kernels.argmax(run, numbers);
      for (int64_t i = 0; i < run.n; ++i) dx[first + l.dx_taps[numbers[i]] + i * dx_step] += from[i * dy_step];
      return;
    }
    const double divide_by = l.divisor(q);
    for (int64_t i = 0; i < run.n; ++i) l.results[i] = from[i * dy_step] / divide_by;
    for (int64_t t = 0; t < run.count; ++t) kernels.add_to(l.results, run.n, dx + first + l.dx_taps[t], dx_step);
  });
}

// Computes a line of y, or dx for the channels of a task.
void compute(const Tiling& c, const PoolingArgs& a, int64_t task, double* scratch) {
  const PoolingProblem& p = c.p;
  const TensorDesc& y = c.windows();
  const int64_t lines = spatial_size(y, 0) * spatial_size(y, 1), of_line = c.backward ? 1 : lines;
  const int64_t blocks = ceil_div(p.x.shape[1], c.channels), block = task / of_line;
  Position at{block / blocks, block % blocks * c.channels, {}};
  auto line = [&](int64_t i) {
    at.at[0] = i / spatial_size(y, 1);
    at.at[1] = i % spatial_size(y, 1);
    return Line(c, a, at, scratch);
  };
  if (!c.backward) return forward_line(line(task % lines), a);
  const int64_t channels = c.by_channels ? min_of(c.channels, p.x.shape[1] - at.c) : 1;
  double* const dx = static_cast<double*>(a.out) + at.n * p.out.stride[0] + at.c * p.out.stride[1];
  Position to{};
  for (to.at[0] = 0; to.at[0] < spatial_size(p.out, 0); ++to.at[0])
    for (to.at[1] = 0; to.at[1] < spatial_size(p.out, 1); ++to.at[1])
      if (const int64_t n = spatial_size(p.out, 2), step = p.out.stride[4]; step == channels)
        std::fill_n(dx + to.offset_in(p.out), n * channels, 0.0);
      else
        for (int64_t k = 0; k < n; ++k) std::fill_n(dx + to.offset_in(p.out) + k * step, channels, 0.0);
  for (int64_t i = 0; i < lines; ++i) backward_line(line(i), a);
}

}  // namespace

struct Lines final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.lines"; }
  std::string why_not(const PoolingProblem& p, const Device&) const override {
    if (p.x.dtype != DType::float64) return cat("supports float64 only; got ", minidnn::name(p.x.dtype));
    if (p.mode == PoolingMode::lp) return "mode 'lp' is not supported";
    if (p.indices.rank) return "indices are not supported";
    if (p.x.numel() == 0 || p.out.numel() == 0) return "x or the result is empty";
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p) / 10, pooling_bytes(p), d, 0.4);
  }
  size_t workspace_bytes(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Tiling c(p, d.sm_count);
    return size_t(c.threads * c.scratch()) * sizeof(double);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return make_plan<PoolingProblem>([c = Tiling(p, d.sm_count)](const PoolingArgs& a, void* workspace, Stream) {
      const int64_t batch = max_of<int64_t>(c.tasks / (c.threads * 8), 1);
      cpu::parallel_batches(c.tasks, batch, c.threads, [&](int64_t begin, int64_t end, int64_t thread_id) {
        for (int64_t task = begin; task < end; ++task)
          compute(c, a, task, static_cast<double*>(workspace) + thread_id * c.scratch());
      });
    });
  }
};

}  // namespace cpu::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cpu::pooling::Lines>();

}  // namespace minidnn
