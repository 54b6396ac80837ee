// SPDX-License-Identifier: Apache-2.0
// The gradient of pooling, computed window by window. Each lane of a vector computes one channel. This header is only
// for X_isa.cpp files, which are compiled once per instruction set.
#pragma once
#include "cpp/pooling/cpu/nhwc_forward.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using detail::windows_over;

// The elements of a window that are inside x: their offsets in x, and in the sums of dx. An element outside the part of
// dx that is summed has the offset kElsewhere.
struct Taps {
  static constexpr int64_t kElsewhere = INT64_MIN;
  int64_t *x, *sums;
  int64_t n;
};

// Adds the gradient of one window to the sums of dx: dy at the first maximum, or dy / divisor at each element. If
// windows do not overlap (`disjoint`), values are stored instead. Channels have the order of load_pair().
template <bool is_max, bool disjoint, class T>
void add_window(const T* x, const T* dy, const Taps& taps, int64_t channels, float divide_by, float* sums) {
  auto add = [&](int64_t i, int64_t c, Floats v) __attribute__((always_inline)) {
    if (taps.sums[i] == Taps::kElsewhere) return;
    float* to = sums + taps.sums[i] + c;
    store(to, disjoint ? v : load(to) + v);
  };
  auto window = [&](int64_t c, auto load_x) __attribute__((always_inline)) {
    Pair g = load_x(dy + c);
    if constexpr (!is_max) {
      g.first /= divide_by;
      g.second /= divide_by;
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
    // A NaN counts as a maximum. If several elements are maxima, the first receives dy.
    auto is_most = [&](Floats v, Floats of) { return (v == of) | (v != v); };
    Ints done[2]{};
    // Most elements of a large window are the maximum of no lane. So dy is added only at the maximum of each lane.
    constexpr int64_t kMany = 16;
    if (!disjoint && taps.n > kMany) {
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
  // Lanes after the last channel add zeros to the padding of the sums.
  if (const int64_t n = channels - c; n > 0)
    window(c, [=](const T* from) {
      return Pair{load_first(from, min_of<int64_t>(n, kFloats)),
                  load_first(from + kFloats, max_of<int64_t>(n - kFloats, 0))};
    });
}

// The memory for the sums of dx. `data` points to the sum at index 0 of all axes. Strides are in floats.
struct Sums {
  float* data;
  int64_t strides[kMaxSpatial];
};

// Computes the sums of dx for all positions whose index along `axis` is in `slice`.
template <bool is_max, bool disjoint, class T>
void sum_slice(const PoolingProblem& p, const T* x, const T* dy, int axis, Range slice, int64_t channels,
               const Sums& sums, float* scratch) {
  const int64_t(&strides)[kMaxSpatial] = sums.strides;
  Range windows[kMaxSpatial];
  for (int i = 0; i < kMaxSpatial; ++i) windows[i] = {0, spatial_size(p.dy, i)};
  // The windows that extend over the indices `slice`.
  windows[axis] = {windows_over(p, axis, slice.begin).begin, windows_over(p, axis, slice.end - 1).end};
  auto taps_in_slice = [&](int i, int64_t at) {
    return i == axis ? detail::taps(p, i, at, slice.begin, slice.end) : taps_in_x(p, i, at);
  };
  Taps taps{reinterpret_cast<int64_t*>(scratch), nullptr, 0};
  taps.sums = taps.x + p.window[0] * p.window[1] * p.window[2];

  int64_t at[kMaxSpatial];
  for (at[0] = windows[0].begin; at[0] < windows[0].end; ++at[0])
    for (at[1] = windows[1].begin; at[1] < windows[1].end; ++at[1]) {
      const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]);
      const Range s0 = taps_in_slice(0, at[0]), s1 = taps_in_slice(1, at[1]);
      float divide_by = 1;
      Range last{-1, -1}, last_in_slice{-1, -1};
      for (at[2] = windows[2].begin; at[2] < windows[2].end; ++at[2]) {
        const Range r2 = taps_in_x(p, 2, at[2]), s2 = taps_in_slice(2, at[2]);
        const int64_t origin = tap_offset(p, at, 0, 0, 0);
        int64_t sums_origin = 0;
        for (int i = 0; i < kMaxSpatial; ++i) sums_origin += p.spatial.input_index(i, at[i], 0) * strides[i];
        if (!is_max && (at[2] == windows[2].begin || r2.size() != p.window[2] || r2.size() != last.size()))
          divide_by = divisor_of(p, at[0], at[1], at[2]);
        // Most windows have the same elements inside x as the previous one, so the list is kept.
        if (!(r2 == last && s2 == last_in_slice)) {
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
        last = r2;
        last_in_slice = s2;
        add_window<is_max, disjoint>(x + origin,
                                     dy + at[0] * p.dy.stride[2] + at[1] * p.dy.stride[3] + at[2] * p.dy.stride[4],
                                     taps, channels, divide_by, sums.data + sums_origin);
      }
    }
}

template <class T>
void channels_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingChunk& chunk, float* scratch) {
  const int axis = int(chunk.axis);
  const int64_t channels = chunk.channels, line = padded(channels);
  const int64_t slices = ceil_div(spatial_size(p.out, axis), chunk.slice);
  // Without overlap, each element of dx is stored at most once. If the windows also cover x, dx need not be set to
  // zero.
  bool disjoint = true, covering = true;
  for (int i = 0; i < kMaxSpatial; ++i) {
    const SpatialAttributes& s = p.spatial;
    disjoint = disjoint && s.stride[i] > (p.window[i] - 1) * s.dilation[i];
    covering = covering && s.stride[i] == p.window[i] && s.dilation[i] == 1 &&
               s.stride[i] * spatial_size(p.dy, i) - s.before[i] >= spatial_size(p.x, i);
  }
  const bool in_place = sizeof(T) == sizeof(float) && !chunk.non_temporal && channels % kPair == 0;
  for (int64_t item = chunk.begin; item < chunk.end; ++item) {
    const int64_t image = item / slices, first = item % slices * chunk.slice;
    const Range slice{first, min_of(first + chunk.slice, spatial_size(p.out, axis))};
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0];
    const T* dy = static_cast<const T*>(args.dy) + image * p.dy.stride[0];
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0];
    Range of[kMaxSpatial];
    Sums sums;
    int64_t(&strides)[kMaxSpatial] = sums.strides;
    int64_t positions = 1;
    for (int i = kMaxSpatial - 1; i >= 0; --i) {
      of[i] = i == axis ? slice : Range{0, spatial_size(p.out, i)};
      strides[i] = in_place ? p.out.stride[i + 2] : positions * line;
      positions *= of[i].size();
    }
    sums.data = in_place ? reinterpret_cast<float*>(out) : scratch - slice.begin * strides[axis];
    float* taps = in_place ? scratch : scratch + positions * line;
    auto each_position = [&](auto visit) __attribute__((always_inline)) {
      for (int64_t a = of[0].begin; a < of[0].end; ++a)
        for (int64_t b = of[1].begin; b < of[1].end; ++b)
          for (int64_t c = of[2].begin; c < of[2].end; ++c)
            visit(out + a * p.out.stride[2] + b * p.out.stride[3] + c * p.out.stride[4],
                  sums.data + a * strides[0] + b * strides[1] + c * strides[2]);
    };
    if (!(disjoint && covering))
      each_position([&](T*, float* at) {
        for (int64_t c = 0; c < channels; c += kFloats) store(at + c, Floats{});
      });
    const bool is_max = p.mode == PoolingMode::max;
    (is_max     ? disjoint ? sum_slice<true, true, T> : sum_slice<true, false, T>
         : disjoint ? sum_slice<false, true, T>
                : sum_slice<false, false, T>)(p, x, dy, axis, slice, channels, sums, taps);
    if (in_place) continue;
    auto write = [&](const float* from, int64_t n, T* to) {
      each_vector(n, to, [&](int64_t c, auto) __attribute__((always_inline)) {
        return Pair{load(from + c), load(from + c + kFloats)};
      });
    };
    if (!chunk.non_temporal) {
      each_position([&](T* to, const float* from) { write(from, channels, to); });
      continue;
    }
    Streamer<T> stream(out);
    each_position([&](T* to, const float* from) {
      stream.move_to(to);
      for (int64_t c = 0; c < channels; c += stream.kCapacity) {
        const int64_t n = min_of(stream.kCapacity, channels - c);
        write(from + c, n, stream.next());
        stream.advance(n);
      }
    });
    stream.finish();
  }
}

}  // namespace

}  // namespace minidnn::MINIDNN_ISA
