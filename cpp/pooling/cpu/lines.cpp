// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.lines: max and average pooling of float64, for any strides. A loop runs over the channels of a window if
// these are contiguous, else over the windows of a line (the last dimension of y), once for each element of a window.
// The gradient of max pooling finds the maxima of a line of windows, and then adds dy to dx there.
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
  int64_t channels;  // the channels of a task
  // The elements that a loop computes: the channels of a task, or the windows of a line.
  int64_t together;
  std::vector<double> counted;  // for averages: the elements that count along the last dimension, for each window
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
  }
  const TensorDesc& windows() const { return backward ? p.dy : p.out; }
  int64_t scratch() const { return 2 * together; }  // numbers of 8 bytes per thread
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

  Line(const Tiling& tiling, const PoolingArgs& a, const Position& at) : c(tiling), y(at) {
    channels = c.by_channels ? min_of(c.channels, p.x.shape[1] - y.c) : 1;
    if (a.x != nullptr) x = static_cast<const double*>(a.x) + y.n * p.x.stride[0] + y.c * p.x.stride[1];
    if (p.mode != PoolingMode::max) counted_lines = double(c.counted_along(0, y.at[0]) * c.counted_along(1, y.at[1]));
  }
  double divisor(int64_t q) const { return max_of(counted_lines * c.counted[size_t(q)], 1.0); }

  // Calls visit(first, n, position, step) for each element of the windows of a line: it is inside x in the n windows
  // from `first` on, at `position` in the first of them and `step` positions further in each other one. If channels are
  // contiguous, n is 1.
  template <class Visit> void each_element(Visit&& visit) const {
    const Range r0 = minidnn::detail::taps_in_x(p, 0, y.at[0]), r1 = minidnn::detail::taps_in_x(p, 1, y.at[1]);
    const int64_t i0 = minidnn::detail::first_of(p, 0, y.at[0]), j0 = minidnn::detail::first_of(p, 1, y.at[1]);
    auto each_line = [&](auto&& of_line) {
      for (int64_t a = r0.begin; a < r0.end; ++a)
        for (int64_t b = r1.begin; b < r1.end; ++b)
          of_line(i0 + a * p.spatial.dilation[0], j0 + b * p.spatial.dilation[1]);
    };
    const int64_t columns = spatial_size(c.windows(), 2), width = spatial_size(p.x, 2), stride = p.spatial.stride[2];
    if (c.by_channels || p.adaptive) {
      for (int64_t q = 0; q < columns; ++q) {
        const Range r2 = minidnn::detail::taps_in_x(p, 2, q);
        const int64_t k0 = minidnn::detail::first_of(p, 2, q);
        each_line([&](int64_t i, int64_t j) {
          for (int64_t w = r2.begin; w < r2.end; ++w)
            visit(q, int64_t(1), Position{0, 0, {i, j, k0 + w * p.spatial.dilation[2]}}, int64_t(0));
        });
      }
      return;
    }
    // The columns of the window that are inside x in some window of the line.
    const int64_t before = p.spatial.before[2], dilation = p.spatial.dilation[2];
    const int64_t begin = ceil_div(max_of<int64_t>(before - (columns - 1) * stride, 0), dilation);
    const int64_t end = min_of(p.window[2], ceil_div(width + before, dilation));
    each_line([&](int64_t i, int64_t j) {
      for (int64_t w = begin; w < end; ++w) {
        const int64_t k = p.spatial.input_index(2, 0, w);
        const int64_t first = k < 0 ? ceil_div(-k, stride) : 0;
        const int64_t last = min_of(columns, k < width ? (width - 1 - k) / stride + 1 : 0);
        if (first < last) visit(first, last - first, Position{0, 0, {i, j, k + first * stride}}, stride);
      }
    });
  }
};

void forward_line(const Line& l, const PoolingArgs& a, double* values) {
  const PoolingProblem& p = l.p;
  const bool is_max = p.mode == PoolingMode::max, by_channels = l.c.by_channels;
  const auto join = is_max ? pooling_lines_kernels().max : pooling_lines_kernels().add;
  double* const out = static_cast<double*>(a.out) + l.y.offset_in(p.out);
  const int64_t columns = spatial_size(p.out, 2), step = p.out.stride[4];
  auto begin = [&](double* to, int64_t n) { std::fill_n(to, n, is_max ? -INFINITY : 0.0); };
  if (by_channels)
    for (int64_t q = 0; q < columns; ++q) begin(out + q * step, l.channels);
  else begin(values, columns);
  l.each_element([&](int64_t q, int64_t n, const Position& at, int64_t positions) {
    const double* x = l.x + at.offset_in(p.x);
    if (by_channels) join(out + q * step, l.channels, x, 1);
    else join(values + q, n, x, positions * p.x.stride[4]);
  });
  for (int64_t q = 0; q < columns; ++q) {
    const double divide_by = is_max ? 1 : l.divisor(q);
    if (!by_channels) out[q * step] = values[q] / divide_by;
    else if (!is_max)
      for (int64_t k = 0; k < l.channels; ++k) out[q * step + k] /= divide_by;
  }
}

// Adds the gradients of the windows of a line to dx.
void backward_line(const Line& l, const PoolingArgs& a, double* values, int64_t* where) {
  const PoolingProblem& p = l.p;
  const PoolingLinesKernels& kernels = pooling_lines_kernels();
  const bool by_channels = l.c.by_channels, is_max = p.mode == PoolingMode::max;
  const double* const dy = static_cast<const double*>(a.dy) + l.y.offset_in(p.dy);
  double* const dx = static_cast<double*>(a.out) + l.y.n * p.out.stride[0] + l.y.c * p.out.stride[1];
  const int64_t columns = spatial_size(p.dy, 2), step = p.dy.stride[4];
  int64_t column = -1;  // by channels: the window whose numbers are in `values`
  auto begin = [&](int64_t q, int64_t n, int64_t from_step) {
    for (int64_t i = 0; i < n; ++i) {
      values[i] = is_max ? -INFINITY : dy[q * step + i * from_step] / l.divisor(by_channels ? q : q + i);
      where[i] = kNoMaximum;
    }
  };
  auto add_at_maxima = [&](int64_t q, int64_t n, int64_t from_step) {
    for (int64_t i = 0; is_max && i < n; ++i)
      if (where[i] != kNoMaximum) dx[where[i]] += dy[q * step + i * from_step];
  };
  if (!by_channels) begin(0, columns, step);
  l.each_element([&](int64_t q, int64_t n, const Position& at, int64_t positions) {
    if (by_channels && q != column) {
      if (column >= 0) add_at_maxima(column, l.channels, 1);
      begin(q, l.channels, 1);
      column = q;
    }
    const int64_t to = at.offset_in(p.out), count = by_channels ? l.channels : n, first = by_channels ? 0 : q;
    const int64_t x_step = by_channels ? 1 : positions * p.x.stride[4],
                  dx_step = by_channels ? 1 : positions * p.out.stride[4];
    if (is_max) kernels.maxima(values + first, where + first, count, l.x + at.offset_in(p.x), x_step, to, dx_step);
    else kernels.add_to(values + first, count, dx + to, dx_step);
  });
  if (!by_channels) add_at_maxima(0, columns, step);
  else if (column >= 0) add_at_maxima(column, l.channels, 1);
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
    return Line(c, a, at);
  };
  if (!c.backward) return forward_line(line(task % lines), a, scratch);
  const int64_t channels = c.by_channels ? min_of(c.channels, p.x.shape[1] - at.c) : 1;
  double* const dx = static_cast<double*>(a.out) + at.n * p.out.stride[0] + at.c * p.out.stride[1];
  Position to{};
  for (to.at[0] = 0; to.at[0] < spatial_size(p.out, 0); ++to.at[0])
    for (to.at[1] = 0; to.at[1] < spatial_size(p.out, 1); ++to.at[1])
      if (const int64_t n = spatial_size(p.out, 2), step = p.out.stride[4]; step == channels)
        std::fill_n(dx + to.offset_in(p.out), n * channels, 0.0);
      else
        for (int64_t k = 0; k < n; ++k) std::fill_n(dx + to.offset_in(p.out) + k * step, channels, 0.0);
  for (int64_t i = 0; i < lines; ++i)
    backward_line(line(i), a, scratch, reinterpret_cast<int64_t*>(scratch + c.together));
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
