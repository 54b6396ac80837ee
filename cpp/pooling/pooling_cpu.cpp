// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.lines: whole lines of windows at a time, along the channels where these lie beside each other, else along
// the last dimension. Threads share out lines of y, and backward planes of dx, or slabs of them, with room of their own.
#include <atomic>

#include "cpp/cpu/threads.h"
#include "cpp/pooling/pooling.h"
#include "cpp/pooling/pooling_kernels.h"

namespace minidnn {
namespace {

constexpr double kGrain = 16384;            // elements a thread is worth waking for
constexpr int64_t kRoomFloats = 64 << 10;   // of the windows of a slab, which stay in a core's cache
constexpr int64_t kStreamBytes = 12 << 20;  // a larger dx is written past the caches, as in cpp/norm/norm_cpu.cpp

// With three spatial dimensions.
TensorDesc padded_in_front(const TensorDesc& d) {
  TensorDesc full{d.dtype, 2 + kMaxSpatial};
  for (int i = 0; i < full.rank; ++i) full.shape[i] = 1;
  for (int64_t i = 0; i < d.rank; ++i) {
    const int64_t to = i < 2 ? i : i + full.rank - d.rank;
    full.shape[to] = d.shape[i], full.stride[to] = d.stride[i];
  }
  return full;
}
PoolingProblem padded_in_front(const PoolingProblem& p) {
  PoolingProblem full{p.direction, p.mode, p.ceil_mode};
  full.x = padded_in_front(p.x), full.out = padded_in_front(p.out);
  full.dy = p.direction == PoolingDirection::backward ? padded_in_front(p.dy) : full.out;
  const int64_t missing = kMaxSpatial + 2 - p.x.rank;
  for (int64_t i = 0; i + missing < kMaxSpatial; ++i) {
    full.window[i + missing] = p.window[i];
    full.spatial.stride[i + missing] = p.spatial.stride[i];
    full.spatial.before[i + missing] = p.spatial.before[i];
    full.spatial.after[i + missing] = p.spatial.after[i];
    full.spatial.dilation[i + missing] = p.spatial.dilation[i];
  }
  return full;
}

bool is_backward(const PoolingProblem& p) { return p.direction == PoolingDirection::backward; }

// Whether dimension `dim` is contiguous in all tensors that are read or written.
bool lines_along(const PoolingProblem& p, int dim) {
  auto along = [&](const TensorDesc& d) { return d.stride[dim] == 1 || d.shape[dim] == 1; };
  const bool reads_x = !is_backward(p) || p.mode == PoolingMode::max;
  return along(p.out) && along(p.dy) && (!reads_x || along(p.x));
}

struct Cut {
  PoolingProblem p;
  bool by_channels;
  int64_t tasks, chunks = 1;  // a task is an item of pooling_kernels.h, or a chunk of its channels
  PoolingShare share{};
  int64_t batch, threads;
  int64_t room;  // a thread's, in floats
};

Cut cut_of(const PoolingProblem& problem, const Device& d) {
  Cut c{padded_in_front(problem)};
  const PoolingProblem& p = c.p;
  const int64_t N = p.x.shape[0], C = p.x.shape[1];
  c.by_channels = lines_along(p, 1) && (C > 1 || !lines_along(p, 4));
  c.share.channels = C;
  if (!is_backward(p)) {
    const int64_t lines = N * spatial_size(p.out, 0) * spatial_size(p.out, 1);
    if (c.by_channels) {
      // Few lines: threads share out their channels as well, a few cache lines of them at least.
      constexpr int64_t kFewest = 128;
      c.chunks = std::clamp<int64_t>(ceil_div<int64_t>(4 * d.sm_count, lines), 1, max_of<int64_t>(C / kFewest, 1));
      c.share.channels = ceil_div(ceil_div(C, c.chunks), kFewest) * kFewest;
      c.chunks = ceil_div(C, c.share.channels);
      c.tasks = lines * c.chunks;
      c.room = pooling::channels_forward_room(min_of(C, c.share.channels));
    } else {
      c.tasks = lines * C;
      c.room = pooling::rows_forward_room(p);
    }
  } else if (c.by_channels) {
    int axis = 0;
    while (axis + 1 < kMaxSpatial && spatial_size(p.x, axis) == 1) ++axis;
    const int64_t size = spatial_size(p.x, axis), stride = p.spatial.stride[axis];
    int64_t others = 1;  // windows at one position of the axis
    for (int i = axis + 1; i < kMaxSpatial; ++i) others *= spatial_size(p.dy, i);
    const int64_t line = others * pooling::padded(C);
    int64_t step = max_of<int64_t>(kRoomFloats / line, 2) * stride;
    while (step > 2 * stride && N * ceil_div(size, step) < 2 * d.sm_count) step = ceil_div<int64_t>(step, 2);
    step = min_of(step, size);
    c.share.axis = axis, c.share.step = step;
    c.tasks = N * ceil_div(size, step);
    const int64_t reach = (p.window[axis] - 1) * p.spatial.dilation[axis];
    c.room =
        pooling::channels_backward_room(p, min_of((step - 1 + reach) / stride + 1, spatial_size(p.dy, axis)) * others,
                                        axis == 2 ? step : spatial_size(p.x, 2));
  } else {
    c.tasks = N * C;
    c.room = pooling::rows_backward_room(p);
  }
  c.share.stream = is_backward(p) && double(p.out.numel()) * double(itemsize(p.out.dtype)) > kStreamBytes;
  const double work = double(max_of(p.x.numel(), max_of(p.out.numel(), p.dy.numel())));
  c.threads = std::clamp<int64_t>(int64_t(work / kGrain), 1, min_of<int64_t>(d.sm_count, c.tasks));
  c.batch = max_of<int64_t>(c.tasks / (c.threads * 8), 1);
  return c;
}

const PoolingKernels::Typed& kernels_of(DType dtype) {
  const PoolingKernels& k = pooling_kernels();
  return dtype == DType::float32 ? k.f32 : dtype == DType::bfloat16 ? k.bf16 : k.f16;
}

void compute(const Cut& c, const PoolingArgs& args, float* workspace) {
  const PoolingKernels::Typed& kernels = kernels_of(c.p.x.dtype);
  const auto run = is_backward(c.p) ? (c.by_channels ? kernels.channels_backward : kernels.rows_backward)
                                    : (c.by_channels ? kernels.channels_forward : kernels.rows_forward);
  std::atomic<int64_t> next = 0;
  cpu::parallel_for(c.threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t thread = first; thread < last; ++thread)
      for (int64_t begin; (begin = next.fetch_add(c.batch)) < c.tasks;) {
        const int64_t end = min_of(begin + c.batch, c.tasks);
        PoolingShare share = c.share;
        float* room = workspace + thread * c.room;
        if (c.chunks == 1) {
          share.begin = begin, share.end = end;
          share.channels = c.p.x.shape[1];
          run(c.p, args, share, room);
        } else {
          for (int64_t task = begin; task < end; ++task) {
            share.begin = task / c.chunks, share.end = share.begin + 1;
            share.first_channel = task % c.chunks * c.share.channels;
            share.channels = min_of(c.share.channels, c.p.x.shape[1] - share.first_channel);
            run(c.p, args, share, room);
          }
        }
      }
  });
}

struct Lines final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.lines"; }
  std::string why_not(const PoolingProblem& problem, const Device&) const override {
    if (problem.x.dtype == DType::float64) return "computes in float32, and x is float64";
    if (problem.x.numel() == 0) return "x is empty, and no line of it can be read";
    const PoolingProblem p = padded_in_front(problem);
    const bool by_channels = lines_along(p, 1);
    if (!by_channels && !lines_along(p, 4))
      return "reads vectors: the channels, or the last dimension, must be contiguous in x, y, dy and dx alike";
    int64_t over = 1, taps = 1;
    for (int i = 0; i < kMaxSpatial; ++i) {
      over *= pooling::most_windows_over(p, i);
      taps *= p.window[i];
      constexpr int64_t kMost = 1 << 24;
      if (taps > kMost || p.spatial.before[i] > kMost || over > kMost)
        return cat("indices are 32 bits wide: a window has, and padding is, at most ", kMost, " elements");
    }
    if (is_backward(p) && over > pooling::kMaxWindowsOver)
      return cat("adds up the gradients of at most ", pooling::kMaxWindowsOver,
                 " windows at an element of x; here are up to ", over);
    if (by_channels && p.x.shape[1] > 1) return "";
    constexpr int64_t kLongest = 1 << 24;
    const int64_t line = max_of(pooling::line_span(p), p.spatial.stride[2]);
    if (line > kLongest)
      return cat("a line and its padding must fit in a room of ", kLongest, " elements; here are ", line);
    if (is_backward(p) && p.x.numel() / p.x.shape[0] / p.x.shape[1] > INT32_MAX)
      return "indices in a plane of x are 32 bits wide";
    constexpr int64_t kPlain = 64;
    if (!is_backward(p) && p.mode != PoolingMode::max && !pooling::sees_all_as_a_run(p) &&
        (p.window[0] * p.window[1] > kPlain || p.window[2] > kPlain))
      return cat("a window that is not all of a plane is summed plainly, up to ", kPlain, " elements along a line and ",
                 kPlain, " lines");
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p) / 80, pooling_bytes(p), d, 0.8);
  }
  size_t workspace_bytes(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Cut c = cut_of(p, d);
    return size_t(c.threads * c.room) * sizeof(float);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return make_plan<PoolingProblem>([c = cut_of(p, d)](const PoolingArgs& args, void* workspace, Stream) {
      compute(c, args, static_cast<float*>(workspace));
    });
  }
};

}  // namespace

const Engine<PoolingProblem>& pooling_lines() {
  static const Lines engine;
  return engine;
}

}  // namespace minidnn
