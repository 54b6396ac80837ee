// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.max_with_indices: max pooling with indices. The inner loops run over channels if these are contiguous,
// else over a line of y (its last dimension). The gradient reads dy and the index of each window once, and adds dy to
// the element of dx with that index. The sums of a plane (H x W of one channel) fit the cache of a core.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/pooling/cpu/max_with_indices_kernel.h"
#include "cpp/pooling/pooling.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace cpu::pooling {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least number of elements that one thread processes
// If channels are contiguous, the gradient computes several of them together, about this number of elements of dx.
constexpr int64_t kSumsOfPlanes = 1 << 16;

constexpr int64_t kMostPlane = 0x7fffffff;

constexpr int64_t kBeyond = 16;  // the number of elements after the end of a buffer that vectors may access

struct Tiling {
  PoolingProblem p;
  bool by_channels = false;  // whether channels are contiguous in all tensors
  // Updates running maxima and their indices. float64 has its own function in this file.
  MaxWithIndicesKernels::UpdateMaxima update_maxima;
  int64_t plane = 1;         // the number of elements of a plane of x (H x W of one channel)
  FastDivmod rows, columns;  // division by the height and by the width of x
  // is_tap[d] is 1 if a window inside x has an element at distance d from its first element. The table is empty if it
  // is not used.
  std::vector<uint8_t> is_tap;
  // For the gradient: the number of channels per task, and of tasks per image.
  int64_t channels = 1, blocks = 1;
  // Whether dx has the layout of the sums. If it also has their type, gradients are added up in dx itself.
  bool same_layout = false, in_place = false;
  // scratch_bytes is the number of bytes of scratch memory per thread.
  int64_t tasks = 0, threads = 1, scratch_bytes = 0;

  Tiling(const PoolingProblem& problem, int64_t cores)
      : p(padded_in_front(problem)), update_maxima(typed_kernels(max_with_indices_kernels(), p.x.dtype)) {
    const bool backward = p.direction == PoolingDirection::backward;
    const TensorDesc &windows = backward ? p.dy : p.out, &other = backward ? p.out : p.x;
    const int64_t C = p.x.shape[1], item = p.x.dtype == DType::float64 ? 8 : 4;
    by_channels = C > 1 && windows.stride[1] == 1 && other.stride[1] == 1 && p.indices.stride[1] == 1;
    for (int i = 0; i < kMaxSpatial; ++i) plane *= spatial_size(p.x, i);
    if (plane > kMostPlane) return;
    rows = FastDivmod(spatial_size(p.x, 1));
    columns = FastDivmod(spatial_size(p.x, 2));
    if (backward) {
      make_table();
      same_layout = true;
      int64_t step = by_channels ? C : 1;
      for (int i = kMaxSpatial; i-- > 0; step *= spatial_size(p.out, i))
        same_layout = same_layout && (p.out.stride[i + 2] == step || spatial_size(p.out, i) == 1);
      in_place = same_layout && int64_t(itemsize(p.out.dtype)) == item;
      if (by_channels) channels = in_place ? C : std::clamp<int64_t>(cpu::work_size(kSumsOfPlanes) / plane, 1, C);
      blocks = ceil_div(C, channels);
      tasks = p.x.shape[0] * blocks;
      scratch_bytes = in_place ? 0 : plane * channels * item;
    } else {
      const int64_t lines = spatial_size(p.out, 0) * spatial_size(p.out, 1);
      tasks = p.x.shape[0] * lines * (by_channels ? 1 : C);
      scratch_bytes = ((by_channels ? C : spatial_size(p.out, 2)) + kBeyond) * (item + 4);
    }
    scratch_bytes = ceil_div<int64_t>(scratch_bytes, 64) * 64;
    threads =
        std::clamp<int64_t>(max_of(p.x.numel(), windows.numel()) / cpu::work_size(kGrain), 1, min_of(cores, tasks));
  }
  void make_table() {
    constexpr int64_t kMost = 1 << 14;  // the largest size in bytes of the table is_tap
    const int64_t H = spatial_size(p.x, 1), W = spatial_size(p.x, 2);
    auto at = [&](int64_t u, int64_t v, int64_t w) {
      return (u * p.spatial.dilation[0] * H + v * p.spatial.dilation[1]) * W + w * p.spatial.dilation[2];
    };
    for (int i = 0; i < kMaxSpatial; ++i)
      // If the window exceeds x, no window lies entirely inside x, and the table is not used.
      if ((p.window[i] - 1) * p.spatial.dilation[i] >= spatial_size(p.x, i)) return;
    const int64_t last = at(p.window[0] - 1, p.window[1] - 1, p.window[2] - 1);
    if (last >= kMost) return;
    is_tap.assign(size_t(last + 1), 0);
    for (int64_t u = 0; u < p.window[0]; ++u)
      for (int64_t v = 0; v < p.window[1]; ++v)
        for (int64_t w = 0; w < p.window[2]; ++w) is_tap[size_t(at(u, v, w))] = 1;
  }
};

// The same as MaxWithIndicesKernels::UpdateMaxima, for float64.
void update_maxima(double* largest, int32_t* indices, int64_t n, const void* from, int64_t step, int32_t index,
                   int32_t index_step) {
  const double* x = static_cast<const double*>(from);
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i * step];
    if (v > largest[i] || (v != v && largest[i] == largest[i]) || indices[i] < 0) {
      largest[i] = v;
      indices[i] = index + int32_t(i) * index_step;
    }
  }
}

// Computes one line of y along its last dimension, for all channels if they are contiguous, else for one channel.
template <class T, class Index> void forward(const Tiling& c, const PoolingArgs& a, int64_t task, char* scratch) {
  using Acc = Accumulator<T>;
  const PoolingProblem& p = c.p;
  minidnn::detail::Position y{};
  const int64_t rows = spatial_size(p.out, 1), columns = spatial_size(p.out, 2), C = p.x.shape[1];
  y.at[1] = task % rows;
  task /= rows;
  y.at[0] = task % spatial_size(p.out, 0);
  task /= spatial_size(p.out, 0);
  if (!c.by_channels) {
    y.c = task % C;
    task /= C;
  }
  y.n = task;
  const int64_t together = c.by_channels ? C : columns;
  Acc* largest = reinterpret_cast<Acc*>(scratch);
  auto indices = reinterpret_cast<int32_t*>(largest + together + kBeyond);
  const T* channel = static_cast<const T*>(a.x) + y.n * p.x.stride[0] + y.c * p.x.stride[1];
  auto update = [&] {
    if constexpr (std::is_same_v<T, double>) return &update_maxima;
    else return c.update_maxima;
  }();
  auto begin = [&] {
    std::fill_n(largest, together, Acc(-INFINITY));
    std::fill_n(indices, together, -1);
  };
  auto store = [&](int64_t step_y, int64_t step_index) {
    T* to = static_cast<T*>(a.out) + y.offset_in(p.out);
    Index* index = static_cast<Index*>(a.indices) + y.offset_in(p.indices);
    for (int64_t i = 0; i < together; ++i) {
      to[i * step_y] = T(largest[i]);
      index[i * step_index] = Index(indices[i]);
    }
  };
  if (c.by_channels) {
    for (y.at[2] = 0; y.at[2] < columns; ++y.at[2]) {
      begin();
      minidnn::detail::each_tap(p, y.at, [&](int64_t offset, int64_t, int64_t index) {
        update(largest, indices, C, channel + offset, 1, int32_t(index), 0);
        return true;
      });
      store(1, 1);
    }
    return;
  }
  begin();
  const minidnn::detail::Range r0 = minidnn::detail::taps_in_x(p, 0, y.at[0]),
                               r1 = minidnn::detail::taps_in_x(p, 1, y.at[1]);
  const int64_t width = spatial_size(p.x, 2), stride = p.spatial.stride[2], step = stride * p.x.stride[4];
  for (int64_t u = r0.begin; u < r0.end; ++u)
    for (int64_t v = r1.begin; v < r1.end; ++v) {
      const int64_t i = p.spatial.input_index(0, y.at[0], u), j = p.spatial.input_index(1, y.at[1], v);
      const T* line = channel + i * p.x.stride[2] + j * p.x.stride[3];
      // Columns w of the window that are inside x at some position of the line.
      const int64_t before = p.spatial.before[2], dilation = p.spatial.dilation[2];
      const int64_t all_before = max_of<int64_t>(before - (columns - 1) * stride, 0);
      const int64_t end = min_of(p.window[2], ceil_div(width + before, dilation));
      for (int64_t w = ceil_div(all_before, dilation); w < end; ++w) {
        // `at` is the column of x that column w reads in the first window. Column w is inside x in the windows [first,
        // last).
        const int64_t at = p.spatial.input_index(2, 0, w);
        const int64_t first = at < 0 ? ceil_div(-at, stride) : 0,
                      last = min_of(columns, at < width ? (width - 1 - at) / stride + 1 : 0);
        if (first < last)
          update(largest + first, indices + first, last - first, line + (at + first * stride) * p.x.stride[4], step,
                 int32_t((i * spatial_size(p.x, 1) + j) * width + at + first * stride), int32_t(stride));
      }
    }
  store(p.out.stride[4], p.indices.stride[4]);
}

// Checks whether indices belong to elements of a window. They come from the user, so they may have any value.
class WindowIndices {
 public:
  WindowIndices(const Tiling& tiling, int64_t i, int64_t j) : c(tiling), s(tiling.p.spatial) {
    first[0] = s.input_index(0, i, 0);
    first[1] = s.input_index(1, j, 0);
    first[2] = s.input_index(2, 0, 0);
    lines_in_x = is_in_x(0, first[0]) && is_in_x(1, first[1]);
  }
  // Calls f(q, test) for each window q of a line. test(index) tells whether the element of x with this index is in the
  // window. Windows inside x use a table.
  template <class F> MINIDNN_HD void each(int64_t windows, F&& f) const {
    const int64_t stride = s.stride[2], reach = (c.p.window[2] - 1) * s.dilation[2];
    int64_t begin = windows, end = windows;  // The windows [begin, end) lie inside x.
    if (lines_in_x && !c.is_tap.empty()) {
      begin = min_of(windows, first[2] < 0 ? ceil_div(-first[2], stride) : 0);
      end = std::clamp((size(2) - 1 - reach - first[2]) / stride + 1, begin, windows);
    }
    for (int64_t q = 0; q < begin; ++q) f(q, by_dimension(q));
    const uint8_t* const table = c.is_tap.data();
    const uint64_t span = c.is_tap.size();
    const int64_t origin = (first[0] * size(1) + first[1]) * size(2) + first[2];
    for (int64_t q = begin; q < end; ++q)
      f(q, [=, at_q = origin + q * stride](int64_t at) { return uint64_t(at - at_q) < span && table[at - at_q]; });
    for (int64_t q = end; q < windows; ++q) f(q, by_dimension(q));
  }

 private:
  int64_t size(int i) const { return spatial_size(c.p.x, i); }
  auto by_dimension(int64_t q) const {
    return [this, column = first[2] + q * s.stride[2]](int64_t at) {
      if (uint64_t(at) >= uint64_t(c.plane)) return false;
      uint32_t rest = uint32_t(at);
      const int64_t k = c.columns.divmod(rest), j = c.rows.divmod(rest), i = rest;
      return is_tap(2, k - column) && is_tap(1, j - first[1]) && is_tap(0, i - first[0]);
    };
  }
  bool is_in_x(int i, int64_t at) const { return at >= 0 && at + (c.p.window[i] - 1) * s.dilation[i] < size(i); }
  bool is_tap(int i, int64_t distance) const {
    return distance % s.dilation[i] == 0 && uint64_t(distance / s.dilation[i]) < uint64_t(c.p.window[i]);
  }

  const Tiling& c;
  const SpatialAttributes& s;
  int64_t first[kMaxSpatial];  // the coordinates in x of the first window's first element
  bool lines_in_x;
};

// Computes dx for one channel of an image, or for several adjacent channels.
template <class T, class Index> void backward(const Tiling& c, const PoolingArgs& a, int64_t task, char* scratch) {
  using Acc = Accumulator<T>;
  const PoolingProblem& p = c.p;
  const int64_t n = task / c.blocks, first = task % c.blocks * c.channels,
                channels = min_of(c.channels, p.x.shape[1] - first);
  Acc* sums = reinterpret_cast<Acc*>(scratch);
  if constexpr (std::is_same_v<T, Acc>)
    if (c.in_place) sums = static_cast<T*>(a.out) + n * p.out.stride[0] + first * p.out.stride[1];
  std::fill_n(sums, c.plane * channels, Acc(0));
  // Calls visit(position) for the first position of each line along the last dimension.
  auto each_line = [&](const TensorDesc& d, auto&& visit) {
    minidnn::detail::Position at{n, first, {}};
    for (at.at[0] = 0; at.at[0] < spatial_size(d, 0); ++at.at[0])
      for (at.at[1] = 0; at.at[1] < spatial_size(d, 1); ++at.at[1]) visit(at);
  };
  const int64_t windows = spatial_size(p.dy, 2), columns = spatial_size(p.out, 2);
  each_line(p.dy, [&](const minidnn::detail::Position& y) {
    const T* dy = static_cast<const T*>(a.dy) + y.offset_in(p.dy);
    const Index* index = static_cast<const Index*>(a.indices) + y.offset_in(p.indices);
    const int64_t step = p.dy.stride[4], index_step = p.indices.stride[4];
    WindowIndices(c, y.at[0], y.at[1]).each(windows, [&](int64_t q, auto in_window) __attribute__((always_inline)) {
      if (channels == 1) {
        if (const int64_t at = index[q * index_step]; in_window(at)) sums[at] += Acc(dy[q * step]);
        return;
      }
      for (int64_t k = 0; k < channels; ++k)
        if (const int64_t at = index[q * index_step + k]; in_window(at))
          sums[at * channels + k] += Acc(dy[q * step + k]);
    });
  });
  if (c.in_place) return;
  if (c.same_layout && (!c.by_channels || channels == p.x.shape[1])) {
    T* const to = static_cast<T*>(a.out) + n * p.out.stride[0] + first * p.out.stride[1];
    return element_spans(p.out.dtype).write(sums, c.plane * channels, to, false);
  }
  const Acc* from = sums;
  each_line(p.out, [&](const minidnn::detail::Position& x) {
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

}  // namespace

struct MaxWithIndices final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.max_with_indices"; }
  std::string why_not(const PoolingProblem& p, const Device&) const override {
    if (p.indices.rank == 0) return "supports pooling with indices only";
    if (p.adaptive) return "adaptive windows of unequal sizes are not supported";
    if (p.x.numel() == 0 || p.out.numel() == 0) return "x or the result is empty";
    const Tiling c(p, 1);
    if (c.plane > kMostPlane) return cat("supports planes of at most 2^31 - 1 elements; got ", c.plane);
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p) / 10, pooling_bytes(p), d, 0.4);
  }
  size_t workspace_bytes(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Tiling c(p, d.sm_count);
    return size_t(c.threads * c.scratch_bytes);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return make_plan<PoolingProblem>([c = Tiling(p, d.sm_count)](const PoolingArgs& a, void* workspace, Stream) {
      with_floating(c.p.x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const bool back = c.p.direction == PoolingDirection::backward, wide = c.p.indices.dtype == DType::int64;
        const auto run = back ? (wide ? &backward<T, int64_t> : &backward<T, int32_t>)
                              : (wide ? &forward<T, int64_t> : &forward<T, int32_t>);
        const int64_t batch = max_of<int64_t>(c.tasks / (c.threads * 8), 1);
        cpu::parallel_batches(c.tasks, batch, c.threads, [&](int64_t begin, int64_t end, int64_t thread_id) {
          for (int64_t task = begin; task < end; ++task)
            run(c, a, task, static_cast<char*>(workspace) + thread_id * c.scratch_bytes);
        });
      });
    });
  }
};

}  // namespace cpu::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cpu::pooling::MaxWithIndices>();

}  // namespace minidnn
