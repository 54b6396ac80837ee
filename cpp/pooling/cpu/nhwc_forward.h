// SPDX-License-Identifier: Apache-2.0
// Max and average pooling. Each lane of a vector computes one channel. This header is only for X_isa.cpp files, which
// are compiled once per instruction set.
#pragma once
#include "cpp/pooling/cpu/nhwc_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using cpu::pooling::kFewTaps, cpu::pooling::padded;
using detail::Range;
using Ints = Vector<int32_t>;

constexpr int kPair = 2 * kFloats;

template <class F> MINIDNN_HD Pair both(const Pair& a, const Pair& b, F f) {
  return {f(a.first, b.first), f(a.second, b.second)};
}

// Returns the larger of two numbers. If either is NaN, the result is one of the two, and it is not specified which.
MINIDNN_HD Floats larger(Floats a, Floats b) {
#if defined(__AVX__) && !defined(__AVX512F__)
  return __builtin_ia32_maxps256(b, a);  // If `a` or `b` is NaN, this instruction returns `a`.
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

// The positions of windows are computed outside of inner loops. Functions that are long are not inlined.
__attribute__((noinline)) int64_t first_of_adaptive(const PoolingProblem& p, int i, int64_t at) {
  return detail::first_of(p, i, at);
}
MINIDNN_HD int64_t first_of(const PoolingProblem& p, int i, int64_t at) {
  return p.adaptive ? first_of_adaptive(p, i, at) : p.spatial.input_index(i, at, 0);
}
__attribute__((noinline)) Range taps_in_x(const PoolingProblem& p, int i, int64_t at) {
  return detail::taps_in_x(p, i, at);
}
// Returns how many elements of the window at output position `at`, along dimension i, count for an average.
__attribute__((noinline)) int64_t counted_along(const PoolingProblem& p, int i, int64_t at) {
  return p.mode == PoolingMode::avg ? detail::counted<PoolingMode::avg>(p, i, at)
                                    : detail::counted<PoolingMode::avg_exclude_padding>(p, i, at);
}
MINIDNN_HD float divisor_of(const PoolingProblem& p, int64_t p0, int64_t p1, int64_t p2) {
  return float(max_of<int64_t>(counted_along(p, 0, p0) * counted_along(p, 1, p1) * counted_along(p, 2, p2), 1));
}

// Returns the offset in x of element (a, b, c) of a window, relative to the first element of the window.
MINIDNN_HD int64_t offset_in_window(const PoolingProblem& p, int64_t a, int64_t b, int64_t c) {
  const int64_t(&step)[kMaxSpatial] = p.spatial.dilation;
  return a * step[0] * p.x.stride[2] + b * step[1] * p.x.stride[3] + c * step[2] * p.x.stride[4];
}
// Returns the offset in x of element (a, b, c) of the window at output position `at`.
MINIDNN_HD int64_t tap_offset(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], int64_t a, int64_t b,
                              int64_t c) {
  return first_of(p, 0, at[0]) * p.x.stride[2] + first_of(p, 1, at[1]) * p.x.stride[3] +
         first_of(p, 2, at[2]) * p.x.stride[4] + offset_in_window(p, a, b, c);
}

constexpr int kGroup = 8;  // the number of window elements in a group

// Writes the results of all channels to `out`. make(c, load) computes two vectors of channels from channel c on, and
// reads elements of x by load(address).
template <class T, class F> MINIDNN_HD void each_vector(int64_t channels, T* out, F make) {
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) store_pair(out + c, make(c, [](const T* from) { return load_pair(from); }));
  for (; c < channels; c += kFloats) {
    const int64_t n = min_of<int64_t>(kFloats, channels - c);
    store_first(out + c, n, make(c, [=](const T* from) { return Pair{load_first(from, n), Floats{}}; }).first);
  }
}

// Pools two vectors of channels, from channel c on, over n elements at the offsets `taps`. load(address) reads x.
template <class Op, class T, class Load>
MINIDNN_HD Pair pool_taps(const T* x, const int64_t* taps, int64_t n, int64_t c, Load load) {
  Pair total{Op::none(), Op::none()};
  for (int64_t i = 0; i < n;) {
    Pair group = load(x + taps[i] + c);
    const int64_t end = min_of(i + kGroup, n);
    for (++i; i < end; ++i) group = both(group, load(x + taps[i] + c), Op::join);
    total = both(total, group, Op::join);
  }
  return total;
}

template <class Op, class T>
MINIDNN_HD void pool_few(const T* x, const int64_t* taps, int64_t n, int64_t channels, float divide_by, T* out) {
  each_vector(channels, out, [&](int64_t c, auto load) __attribute__((always_inline)) {
    Pair total = pool_taps<Op>(x, taps, n, c, load);
    if (divide_by != 1) {
      total.first /= divide_by;
      total.second /= divide_by;
    }
    return total;
  });
}

// Pools one window, at most kFewTaps elements at a time in registers. The sums of groups are added in `scratch` (two
// floats per channel) with compensation for rounding errors.
template <class Op, class T>
void pool_many(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], const T* x, int64_t channels, float divide_by,
               float* scratch, T* out) {
  float *sum = scratch, *compensation = scratch + padded(channels);
  for (int64_t c = 0; c < padded(channels); c += kFloats) {
    store(sum + c, Op::none());
    store(compensation + c, Floats{});
  }
  // If there are many channels, a group has fewer elements, so that it fits the first-level cache.
  constexpr int64_t kGroupElements = 8192;
  const int64_t most = min_of<int64_t>(max_of<int64_t>(kGroupElements / channels, kGroup), kFewTaps);
  int64_t taps[kFewTaps], n = 0;
  auto join_group = [&] {
    auto join = [&](int64_t c, Floats v) __attribute__((always_inline)) {
      CompensatedSum<Floats> total{load(sum + c), load(compensation + c)};
      if constexpr (__is_same(Op, Max)) total.sum = Op::join(total.sum, v);
      else total.add(v);
      store(sum + c, total.sum);
      store(compensation + c, total.compensation);
    };
    int64_t c = 0;
    for (; c + kPair <= channels; c += kPair) {
      const Pair v = pool_taps<Op>(x, taps, n, c, [](const T* from) { return load_pair(from); });
      join(c, v.first);
      join(c + kFloats, v.second);
    }
    for (; c < channels; c += kFloats) {
      const int64_t left = min_of<int64_t>(kFloats, channels - c);
      join(c,
           pool_taps<Op>(x, taps, n, c, [=](const T* from) { return Pair{load_first(from, left), Floats{}}; }).first);
    }
    n = 0;
  };
  const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]), r2 = taps_in_x(p, 2, at[2]);
  const int64_t step = p.spatial.dilation[2] * p.x.stride[4];
  for (int64_t a = r0.begin; a < r0.end; ++a)
    for (int64_t b = r1.begin; b < r1.end; ++b) {
      const int64_t first = tap_offset(p, at, a, b, r2.begin);
      for (int64_t c = 0; c < r2.size(); ++c) {
        taps[n++] = first + c * step;
        if (n == most) join_group();
      }
    }
  if (n) join_group();
  auto result = [&](int64_t c) __attribute__((always_inline)) {
    return divide_by != 1 ? (load(sum + c) + load(compensation + c)) / divide_by
                          : load(sum + c) + load(compensation + c);
  };
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) store_pair(out + c, Pair{result(c), result(c + kFloats)});
  for (; c < channels; c += kFloats) store_first(out + c, min_of<int64_t>(kFloats, channels - c), result(c));
}

// Computes some positions of a line of y (along its last dimension), for all channels. `x` and `out` are those of the
// image.
template <class Op, class T>
void forward_line_by(const PoolingProblem& p, const T* x, T* out, int64_t p0, int64_t p1, Range positions,
                     int64_t channels, float* scratch) {
  int64_t at[kMaxSpatial] = {p0, p1, positions.begin};
  out += p0 * p.out.stride[2] + p1 * p.out.stride[3] + positions.begin * p.out.stride[4];
  const Range r0 = taps_in_x(p, 0, p0), r1 = taps_in_x(p, 1, p1);
  // The offsets of the window elements inside x from the window's first element. They are computed again only if they
  // change.
  int64_t taps[kFewTaps], n = 0;
  float divide_by = 1;
  Range last{-1, -1};
  const int64_t line = first_of(p, 0, p0) * p.x.stride[2] + first_of(p, 1, p1) * p.x.stride[3];
  for (; at[2] < positions.end; ++at[2], out += p.out.stride[4]) {
    const Range r2 = taps_in_x(p, 2, at[2]);
    const int64_t origin = line + first_of(p, 2, at[2]) * p.x.stride[4];
    if (p.mode != PoolingMode::max &&
        (at[2] == positions.begin || r2.size() != p.window[2] || r2.size() != last.size()))
      divide_by = divisor_of(p, p0, p1, at[2]);
    if (r0.size() * r1.size() * r2.size() > kFewTaps) {
      pool_many<Op>(p, at, x, channels, divide_by, scratch, out);
    } else {
      if (r2.begin != last.begin || r2.end != last.end) {
        n = 0;
        for (int64_t a = r0.begin; a < r0.end; ++a)
          for (int64_t b = r1.begin; b < r1.end; ++b)
            for (int64_t c = r2.begin; c < r2.end; ++c) taps[n++] = offset_in_window(p, a, b, c);
      }
      pool_few<Op>(x + origin, taps, n, channels, divide_by, out);
    }
    last = r2;
  }
}
template <class T>
void forward_line(const PoolingProblem& p, const T* x, T* out, int64_t p0, int64_t p1, Range positions,
                  int64_t channels, float* scratch) {
  if (p.mode == PoolingMode::max) forward_line_by<Max>(p, x, out, p0, p1, positions, channels, scratch);
  else forward_line_by<Sum>(p, x, out, p0, p1, positions, channels, scratch);
}

}  // namespace

}  // namespace minidnn::MINIDNN_ISA
