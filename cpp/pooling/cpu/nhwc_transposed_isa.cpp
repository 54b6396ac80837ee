// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nhwc for channels that are not contiguous. kPlanes channels are transposed to scratch
// memory, which stays in a cache. Then each lane of a vector has one channel.
#include "cpp/pooling/cpu/nhwc_backward.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using cpu::pooling::kPlanes;

// Transposes a square matrix of vectors: first squares of 4 x 4 floats within 128-bit blocks, then the blocks.
template <int... from> MINIDNN_HD Floats mixed(Floats a, Floats b) { return __builtin_shufflevector(a, b, from...); }
MINIDNN_HD void transpose(Floats (&v)[kFloats]) {
#if defined(__AVX512F__)
  auto low = [](Floats a, Floats b) { return mixed<0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29>(a, b); };
  auto high = [](Floats a, Floats b) {
    return mixed<2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31>(a, b);
  };
  auto low2 = [](Floats a, Floats b) { return mixed<0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29>(a, b); };
  auto high2 = [](Floats a, Floats b) {
    return mixed<2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31>(a, b);
  };
#elif defined(__AVX__)
  auto low = [](Floats a, Floats b) { return mixed<0, 8, 1, 9, 4, 12, 5, 13>(a, b); };
  auto high = [](Floats a, Floats b) { return mixed<2, 10, 3, 11, 6, 14, 7, 15>(a, b); };
  auto low2 = [](Floats a, Floats b) { return mixed<0, 1, 8, 9, 4, 5, 12, 13>(a, b); };
  auto high2 = [](Floats a, Floats b) { return mixed<2, 3, 10, 11, 6, 7, 14, 15>(a, b); };
#else
  auto low = [](Floats a, Floats b) { return mixed<0, 4, 1, 5>(a, b); };
  auto high = [](Floats a, Floats b) { return mixed<2, 6, 3, 7>(a, b); };
  auto low2 = [](Floats a, Floats b) { return mixed<0, 1, 4, 5>(a, b); };
  auto high2 = [](Floats a, Floats b) { return mixed<2, 3, 6, 7>(a, b); };
#endif
#pragma GCC unroll 4
  for (int i = 0; i < kFloats; i += 4) {
    const Floats a = low(v[i], v[i + 1]), b = high(v[i], v[i + 1]), c = low(v[i + 2], v[i + 3]),
                 d = high(v[i + 2], v[i + 3]);
    v[i] = low2(a, c);
    v[i + 1] = high2(a, c);
    v[i + 2] = low2(b, d);
    v[i + 3] = high2(b, d);
  }
#if defined(__AVX512F__)
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    auto even = [](Floats a, Floats b) {
      return mixed<0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27>(a, b);
    };
    auto odd = [](Floats a, Floats b) {
      return mixed<4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31>(a, b);
    };
    const Floats a = even(v[i], v[i + 4]), b = odd(v[i], v[i + 4]), c = even(v[i + 8], v[i + 12]),
                 d = odd(v[i + 8], v[i + 12]);
    v[i] = even(a, c);
    v[i + 4] = even(b, d);
    v[i + 8] = odd(a, c);
    v[i + 12] = odd(b, d);
  }
#elif defined(__AVX__)
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Floats a = v[i], b = v[i + 4];
    v[i] = mixed<0, 1, 2, 3, 8, 9, 10, 11>(a, b), v[i + 4] = mixed<4, 5, 6, 7, 12, 13, 14, 15>(a, b);
  }
#endif
}

// to_lanes() transposes n elements of each of kPlanes channels to [n][kPlanes]. from_lanes() transposes back, for the
// first `count` channels.
template <class T> void to_lanes(const T* const* planes, int64_t at, int64_t n, float* to) {
  constexpr int64_t kLine = 64 / sizeof(T), kAhead = 2;
  auto move = [&](int64_t i, int64_t some, auto load) __attribute__((always_inline)) {
    for (int64_t g = 0; g < kPlanes; g += kFloats) {
      Floats v[kFloats];
#pragma GCC unroll 16
      for (int k = 0; k < kFloats; ++k) v[k] = load(planes[g + k] + at + i);
      transpose(v);
#pragma GCC unroll 16
      for (int k = 0; k < kFloats; ++k)
        if (k < some) store(to + (i + k) * kPlanes + g, v[k]);
    }
  };
  auto whole = [](const T* from) { return load_floats(from); };
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) {
    if (i % kLine == 0)  // Hardware prefetchers cannot follow kPlanes streams.
      for (int64_t k = 0; k < kPlanes; ++k) __builtin_prefetch(planes[k] + at + i + kAhead * kLine);
    move(i, kFloats, whole);
  }
  if (i == n) return;
  if (i > 0) move(n - kFloats, kFloats, whole);
  else move(0, n, [=](const T* from) { return load_first(from, n); });
}
template <class T> void from_lanes(const float* from, int64_t n, T* const* planes, int64_t at, int64_t count) {
  auto move = [&](int64_t i, auto put) __attribute__((always_inline)) {
    for (int64_t g = 0; g < count; g += kFloats) {
      Floats v[kFloats];
#pragma GCC unroll 16
      for (int k = 0; k < kFloats; ++k) v[k] = load(from + (i + k) * kPlanes + g);
      transpose(v);
#pragma GCC unroll 16
      for (int k = 0; k < kFloats; ++k)
        if (g + k < count) put(planes[g + k] + at + i, v[k]);
    }
  };
  auto whole = [](T* to, Floats v) { store_floats(to, v); };
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) move(i, whole);
  if (i == n) return;
  if (i > 0) move(n - kFloats, whole);
  else move(0, [=](T* to, Floats v) { store_first(to, n, v); });
}

// Some positions of kPlanes channels: a range along one axis, and all indices along the others.
struct PlaneSlice {
  TensorDesc desc;  // the shape of whole channels, with the strides of their copy in scratch memory
  Range range[kMaxSpatial];
  int64_t positions = 1;
  bool is_contiguous = true;  // true if the positions are contiguous in a channel
  PlaneSlice(const TensorDesc& planes, int axis, Range slice) : desc(planes) {
    int64_t elements = 1;
    for (int i = kMaxSpatial - 1; i >= 0; --i) {
      range[i] = i == axis ? slice : Range{0, spatial_size(planes, i)};
      desc.stride[i + 2] = positions * kPlanes;
      is_contiguous =
          is_contiguous && (range[i].size() <= 1 || (planes.stride[i + 2] == elements && positions == elements));
      positions *= range[i].size();
      elements *= spatial_size(planes, i);
    }
    desc.stride[0] = 0;
    desc.stride[1] = 1;
  }
  // Returns the address of index 0 along all axes, which may be before `memory`.
  float* base(float* memory, int axis) const { return memory - range[axis].begin * desc.stride[axis + 2]; }
  // Calls f(offset, count, position) for each contiguous span of elements in the ranges. `position` counts the elements
  // before the span.
  template <class F> void each_span(const TensorDesc& planes, F f) const {
    auto offset = [&](int64_t i, int64_t j) {
      return i * planes.stride[2] + j * planes.stride[3] + range[2].begin * planes.stride[4];
    };
    if (is_contiguous) return f(offset(range[0].begin, range[1].begin), positions, int64_t(0));
    int64_t position = 0;
    for (int64_t i = range[0].begin; i < range[0].end; ++i)
      for (int64_t j = range[1].begin; j < range[1].end; ++j, position += range[2].size())
        f(offset(i, j), range[2].size(), position);
  }
};

// Returns the range of indices of x along `axis` that the windows in `windows` read.
MINIDNN_HD Range touched(const PoolingProblem& p, int axis, Range windows) {
  if (windows.size() == 0) return {0, 0};
  const int64_t begin = max_of<int64_t>(first_of(p, axis, windows.begin), 0), last = windows.end - 1;
  const int64_t reach = (detail::window_at(p, axis, last) - 1) * p.spatial.dilation[axis];
  const int64_t end = min_of(first_of(p, axis, last) + reach + 1, spatial_size(p.x, axis));
  return {min_of(begin, max_of<int64_t>(end, 0)), max_of<int64_t>(end, 0)};
}

template <class T> struct Planes {
  T* at[kPlanes];
  // The addresses of kPlanes channels from `first` on. If there are only `count`, the last one is repeated.
  MINIDNN_HD Planes(T* base, const TensorDesc& d, int64_t first, int64_t count) {
    for (int64_t k = 0; k < kPlanes; ++k) {
      const int64_t plane = first + min_of(k, count - 1);
      at[k] = base + plane / d.shape[1] * d.stride[0] + plane % d.shape[1] * d.stride[1];
    }
  }
};
template <class T>
void load_slice(const void* base, const TensorDesc& d, int64_t first, int64_t count, const PlaneSlice& slice,
                float* to) {
  const Planes<const T> planes(static_cast<const T*>(base), d, first, count);
  slice.each_span(
      d, [&](int64_t at, int64_t n, int64_t position) { to_lanes(planes.at, at, n, to + position * kPlanes); });
}
template <class T>
void store_slice(const float* from, const PlaneSlice& slice, const TensorDesc& d, int64_t first, int64_t count,
                 void* base) {
  const Planes<T> planes(static_cast<T*>(base), d, first, count);
  slice.each_span(d, [&](int64_t at, int64_t n, int64_t position) {
    from_lanes(from + position * kPlanes, n, planes.at, at, count);
  });
}

// Pools a contiguous channel that is a single window. With four accumulators, an addition need not wait for the
// previous one.
template <class Op, class T> float pool_span(const T* x, int64_t n) {
  constexpr int kSums = 4;
  CompensatedSum<Floats> total[kSums];
  for (CompensatedSum<Floats>& t : total) t.sum = Op::none();
  auto join = [&](int k, Floats v) __attribute__((always_inline)) {
    if constexpr (__is_same(Op, Max)) total[k].sum = Op::join(total[k].sum, v);
    else total[k].add(v);
  };
  int64_t i = 0;
  for (; i + 2 * kSums * kPair <= n; i += 2 * kSums * kPair)
#pragma GCC unroll 4
    for (int k = 0; k < kSums; ++k) {
      const Pair v = both(load_pair(x + i + 2 * k * kPair), load_pair(x + i + (2 * k + 1) * kPair), Op::join);
      join(k, Op::join(v.first, v.second));
    }
  for (int k = 0; i + kFloats <= n; i += kFloats, k = (k + 1) % kSums) join(k, load_floats(x + i));
  if (const int64_t left = n - i; left > 0) {
    const Floats last = n >= kFloats ? load_floats(x + n - kFloats) : load_first(x, n);
    Ints lane;
    for (int k = 0; k < kFloats; ++k) lane[k] = k;
    join(0, select(n >= kFloats ? lane >= int(kFloats - left) : lane < int(n), last, Op::none()));
  }
  if constexpr (__is_same(Op, Max)) {
    float largest = -INFINITY;
    const Floats v = Op::join(Op::join(total[0].sum, total[1].sum), Op::join(total[2].sum, total[3].sum));
    for (int k = 0; k < kFloats; ++k) largest = max_or_nan(largest, v[k]);
    return largest;
  } else {
    auto add_up = [&](Floats CompensatedSum<Floats>::* term) __attribute__((always_inline)) {
      return sum_lanes((total[0].*term + total[1].*term) + (total[2].*term + total[3].*term));
    };
    return add_up(&CompensatedSum<Floats>::sum) + add_up(&CompensatedSum<Floats>::compensation);
  }
}
template <class T> void fill_span(T* to, int64_t n, float v) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store_floats(to + i, floats(v));
  store_first(to + i, n - i, floats(v));
}

template <class T>
void planes_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingChunk& chunk, float* scratch) {
  const int axis = int(chunk.axis);
  const int64_t planes = p.x.shape[0] * p.x.shape[1], slices = ceil_div(spatial_size(p.out, axis), chunk.slice);
  const bool whole = cpu::pooling::is_one_contiguous_window(p);
  for (int64_t item = chunk.begin; item < chunk.end; ++item) {
    const int64_t first = item / slices * kPlanes, count = min_of<int64_t>(kPlanes, planes - first);
    const int64_t begin = item % slices * chunk.slice;
    const Range positions{begin, min_of(begin + chunk.slice, spatial_size(p.out, axis))};
    const PlaneSlice y(p.out, axis, positions), x(p.x, axis, touched(p, axis, positions));
    float *y_scratch = scratch, *x_scratch = y_scratch + padded((y.positions + kFloats) * kPlanes);
    if (whole) {
      const Planes<const T> from(static_cast<const T*>(args.x), p.x, first, count);
      const float divide_by = p.mode == PoolingMode::max ? 1 : divisor_of(p, 0, 0, 0);
      for (int64_t k = 0; k < count; ++k)
        y_scratch[k] = p.mode == PoolingMode::max ? pool_span<Max>(from.at[k], x.positions)
                                                  : pool_span<Sum>(from.at[k], x.positions) / divide_by;
    } else {
      load_slice<T>(args.x, p.x, first, count, x, x_scratch);
      PoolingProblem lanes = p;
      lanes.x = x.desc;
      lanes.out = y.desc;
      for (int64_t p0 = y.range[0].begin; p0 < y.range[0].end; ++p0)
        for (int64_t p1 = y.range[1].begin; p1 < y.range[1].end; ++p1)
          forward_line<float>(lanes, x.base(x_scratch, axis), y.base(y_scratch, axis), p0, p1, y.range[2], kPlanes,
                              x_scratch + padded(x.positions * kPlanes));
    }
    store_slice<T>(y_scratch, y, p.out, first, count, args.out);
  }
}

template <class T>
void planes_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingChunk& chunk, float* scratch) {
  const int axis = int(chunk.axis);
  const int64_t planes = p.x.shape[0] * p.x.shape[1], slices = ceil_div(spatial_size(p.out, axis), chunk.slice);
  const bool is_max = p.mode == PoolingMode::max, fill = !is_max && cpu::pooling::is_one_contiguous_window(p);
  for (int64_t item = chunk.begin; item < chunk.end; ++item) {
    const int64_t first = item / slices * kPlanes, count = min_of<int64_t>(kPlanes, planes - first);
    const int64_t begin = item % slices * chunk.slice, end = min_of(begin + chunk.slice, spatial_size(p.out, axis));
    const Range windows{windows_over(p, axis, begin).begin, windows_over(p, axis, end - 1).end};
    const PlaneSlice dx(p.out, axis, {begin, end}), dy(p.dy, axis, windows), x(p.x, axis, touched(p, axis, windows));
    float *dx_scratch = scratch, *dy_scratch = dx_scratch + padded((dx.positions + kFloats) * kPlanes);
    float *x_scratch = dy_scratch + padded(dy.positions * kPlanes), *rest = x_scratch;
    load_slice<T>(args.dy, p.dy, first, count, dy, dy_scratch);
    if (fill) {
      const Planes<T> to(static_cast<T*>(args.out), p.out, first, count);
      const float divide_by = divisor_of(p, 0, 0, 0);
      for (int64_t k = 0; k < count; ++k)
        dx.each_span(p.out,
                     [&](int64_t at, int64_t n, int64_t) { fill_span(to.at[k] + at, n, dy_scratch[k] / divide_by); });
      continue;
    }
    if (is_max) load_slice<T>(args.x, p.x, first, count, x, x_scratch), rest += padded(x.positions * kPlanes);
    PoolingProblem lanes = p;
    lanes.x = x.desc;
    lanes.dy = dy.desc;
    lanes.out = dx.desc;
    lanes.x.shape[0] = lanes.dy.shape[0] = lanes.out.shape[0] = 1;
    const PoolingArgs in_lanes{x.base(x_scratch, axis), dy.base(dy_scratch, axis), dx.base(dx_scratch, axis)};
    PoolingChunk own = chunk;
    own.begin = item % slices;
    own.end = own.begin + 1;
    own.channels = kPlanes;
    pooling_nhwc_kernels.f32.backward(lanes, in_lanes, own, rest);  // the loops of nhwc_isa.cpp
    store_slice<T>(dx_scratch, dx, p.out, first, count, args.out);
  }
}

template <class T> constexpr PoolingNhwcKernels::Typed typed() { return {planes_forward<T>, planes_backward<T>}; }

}  // namespace

extern const PoolingNhwcKernels pooling_nhwc_transposed_kernels;
const PoolingNhwcKernels pooling_nhwc_transposed_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>()};

}  // namespace minidnn::MINIDNN_ISA
