// SPDX-License-Identifier: Apache-2.0
// Pooling with one lane per channel. Where channels are not contiguous, kPlanes planes are first transposed into that
// form, a slab at a time, in scratch memory that stays in a cache.
#include "cpp/pooling/pooling_kernels.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using detail::divisor, detail::Range, detail::tap_on, detail::taps_in_x, detail::windows_over;
using pooling::kPlanes, pooling::padded;
using Ints = Vector<int32_t>;

constexpr int kPair = 2 * kFloats;

template <class F> MINIDNN_HD Pair both(const Pair& a, const Pair& b, F f) {
  return {f(a.first, b.first), f(a.second, b.second)};
}

// The larger of two numbers. If either is NaN, the result is one of the two, unspecified which.
MINIDNN_HD Floats larger(Floats a, Floats b) {
#if defined(__AVX__) && !defined(__AVX512F__)
  return __builtin_ia32_maxps256(b, a);  // a where either is NaN
#else
  return a < b ? b : a;
#endif
}
struct Max {
  static MINIDNN_HD Floats none() { return floats(-INFINITY); }
  static MINIDNN_HD Floats join(Floats a, Floats b) { return b == b ? larger(a, b) : b; }
};
struct Sum {
  static MINIDNN_HD Floats none() { return Floats{}; }
  static MINIDNN_HD Floats join(Floats a, Floats b) { return a + b; }
};

// CompensatedSum on vectors.
MINIDNN_HD void add_compensated(Floats& sum, Floats& compensation, Floats v) {
  v += compensation;
  const Floats next = sum + v, took = next - sum, error = (sum - (next - took)) + (v - took);
  compensation = error == error ? error : Floats{};
  sum = next;
}

MINIDNN_HD float divisor_of(const PoolingProblem& p, int64_t p0, int64_t p1, int64_t p2) {
  const int64_t at[kMaxSpatial] = {p0, p1, p2};
  return float(p.mode == PoolingMode::avg ? divisor<PoolingMode::avg>(p, at)
                                          : divisor<PoolingMode::avg_exclude_padding>(p, at));
}

// The offset in x of tap (a, b, c) at an output position.
MINIDNN_HD int64_t tap_offset(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], int64_t a, int64_t b,
                              int64_t c) {
  return p.spatial.input_index(0, at[0], a) * p.x.stride[2] + p.spatial.input_index(1, at[1], b) * p.x.stride[3] +
         p.spatial.input_index(2, at[2], c) * p.x.stride[4];
}

// Taps whose lines are read together; with more taps, groups are joined into scratch memory.
constexpr int kFewTaps = 64;
constexpr int kGroup = 8;  // taps that are joined with each other before they join the rest

// Writes make(c, load) to out[c] for all channels c, by pairs of vectors, then by vectors, of which the last may be
// partial.
template <class T, class F> MINIDNN_HD void each_vector(int64_t channels, T* out, F make) {
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) store_pair(out + c, make(c, [](const T* from) { return load_pair(from); }));
  for (; c < channels; c += kFloats) {
    const int64_t n = min_of<int64_t>(kFloats, channels - c);
    store_first(out + c, n, make(c, [=](const T* from) { return Pair{load_first(from, n), Floats{}}; }).first);
  }
}

template <class Op, class T>
MINIDNN_HD void pool_few(const T* x, const int64_t* taps, int64_t n, int64_t channels, float divide_by, T* out) {
  each_vector(channels, out, [&](int64_t c, auto load) __attribute__((always_inline)) {
    Pair total{Op::none(), Op::none()};
    for (int64_t i = 0; i < n;) {
      Pair group = load(x + taps[i] + c);
      const int64_t end = min_of(i + kGroup, n);
      for (++i; i < end; ++i) group = both(group, load(x + taps[i] + c), Op::join);
      total = both(total, group, Op::join);
    }
    if (divide_by != 1) total.first /= divide_by, total.second /= divide_by;
    return total;
  });
}

// Pools the window at one position, in groups of kGroup taps: sums of equal elements stay exact inside a group, and
// sums of groups are compensated. `room` holds two lines.
template <class Op, class T>
void pool_many(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], const T* x, int64_t channels, float divide_by,
               float* room, T* out) {
  float *sum = room, *compensation = room + padded(channels);
  for (int64_t c = 0; c < padded(channels); c += kFloats) {
    store(sum + c, Op::none());
    store(compensation + c, Floats{});
  }
  const T* group[kGroup];
  int64_t grouped = 0;
  auto join_group = [&](int64_t n) {
    auto join = [&](int64_t c, Floats v) __attribute__((always_inline)) {
      Floats total = load(sum + c), rest = load(compensation + c);
      if constexpr (__is_same(Op, Max)) total = Op::join(total, v);
      else add_compensated(total, rest, v);
      store(sum + c, total);
      store(compensation + c, rest);
    };
    int64_t c = 0;
    for (; c + kPair <= channels; c += kPair) {
      Pair v[kGroup];
      for (int i = 0; i < kGroup; ++i) v[i] = i < n ? load_pair(group[i] + c) : Pair{Op::none(), Op::none()};
      for (int half = kGroup / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) v[i] = both(v[i], v[i + half], Op::join);
      join(c, v[0].first);
      join(c + kFloats, v[0].second);
    }
    for (; c < channels; c += kFloats) {
      Floats v = Op::none();
      for (int64_t i = 0; i < n; ++i) v = Op::join(v, load_first(group[i] + c, min_of<int64_t>(kFloats, channels - c)));
      join(c, v);
    }
  };
  const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]), r2 = taps_in_x(p, 2, at[2]);
  for (int64_t a = r0.begin; a < r0.end; ++a)
    for (int64_t b = r1.begin; b < r1.end; ++b)
      for (int64_t c = r2.begin; c < r2.end; ++c) {
        group[grouped++] = x + tap_offset(p, at, a, b, c);
        if (grouped == kGroup) join_group(grouped), grouped = 0;
      }
  if (grouped) join_group(grouped);
  auto result = [&](int64_t c) __attribute__((always_inline)) {
    return divide_by != 1 ? (load(sum + c) + load(compensation + c)) / divide_by
                          : load(sum + c) + load(compensation + c);
  };
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) store_pair(out + c, Pair{result(c), result(c + kFloats)});
  for (; c < channels; c += kFloats) store_first(out + c, min_of<int64_t>(kFloats, channels - c), result(c));
}

// Computes a line of y, [positions of the last axis][channels]. x and out point to the first element of the image.
template <class Op, class T>
void forward_line_by(const PoolingProblem& p, const T* x, T* out, int64_t p0, int64_t p1, Range positions,
                     int64_t channels, float* room) {
  int64_t at[kMaxSpatial] = {p0, p1, positions.begin};
  out += p0 * p.out.stride[2] + p1 * p.out.stride[3] + positions.begin * p.out.stride[4];
  const Range r0 = taps_in_x(p, 0, p0), r1 = taps_in_x(p, 1, p1);
  // Offsets of the taps from the window's origin (which may be outside x). They and their number are equal for most
  // windows.
  int64_t taps[kFewTaps], n = 0;
  float divide_by = 1;
  Range last{-1, -1};
  for (; at[2] < positions.end; ++at[2], out += p.out.stride[4]) {
    const Range r2 = taps_in_x(p, 2, at[2]);
    const int64_t origin = tap_offset(p, at, 0, 0, 0);
    if (p.mode != PoolingMode::max &&
        (at[2] == positions.begin || r2.size() != p.window[2] || r2.size() != last.size()))
      divide_by = divisor_of(p, p0, p1, at[2]);
    if (r0.size() * r1.size() * r2.size() > kFewTaps) {
      pool_many<Op>(p, at, x, channels, divide_by, room, out);
    } else {
      if (r2.begin != last.begin || r2.end != last.end) {
        n = 0;
        for (int64_t a = r0.begin; a < r0.end; ++a)
          for (int64_t b = r1.begin; b < r1.end; ++b)
            for (int64_t c = r2.begin; c < r2.end; ++c) taps[n++] = tap_offset(p, at, a, b, c) - origin;
      }
      pool_few<Op>(x + origin, taps, n, channels, divide_by, out);
    }
    last = r2;
  }
}
template <class T>
void forward_line(const PoolingProblem& p, const T* x, T* out, int64_t p0, int64_t p1, Range positions,
                  int64_t channels, float* room) {
  if (p.mode == PoolingMode::max) forward_line_by<Max>(p, x, out, p0, p1, positions, channels, room);
  else forward_line_by<Sum>(p, x, out, p0, p1, positions, channels, room);
}

template <class T>
void channels_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int64_t P0 = spatial_size(p.out, 0), P1 = spatial_size(p.out, 1), P2 = spatial_size(p.out, 2);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t image = item / P1 / P0;
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0] + share.first_channel;
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0] + share.first_channel;
    forward_line(p, x, out, item / P1 % P0, item % P1, {0, P2}, share.channels, room);
  }
}

// The taps of a window that are inside x: the offset of each in x, and in the sums of dx, or kElsewhere.
struct Taps {
  static constexpr int64_t kElsewhere = INT64_MIN;
  int64_t *x, *sums;
  int64_t n;
};

// Adds one window to the sums of its taps: its dy at the first maximum, or the share of each tap. If `only`, windows do
// not overlap, and the value is stored instead of added. Sums are in the order of T's lanes and have space for whole
// vectors.
template <bool is_max, bool only, class T>
void add_window(const T* x, const T* dy, const Taps& taps, int64_t channels, float divide_by, float* sums) {
  auto add = [&](int64_t i, int64_t c, Floats v) __attribute__((always_inline)) {
    if (taps.sums[i] == Taps::kElsewhere) return;
    float* to = sums + taps.sums[i] + c;
    store(to, only ? v : load(to) + v);
  };
  auto window = [&](int64_t c, auto load_x) __attribute__((always_inline)) {
    Pair g = load_x(dy + c);
    if constexpr (!is_max) {
      g.first /= divide_by, g.second /= divide_by;
      for (int64_t i = 0; i < taps.n; ++i) {
        add(i, c, g.first);
        add(i, c + kFloats, g.second);
      }
      return;
    }
    Pair most = load_x(x + taps.x[0] + c);
    Ints is_nan = (most.first != most.first) | (most.second != most.second);
    for (int64_t i = 1; i < taps.n; ++i) {
      const Pair v = load_x(x + taps.x[i] + c);
      most = both(most, v, [](Floats a, Floats b) { return larger(a, b); });
      is_nan |= (v.first != v.first) | (v.second != v.second);
    }
    if (any_of(is_nan)) [[unlikely]]
      for (int64_t i = 0; i < taps.n; ++i) most = both(most, load_x(x + taps.x[i] + c), Max::join);
    // A NaN counts as largest; the first one is taken.
    auto is_most = [&](Floats v, Floats of) { return (v == of) | (v != v); };
    Ints done[2]{};
    // With many taps, few are maxima: scatter the dy lane by lane.
    constexpr int64_t kMany = 16;
    if (!only && taps.n > kMany) {
      Ints at[2]{};
      for (int64_t i = taps.n; i-- > 0;) {
        const Pair v = load_x(x + taps.x[i] + c);
        at[0] = is_most(v.first, most.first) ? Ints{} + int32_t(i) : at[0];
        at[1] = is_most(v.second, most.second) ? Ints{} + int32_t(i) : at[1];
      }
      for (int k = 0; k < 2; ++k)
        for (int lane = 0; lane < kFloats; ++lane)
          if (const int64_t to = taps.sums[at[k][lane]]; to != Taps::kElsewhere)
            sums[to + c + k * kFloats + lane] += k ? g.second[lane] : g.first[lane];
      return;
    }
    for (int64_t i = 0; i < taps.n; ++i) {
      const Pair v = load_x(x + taps.x[i] + c);
      const Ints first = is_most(v.first, most.first) & ~done[0], second = is_most(v.second, most.second) & ~done[1];
      add(i, c, (Floats)((Ints)g.first & first));
      add(i, c + kFloats, (Floats)((Ints)g.second & second));
      done[0] |= first;
      done[1] |= second;
    }
  };
  if (taps.n == 0) return;
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) window(c, [](const T* from) { return load_pair(from); });
  // Lanes beyond the channels add zeros: each line of sums has space for them.
  if (const int64_t n = channels - c; n > 0)
    window(c, [=](const T* from) {
      return Pair{load_first(from, min_of<int64_t>(n, kFloats)),
                  load_first(from + kFloats, max_of<int64_t>(n - kFloats, 0))};
    });
}

// Sums a slab of dx: the indices `slab` along `axis`. `sums` has the given strides, in floats, and points to index 0 of
// all axes.
template <bool is_max, bool only, class T>
void sum_slab(const PoolingProblem& p, const T* x, const T* dy, int axis, Range slab, int64_t channels,
              const int64_t (&strides)[kMaxSpatial], float* sums, float* room) {
  Range windows[kMaxSpatial];
  for (int i = 0; i < kMaxSpatial; ++i) windows[i] = {0, spatial_size(p.dy, i)};
  // From the first window over the slab's first element to the last window over its last element.
  windows[axis] = {windows_over(p, axis, slab.begin).begin, windows_over(p, axis, slab.end - 1).end};
  auto taps_in_slab = [&](int i, int64_t at) {
    return i == axis ? detail::taps(p, i, at, slab.begin, slab.end) : taps_in_x(p, i, at);
  };
  Taps taps{reinterpret_cast<int64_t*>(room), nullptr, 0};
  taps.sums = taps.x + p.window[0] * p.window[1] * p.window[2];

  int64_t at[kMaxSpatial];
  for (at[0] = windows[0].begin; at[0] < windows[0].end; ++at[0])
    for (at[1] = windows[1].begin; at[1] < windows[1].end; ++at[1]) {
      const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]);
      const Range s0 = taps_in_slab(0, at[0]), s1 = taps_in_slab(1, at[1]);
      float divide_by = 1;
      Range last{-1, -1}, last_in_slab{-1, -1};
      for (at[2] = windows[2].begin; at[2] < windows[2].end; ++at[2]) {
        const Range r2 = taps_in_x(p, 2, at[2]), s2 = taps_in_slab(2, at[2]);
        const int64_t origin = tap_offset(p, at, 0, 0, 0);
        int64_t sums_origin = 0;
        for (int i = 0; i < kMaxSpatial; ++i) sums_origin += p.spatial.input_index(i, at[i], 0) * strides[i];
        if (!is_max && (at[2] == windows[2].begin || r2.size() != p.window[2] || r2.size() != last.size()))
          divide_by = divisor_of(p, at[0], at[1], at[2]);
        // The taps are equal for most windows.
        if (!(r2 == last && s2 == last_in_slab)) {
          taps.n = 0;
          for (int64_t a = r0.begin; a < r0.end; ++a)
            for (int64_t b = r1.begin; b < r1.end; ++b)
              for (int64_t c = r2.begin; c < r2.end; ++c) {
                taps.x[taps.n] = tap_offset(p, at, a, b, c) - origin;
                const int64_t to = a * p.spatial.dilation[0] * strides[0] + b * p.spatial.dilation[1] * strides[1] +
                                   c * p.spatial.dilation[2] * strides[2];
                taps.sums[taps.n++] = s0.has(a) && s1.has(b) && s2.has(c) ? to : Taps::kElsewhere;
              }
        }
        last = r2, last_in_slab = s2;
        add_window<is_max, only>(x + origin,
                                 dy + at[0] * p.dy.stride[2] + at[1] * p.dy.stride[3] + at[2] * p.dy.stride[4], taps,
                                 channels, divide_by, sums + sums_origin);
      }
    }
}

template <class T>
void channels_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int axis = int(share.axis);
  const int64_t channels = share.channels, line = padded(channels);
  const int64_t pieces = ceil_div(spatial_size(p.out, axis), share.step);
  // If the windows neither overlap nor leave out an element, dx need not be zeroed first.
  bool only = true, all = true;
  for (int i = 0; i < kMaxSpatial; ++i) {
    const SpatialAttributes& s = p.spatial;
    only = only && s.stride[i] > (p.window[i] - 1) * s.dilation[i];
    all = all && s.stride[i] == p.window[i] && s.dilation[i] == 1 &&
          s.stride[i] * spatial_size(p.dy, i) - s.before[i] >= spatial_size(p.x, i);
  }
  const bool in_place = sizeof(T) == sizeof(float) && !share.stream && channels % kPair == 0;
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t image = item / pieces, first = item % pieces * share.step;
    const Range slab{first, min_of(first + share.step, spatial_size(p.out, axis))};
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0];
    const T* dy = static_cast<const T*>(args.dy) + image * p.dy.stride[0];
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0];
    Range of[kMaxSpatial];
    int64_t strides[kMaxSpatial], positions = 1;
    for (int i = kMaxSpatial - 1; i >= 0; --i) {
      of[i] = i == axis ? slab : Range{0, spatial_size(p.out, i)};
      strides[i] = in_place ? p.out.stride[i + 2] : positions * line;
      positions *= of[i].size();
    }
    float* sums = in_place ? reinterpret_cast<float*>(out) : room - slab.begin * strides[axis];
    float* taps = in_place ? room : room + positions * line;
    auto each_position = [&](auto visit) __attribute__((always_inline)) {
      for (int64_t a = of[0].begin; a < of[0].end; ++a)
        for (int64_t b = of[1].begin; b < of[1].end; ++b)
          for (int64_t c = of[2].begin; c < of[2].end; ++c)
            visit(out + a * p.out.stride[2] + b * p.out.stride[3] + c * p.out.stride[4],
                  sums + a * strides[0] + b * strides[1] + c * strides[2]);
    };
    if (!(only && all))
      each_position([&](T*, float* at) {
        for (int64_t c = 0; c < channels; c += kFloats) store(at + c, Floats{});
      });
    const bool is_max = p.mode == PoolingMode::max;
    (is_max ? only ? sum_slab<true, true, T> : sum_slab<true, false, T>
     : only ? sum_slab<false, true, T>
            : sum_slab<false, false, T>)(p, x, dy, axis, slab, channels, strides, sums, taps);
    if (in_place) continue;
    auto write = [&](const float* from, int64_t n, T* to) {
      each_vector(n, to, [&](int64_t c, auto) __attribute__((always_inline)) {
        return Pair{load(from + c), load(from + c + kFloats)};
      });
    };
    if (!share.stream) {
      each_position([&](T* to, const float* from) { write(from, channels, to); });
      continue;
    }
    Streamer<T> stream(out);
    each_position([&](T* to, const float* from) {
      stream.move_to(to);
      for (int64_t c = 0; c < channels; c += stream.kRoom) {
        const int64_t n = min_of(stream.kRoom, channels - c);
        write(from + c, n, stream.next());
        stream.advance(n);
      }
    });
    stream.finish();
  }
}

// Transposes a square of vectors: first squares of 4 x 4 within each 128 bits, then the 128-bit blocks.
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
    v[i] = low2(a, c), v[i + 1] = high2(a, c), v[i + 2] = low2(b, d), v[i + 3] = high2(b, d);
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
    v[i] = even(a, c), v[i + 4] = even(b, d), v[i + 8] = odd(a, c), v[i + 12] = odd(b, d);
  }
#elif defined(__AVX__)
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Floats a = v[i], b = v[i + 4];
    v[i] = mixed<0, 1, 2, 3, 8, 9, 10, 11>(a, b), v[i + 4] = mixed<4, 5, 6, 7, 12, 13, 14, 15>(a, b);
  }
#endif
}

// to_lanes() transposes n elements of kPlanes planes to [n][kPlanes]; from_lanes() transposes the first `count` planes
// back.
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
    if (i % kLine == 0)  // kPlanes streams are more than the hardware prefetcher follows
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

// A slab of planes as a tensor of one image with kPlanes channels: the indices `range` along `axis`, and all indices
// along the other axes.
struct Slab {
  TensorDesc desc;  // strides of the slab, shape of whole planes
  Range range[kMaxSpatial];
  int64_t positions = 1;
  bool is_run = true;  // whether the slab is one contiguous span of each plane
  Slab(const TensorDesc& planes, int axis, Range along) : desc(planes) {
    int64_t run = 1;
    for (int i = kMaxSpatial - 1; i >= 0; --i) {
      range[i] = i == axis ? along : Range{0, spatial_size(planes, i)};
      desc.stride[i + 2] = positions * kPlanes;
      is_run = is_run && (range[i].size() <= 1 || (planes.stride[i + 2] == run && positions == run));
      positions *= range[i].size();
      run *= spatial_size(planes, i);
    }
    desc.stride[0] = 0, desc.stride[1] = 1;
  }
  // The address of index 0 of all axes, which may be outside the slab.
  float* base(float* memory, int axis) const { return memory - range[axis].begin * desc.stride[axis + 2]; }
  // Calls f(offset in a plane, elements, position in the slab) for each contiguous span.
  template <class F> void each_run(const TensorDesc& planes, F f) const {
    auto offset = [&](int64_t i, int64_t j) {
      return i * planes.stride[2] + j * planes.stride[3] + range[2].begin * planes.stride[4];
    };
    if (is_run) return f(offset(range[0].begin, range[1].begin), positions, int64_t(0));
    int64_t position = 0;
    for (int64_t i = range[0].begin; i < range[0].end; ++i)
      for (int64_t j = range[1].begin; j < range[1].end; ++j, position += range[2].size())
        f(offset(i, j), range[2].size(), position);
  }
};

// The elements of x along an axis that the windows touch.
MINIDNN_HD Range touched(const PoolingProblem& p, int axis, Range windows) {
  const SpatialAttributes& s = p.spatial;
  if (windows.size() == 0) return {0, 0};
  const int64_t begin = max_of<int64_t>(s.input_index(axis, windows.begin, 0), 0);
  const int64_t end = min_of(s.input_index(axis, windows.end - 1, p.window[axis] - 1) + 1, spatial_size(p.x, axis));
  return {min_of(begin, max_of<int64_t>(end, 0)), max_of<int64_t>(end, 0)};
}

template <class T> struct Planes {
  T* at[kPlanes];
  // The planes from `first` on; if there are fewer than kPlanes, the last one is repeated.
  MINIDNN_HD Planes(T* base, const TensorDesc& d, int64_t first, int64_t count) {
    for (int64_t k = 0; k < kPlanes; ++k) {
      const int64_t plane = first + min_of(k, count - 1);
      at[k] = base + plane / d.shape[1] * d.stride[0] + plane % d.shape[1] * d.stride[1];
    }
  }
};
template <class T>
void bring(const void* base, const TensorDesc& d, int64_t first, int64_t count, const Slab& slab, float* to) {
  const Planes<const T> planes(static_cast<const T*>(base), d, first, count);
  slab.each_run(d,
                [&](int64_t at, int64_t n, int64_t position) { to_lanes(planes.at, at, n, to + position * kPlanes); });
}
template <class T>
void put_back(const float* from, const Slab& slab, const TensorDesc& d, int64_t first, int64_t count, void* base) {
  const Planes<T> planes(static_cast<T*>(base), d, first, count);
  slab.each_run(d, [&](int64_t at, int64_t n, int64_t position) {
    from_lanes(from + position * kPlanes, n, planes.at, at, count);
  });
}

// Pools a contiguous plane that is one window. Four independent accumulators: additions need not wait for each other.
template <class Op, class T> float pool_run(const T* x, int64_t n) {
  constexpr int kSums = 4;
  Floats total[kSums], compensation[kSums];
  for (int k = 0; k < kSums; ++k) total[k] = Op::none(), compensation[k] = Floats{};
  auto join = [&](int k, Floats v) __attribute__((always_inline)) {
    if constexpr (__is_same(Op, Max)) total[k] = Op::join(total[k], v);
    else add_compensated(total[k], compensation[k], v);
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
    const Floats v = Op::join(Op::join(total[0], total[1]), Op::join(total[2], total[3]));
    for (int k = 0; k < kFloats; ++k) largest = max_or_nan(largest, v[k]);
    return largest;
  } else {
    return sum_lanes((total[0] + total[1]) + (total[2] + total[3])) +
           sum_lanes((compensation[0] + compensation[1]) + (compensation[2] + compensation[3]));
  }
}
template <class T> void fill_run(T* to, int64_t n, float v) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store_floats(to + i, floats(v));
  store_first(to + i, n - i, floats(v));
}

template <class T>
void planes_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int axis = int(share.axis);
  const int64_t planes = p.x.shape[0] * p.x.shape[1], slabs = ceil_div(spatial_size(p.out, axis), share.step);
  const bool whole = pooling::sees_all_as_a_run(p);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t first = item / slabs * kPlanes, count = min_of<int64_t>(kPlanes, planes - first);
    const int64_t begin = item % slabs * share.step;
    const Range along{begin, min_of(begin + share.step, spatial_size(p.out, axis))};
    const Slab y(p.out, axis, along), x(p.x, axis, touched(p, axis, along));
    float *y_room = room, *x_room = y_room + padded((y.positions + kFloats) * kPlanes);
    if (whole) {
      const Planes<const T> from(static_cast<const T*>(args.x), p.x, first, count);
      const float divide_by = p.mode == PoolingMode::max ? 1 : divisor_of(p, 0, 0, 0);
      for (int64_t k = 0; k < count; ++k)
        y_room[k] = p.mode == PoolingMode::max ? pool_run<Max>(from.at[k], x.positions)
                                               : pool_run<Sum>(from.at[k], x.positions) / divide_by;
    } else {
      bring<T>(args.x, p.x, first, count, x, x_room);
      PoolingProblem lanes = p;
      lanes.x = x.desc, lanes.out = y.desc;
      for (int64_t p0 = y.range[0].begin; p0 < y.range[0].end; ++p0)
        for (int64_t p1 = y.range[1].begin; p1 < y.range[1].end; ++p1)
          forward_line<float>(lanes, x.base(x_room, axis), y.base(y_room, axis), p0, p1, y.range[2], kPlanes,
                              x_room + padded(x.positions * kPlanes));
    }
    put_back<T>(y_room, y, p.out, first, count, args.out);
  }
}

template <class T>
void planes_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int axis = int(share.axis);
  const int64_t planes = p.x.shape[0] * p.x.shape[1], slabs = ceil_div(spatial_size(p.out, axis), share.step);
  const bool is_max = p.mode == PoolingMode::max, fill = !is_max && pooling::sees_all_as_a_run(p);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t first = item / slabs * kPlanes, count = min_of<int64_t>(kPlanes, planes - first);
    const int64_t begin = item % slabs * share.step, end = min_of(begin + share.step, spatial_size(p.out, axis));
    const Range windows{windows_over(p, axis, begin).begin, windows_over(p, axis, end - 1).end};
    const Slab dx(p.out, axis, {begin, end}), dy(p.dy, axis, windows), x(p.x, axis, touched(p, axis, windows));
    float *dx_room = room, *dy_room = dx_room + padded((dx.positions + kFloats) * kPlanes);
    float *x_room = dy_room + padded(dy.positions * kPlanes), *rest = x_room;
    bring<T>(args.dy, p.dy, first, count, dy, dy_room);
    if (fill) {
      const Planes<T> to(static_cast<T*>(args.out), p.out, first, count);
      const float divide_by = divisor_of(p, 0, 0, 0);
      for (int64_t k = 0; k < count; ++k)
        dx.each_run(p.out, [&](int64_t at, int64_t n, int64_t) { fill_run(to.at[k] + at, n, dy_room[k] / divide_by); });
      continue;
    }
    if (is_max) bring<T>(args.x, p.x, first, count, x, x_room), rest += padded(x.positions * kPlanes);
    PoolingProblem lanes = p;
    lanes.x = x.desc, lanes.dy = dy.desc, lanes.out = dx.desc;
    lanes.x.shape[0] = lanes.dy.shape[0] = lanes.out.shape[0] = 1;
    const PoolingArgs in_lanes{x.base(x_room, axis), dy.base(dy_room, axis), dx.base(dx_room, axis)};
    PoolingShare slab = share;
    slab.begin = item % slabs, slab.end = slab.begin + 1, slab.channels = kPlanes;
    channels_backward<float>(lanes, in_lanes, slab, rest);
    put_back<T>(dx_room, dx, p.out, first, count, args.out);
  }
}

template <class T>
void take_larger(float* largest, int32_t* where, int64_t n, const void* from, int64_t step, int32_t index,
                 int32_t apart) {
  const T* x = static_cast<const T*>(from);
  Ints lane{};
  for (int e = 0; e < kFloats; ++e) lane[e] = e;
  using Unsigned = Vector<uint32_t>;  // the indices of lanes beyond n may overflow; they are dropped
  for (int64_t i = 0; i < n; i += kFloats) {
    const int32_t left = int32_t(min_of<int64_t>(n - i, kFloats));
    Floats v{};
    if (step == 1) v = left == kFloats ? load_floats(x + i) : load_first(x + i, left);
    else
      for (int e = 0; e < left; ++e) v[e] = float(x[(i + e) * step]);
    const Floats most = load(largest + i);
    Ints at;
    __builtin_memcpy(&at, where + i, sizeof at);
    const Ints larger = ((v > most) | ((v != v) & (most == most)) | (at < 0)) & (lane < left);
    store(largest + i, select(larger, v, most));
    const auto here = Ints(uint32_t(index) + (uint32_t(i) + Unsigned(lane)) * uint32_t(apart));
    at = (larger & here) | (~larger & at);
    __builtin_memcpy(where + i, &at, sizeof at);
  }
}

template <class T> constexpr PoolingKernels::Typed typed() {
  return {channels_forward<T>, channels_backward<T>, planes_forward<T>, planes_backward<T>, take_larger<T>};
}

}  // namespace

extern const PoolingKernels pooling_kernels;
const PoolingKernels pooling_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>()};

}  // namespace minidnn::MINIDNN_ISA
