// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.places: maxima and where they are, a line of columns or all channels of a pixel at a time; and backward,
// what these places get, each plane's sums kept where a core's cache holds them. Backward looks at every window once.
#include "cpp/cpu/threads.h"
#include "cpp/cpu/typed_kernels.h"
#include "cpp/cpu/work_size.h"
#include "cpp/pooling/pooling.h"
#include "cpp/pooling/pooling_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 1 << 14;         // elements that a thread is worth waking for
constexpr int64_t kSumsOfPlanes = 1 << 16;  // that are kept, of several planes where channels are contiguous

constexpr int64_t kBeyond = 16;  // that vectors may read past a line's end

struct Cut {
  PoolingProblem p;
  bool by_channels = false;                  // these are contiguous in all tensors
  PoolingKernels::TakeLarger take_larger;    // but in float64
  int64_t plane = 1;                         // elements of x's
  int64_t channels = 1, blocks = 1;          // backward: of a task, and tasks of an image
  bool in_place = false;                     // dx lies as a task's sums do, and is of their type
  int64_t tasks = 0, threads = 1, room = 0;  // bytes a thread

  Cut(const PoolingProblem& problem, int64_t cores)
      : p(padded_in_front(problem)), take_larger(cpu::typed_kernels(pooling_kernels(), p.x.dtype).take_larger) {
    const bool backward = p.direction == PoolingDirection::backward;
    const TensorDesc &windows = backward ? p.dy : p.out, &other = backward ? p.out : p.x;
    const int64_t C = p.x.shape[1], item = p.x.dtype == DType::float64 ? 8 : 4;
    by_channels = C > 1 && windows.stride[1] == 1 && other.stride[1] == 1 && p.indices.stride[1] == 1;
    for (int i = 0; i < kMaxSpatial; ++i) plane *= spatial_size(p.x, i);
    if (backward) {
      in_place = int64_t(itemsize(p.out.dtype)) == item;
      int64_t step = by_channels ? C : 1;
      for (int i = kMaxSpatial; i-- > 0; step *= spatial_size(p.out, i))
        in_place = in_place && (p.out.stride[i + 2] == step || spatial_size(p.out, i) == 1);
      if (by_channels) channels = in_place ? C : std::clamp<int64_t>(cpu::work_size(kSumsOfPlanes) / plane, 1, C);
      blocks = ceil_div(C, channels);
      tasks = p.x.shape[0] * blocks, room = in_place ? 0 : plane * channels * item;
    } else {
      const int64_t lines = spatial_size(p.out, 0) * spatial_size(p.out, 1);
      tasks = p.x.shape[0] * lines * (by_channels ? 1 : C);
      room = ((by_channels ? C : spatial_size(p.out, 2)) + kBeyond) * (item + 4);
    }
    room = ceil_div<int64_t>(room, 64) * 64;
    threads =
        std::clamp<int64_t>(max_of(p.x.numel(), windows.numel()) / cpu::work_size(kGrain), 1, min_of(cores, tasks));
  }
};

// PoolingKernels::take_larger in float64.
void take_larger(double* largest, int32_t* where, int64_t n, const void* from, int64_t step, int32_t index,
                 int32_t apart) {
  const double* x = static_cast<const double*>(from);
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i * step];
    if (v > largest[i] || (v != v && largest[i] == largest[i]) || where[i] < 0)
      largest[i] = v, where[i] = index + int32_t(i) * apart;
  }
}

// A line of y: [image, first two positions], all channels; or one channel's.
template <class T, class Index> void forward(const Cut& c, const PoolingArgs& a, int64_t task, char* room) {
  using Acc = Accumulator<T>;
  const PoolingProblem& p = c.p;
  detail::Position y{};
  const int64_t rows = spatial_size(p.out, 1), columns = spatial_size(p.out, 2), C = p.x.shape[1];
  y.at[1] = task % rows, task /= rows;
  y.at[0] = task % spatial_size(p.out, 0), task /= spatial_size(p.out, 0);
  if (!c.by_channels) y.c = task % C, task /= C;
  y.n = task;
  const int64_t together = c.by_channels ? C : columns;
  Acc* largest = reinterpret_cast<Acc*>(room);
  auto where = reinterpret_cast<int32_t*>(largest + together + kBeyond);
  const T* channel = static_cast<const T*>(a.x) + y.n * p.x.stride[0] + y.c * p.x.stride[1];
  auto take = [&] {
    if constexpr (std::is_same_v<T, double>) return &take_larger;
    else return c.take_larger;
  }();
  auto begin = [&] {
    std::fill_n(largest, together, Acc(-INFINITY));
    std::fill_n(where, together, -1);
  };
  auto store = [&](int64_t step_y, int64_t step_index) {
    T* to = static_cast<T*>(a.out) + y.offset_in(p.out);
    Index* index = static_cast<Index*>(a.indices) + y.offset_in(p.indices);
    for (int64_t i = 0; i < together; ++i) to[i * step_y] = T(largest[i]), index[i * step_index] = Index(where[i]);
  };
  if (c.by_channels) {
    for (y.at[2] = 0; y.at[2] < columns; ++y.at[2]) {
      begin();
      detail::each_tap(p, y.at, [&](int64_t offset, int64_t, int64_t index) {
        take(largest, where, C, channel + offset, 1, int32_t(index), 0);
        return true;
      });
      store(1, 1);
    }
    return;
  }
  begin();
  const detail::Range r0 = detail::taps_in_x(p, 0, y.at[0]), r1 = detail::taps_in_x(p, 1, y.at[1]);
  const int64_t width = spatial_size(p.x, 2), stride = p.spatial.stride[2], step = stride * p.x.stride[4];
  for (int64_t u = r0.begin; u < r0.end; ++u)
    for (int64_t v = r1.begin; v < r1.end; ++v) {
      const int64_t i = p.spatial.input_index(0, y.at[0], u), j = p.spatial.input_index(1, y.at[1], v);
      const T* line = channel + i * p.x.stride[2] + j * p.x.stride[3];
      for (int64_t w = 0; w < p.window[2]; ++w) {
        const int64_t at = p.spatial.input_index(2, 0, w);  // of the first window; of the first and last in x:
        const int64_t first = at < 0 ? ceil_div(-at, stride) : 0,
                      last = min_of(columns, at < width ? (width - 1 - at) / stride + 1 : 0);
        if (first < last)
          take(largest + first, where + first, last - first, line + (at + first * stride) * p.x.stride[4], step,
               int32_t((i * spatial_size(p.x, 1) + j) * width + at + first * stride), int32_t(stride));
      }
    }
  store(p.out.stride[4], p.indices.stride[4]);
}

// dx of a plane, or of some channels side by side.
template <class T, class Index> void backward(const Cut& c, const PoolingArgs& a, int64_t task, char* room) {
  using Acc = Accumulator<T>;
  const PoolingProblem& p = c.p;
  const int64_t n = task / c.blocks, first = task % c.blocks * c.channels,
                channels = min_of(c.channels, p.x.shape[1] - first);
  Acc* sums = reinterpret_cast<Acc*>(room);
  if constexpr (std::is_same_v<T, Acc>)
    if (c.in_place) sums = static_cast<T*>(a.out) + n * p.out.stride[0] + first * p.out.stride[1];
  std::fill_n(sums, c.plane * channels, Acc(0));
  // Lines of the last dimension, from where it begins.
  auto each_line = [&](const TensorDesc& d, auto&& visit) {
    detail::Position at{n, first, {}};
    for (at.at[0] = 0; at.at[0] < spatial_size(d, 0); ++at.at[0])
      for (at.at[1] = 0; at.at[1] < spatial_size(d, 1); ++at.at[1]) visit(at);
  };
  const int64_t windows = spatial_size(p.dy, 2), columns = spatial_size(p.out, 2);
  each_line(p.dy, [&](const detail::Position& y) {
    const T* dy = static_cast<const T*>(a.dy) + y.offset_in(p.dy);
    const Index* index = static_cast<const Index*>(a.indices) + y.offset_in(p.indices);
    const int64_t step = p.dy.stride[4], index_step = p.indices.stride[4];
    if (channels == 1) {
      for (int64_t q = 0; q < windows; ++q, dy += step, index += index_step)
        if (uint64_t(*index) < uint64_t(c.plane)) sums[*index] += Acc(*dy);
    } else {
      for (int64_t q = 0; q < windows; ++q, dy += step, index += index_step)
        for (int64_t k = 0; k < channels; ++k)
          if (uint64_t(index[k]) < uint64_t(c.plane)) sums[int64_t(index[k]) * channels + k] += Acc(dy[k]);
    }
  });
  if (c.in_place) return;
  const Acc* from = sums;
  each_line(p.out, [&](const detail::Position& x) {
    T* to = static_cast<T*>(a.out) + x.offset_in(p.out);
    const int64_t step = p.out.stride[4];
    if (channels == 1 && step == 1) {
      for (int64_t w = 0; w < columns; ++w) to[w] = T(from[w]);
    } else {
      for (int64_t w = 0; w < columns; ++w)
        for (int64_t k = 0; k < channels; ++k) to[w * step + k] = T(from[w * channels + k]);
    }
    from += columns * channels;
  });
}

struct Places final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.places"; }
  std::string why_not(const PoolingProblem& p, const Device&) const override {
    if (p.indices.rank == 0) return "writes and reads indices, which are not asked for";
    if (p.adaptive) return "slides windows of one size, and adaptive ones are of several";
    if (p.x.numel() == 0 || p.out.numel() == 0) return "there is nothing to find";
    const Cut c(p, 1);
    if (c.plane > 0x7fffffff) return cat("counts 2^31 - 1 elements of a plane; there are ", c.plane);
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p) / 10, pooling_bytes(p), d, 0.4);
  }
  size_t workspace_bytes(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Cut c(p, d.sm_count);
    return size_t(c.threads * c.room);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return make_plan<PoolingProblem>([c = Cut(p, d.sm_count)](const PoolingArgs& a, void* workspace, Stream) {
      with_floating(c.p.x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const bool back = c.p.direction == PoolingDirection::backward, wide = c.p.indices.dtype == DType::int64;
        const auto run = back ? (wide ? &backward<T, int64_t> : &backward<T, int32_t>)
                              : (wide ? &forward<T, int64_t> : &forward<T, int32_t>);
        cpu::parallel_for(c.threads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t thread = begin; thread < end; ++thread)
            for (int64_t task = c.tasks * thread / c.threads; task < c.tasks * (thread + 1) / c.threads; ++task)
              run(c, a, task, static_cast<char*>(workspace) + thread * c.room);
        });
      });
    });
  }
};

}  // namespace

const Engine<PoolingProblem>& pooling_places() {
  static const Places engine;
  return engine;
}

}  // namespace minidnn
