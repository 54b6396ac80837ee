// SPDX-License-Identifier: Apache-2.0
// Max and average pooling. Each lane of a vector computes one channel. This header is only for X_isa.cpp files, which
// are compiled once per instruction set.
#pragma once
#include "cpp/pooling/cpu/nhwc_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using cpu::pooling::padded;
using detail::divisor, detail::Range, detail::taps_in_x;
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

MINIDNN_HD float divisor_of(const PoolingProblem& p, int64_t p0, int64_t p1, int64_t p2) {
  const int64_t at[kMaxSpatial] = {p0, p1, p2};
  return float(p.mode == PoolingMode::avg ? divisor<PoolingMode::avg>(p, at)
                                          : divisor<PoolingMode::avg_exclude_padding>(p, at));
}

// Returns the offset in x of element (a, b, c) of the window at output position `at`.
MINIDNN_HD int64_t tap_offset(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], int64_t a, int64_t b,
                              int64_t c) {
  return p.spatial.input_index(0, at[0], a) * p.x.stride[2] + p.spatial.input_index(1, at[1], b) * p.x.stride[3] +
         p.spatial.input_index(2, at[2], c) * p.x.stride[4];
}

// The largest window, in elements, that is pooled in registers. Larger windows are pooled in groups of elements, whose
// results are combined in scratch memory.
constexpr int kFewTaps = 64;
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
    if (divide_by != 1) {
      total.first /= divide_by;
      total.second /= divide_by;
    }
    return total;
  });
}

// Pools one window, kGroup elements at a time in registers. The sums of groups are added in `scratch` (two floats per
// channel) with compensation for rounding errors.
template <class Op, class T>
void pool_many(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], const T* x, int64_t channels, float divide_by,
               float* scratch, T* out) {
  float *sum = scratch, *compensation = scratch + padded(channels);
  for (int64_t c = 0; c < padded(channels); c += kFloats) {
    store(sum + c, Op::none());
    store(compensation + c, Floats{});
  }
  const T* group[kGroup];
  int64_t grouped = 0;
  auto join_group = [&](int64_t n) {
    auto join = [&](int64_t c, Floats v) __attribute__((always_inline)) {
      CompensatedSum<Floats> total{load(sum + c), load(compensation + c)};
      if constexpr (__is_same(Op, Max)) total.sum = Op::join(total.sum, v);
      else total.add(v);
      store(sum + c, total.sum);
      store(compensation + c, total.compensation);
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
        if (grouped == kGroup) {
          join_group(grouped);
          grouped = 0;
        }
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
  for (; at[2] < positions.end; ++at[2], out += p.out.stride[4]) {
    const Range r2 = taps_in_x(p, 2, at[2]);
    const int64_t origin = tap_offset(p, at, 0, 0, 0);
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
            for (int64_t c = r2.begin; c < r2.end; ++c) taps[n++] = tap_offset(p, at, a, b, c) - origin;
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
