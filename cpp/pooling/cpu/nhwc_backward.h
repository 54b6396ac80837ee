// SPDX-License-Identifier: Apache-2.0
// The gradient of pooling, computed window by window. Each lane of a vector computes one channel. This header is only
// for X_isa.cpp files, which are compiled once per instruction set.
#pragma once
#include "cpp/pooling/cpu/nhwc_forward.h"

namespace minidnn::MINIDNN_ISA {
namespace {

__attribute__((noinline)) Range windows_over(const PoolingProblem& p, int i, int64_t at) {
  return detail::windows_over(p, i, at);
}

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
    // Most elements of a window of this size are the maximum of no lane. So dy is added only at the maximum of each
    // lane.
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
  bool disjoint;  // true if no two windows overlap
};

// The index of channel c in the order of load_pair().
template <class T> MINIDNN_HD int64_t in_pairs(int64_t c, int64_t channels) {
  if (!kIsInterleaved<T> || c >= channels / kPair * kPair) return c;
  return c / kPair * kPair + c % 2 * kFloats + c % kPair / 2;
}

// Combines vectors of x with running maxima. The first `valid` lanes of a vector count. `number` has the number of each
// maximum, or -1 if there is none yet; `element` is the number of the elements in the first vector.
template <class T>
void update_maxima(const T* from, int64_t step, int64_t vectors, int64_t valid, int64_t element, int64_t next_element,
                   float* most, int32_t* number) {
  Floats so_far = load(most);
  Ints where, lane;
  __builtin_memcpy(&where, number, sizeof where);
  for (int k = 0; k < kFloats; ++k) lane[k] = k;
  const Ints counts = lane < int32_t(valid);
  for (int64_t i = 0; i < vectors; ++i, from += step, element += next_element) {
    const Floats v = valid < kFloats ? load_first(from, valid) : load_floats(from);
    const Ints larger = ((v > so_far) | ((v != v) & (so_far == so_far)) | (where < 0)) & counts;
    where = larger ? Ints{} + int32_t(element) : where;
    so_far = select(larger, v, so_far);
  }
  store(most, so_far);
  __builtin_memcpy(number, &where, sizeof where);
}

// Finds the first maximum of a large window in each channel. Returns their numbers among the elements inside x, in
// row-major order; -1 if there are no elements. x is read once, in the order of memory. If there are few channels, a
// vector has the channels of several adjacent elements.
template <class T>
const int32_t* find_maxima(const PoolingProblem& p, const T* x, const int64_t (&at)[kMaxSpatial],
                           const Range (&taps)[kMaxSpatial], int64_t channels, float* scratch) {
  const int64_t step = p.spatial.dilation[2] * p.x.stride[4];
  const int64_t adjacent = step == channels && channels < kFloats ? kFloats : 1;
  const int64_t lanes = adjacent == 1 ? padded(channels) : adjacent * channels;
  float* const most = scratch;
  // The number of each maximum, less the number of elements before its own in the vector.
  int32_t* const number = reinterpret_cast<int32_t*>(scratch + lanes);
  for (int64_t l = 0; l < lanes; ++l) {
    most[l] = -INFINITY;
    number[l] = -1;
  }
  // The elements of a block fit the first-level cache.
  constexpr int64_t kBlock = 4096;
  const int64_t block = max_of<int64_t>(kBlock / lanes, 1) * adjacent;
  int64_t element = 0;
  for (int64_t a = taps[0].begin; a < taps[0].end; ++a)
    for (int64_t b = taps[1].begin; b < taps[1].end; ++b)
      for (int64_t c = taps[2].begin, some; c < taps[2].end; c += some, element += some) {
        // A block, or the last elements of a line, which are fewer than `adjacent`.
        some = min_of(block, taps[2].end - c);
        if (some > adjacent) some = some / adjacent * adjacent;
        const T* from = x + tap_offset(p, at, a, b, c);
        const int64_t n = min_of(adjacent, some) * channels;
        for (int64_t l = 0; l < n; l += kFloats)
          update_maxima(from + l, adjacent * step, ceil_div(some, adjacent), min_of<int64_t>(n - l, kFloats), element,
                        adjacent, most + l, number + l);
      }
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 1; k < adjacent && number[k * channels + c] >= 0; ++k) {
      const float v = most[k * channels + c], largest = most[c];
      const int32_t there = number[k * channels + c] + int32_t(k);
      const bool equal = v == largest || (v != v && largest != largest);
      if (v > largest || (v != v && largest == largest) || (equal && there < number[c])) {
        most[c] = v;
        number[c] = there;
      }
    }
  return number;
}

// Computes the sums of dx for all positions whose index along `axis` is in `slice`.
template <class T>
void sum_slice(const PoolingProblem& p, const T* x, const T* dy, int axis, Range slice, int64_t channels,
               const Sums& sums, float* scratch) {
  const bool is_max = p.mode == PoolingMode::max, large = is_max && cpu::pooling::taps_of(p) > kFewTaps;
  const bool disjoint = sums.disjoint;
  const auto add = is_max     ? disjoint ? add_window<true, true, T> : add_window<true, false, T>
                       : disjoint ? add_window<false, true, T>
                              : add_window<false, false, T>;
  const int64_t(&strides)[kMaxSpatial] = sums.strides;
  Range windows[kMaxSpatial];
  for (int i = 0; i < kMaxSpatial; ++i) windows[i] = {0, spatial_size(p.dy, i)};
  // The windows that extend over the indices `slice`.
  windows[axis] = {windows_over(p, axis, slice.begin).begin, windows_over(p, axis, slice.end - 1).end};
  auto taps_in_slice = [&](int i, int64_t at) {
    return i == axis ? detail::taps(p, i, at, slice.begin, slice.end) : taps_in_x(p, i, at);
  };
  Taps taps{reinterpret_cast<int64_t*>(scratch), nullptr, 0};
  taps.sums = taps.x + cpu::pooling::taps_of(p);

  int64_t at[kMaxSpatial];
  for (at[0] = windows[0].begin; at[0] < windows[0].end; ++at[0])
    for (at[1] = windows[1].begin; at[1] < windows[1].end; ++at[1]) {
      const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]);
      const Range s0 = taps_in_slice(0, at[0]), s1 = taps_in_slice(1, at[1]);
      const int64_t first0 = first_of(p, 0, at[0]), first1 = first_of(p, 1, at[1]);
      const int64_t line = first0 * p.x.stride[2] + first1 * p.x.stride[3],
                    sums_line = first0 * strides[0] + first1 * strides[1];
      float divide_by = 1;
      Range last{-1, -1}, last_in_slice{-1, -1};
      for (at[2] = windows[2].begin; at[2] < windows[2].end; ++at[2]) {
        const Range r2 = taps_in_x(p, 2, at[2]), s2 = axis == 2 ? taps_in_slice(2, at[2]) : r2;
        const int64_t first2 = first_of(p, 2, at[2]), origin = line + first2 * p.x.stride[4],
                      sums_origin = sums_line + first2 * strides[2];
        const T* const gradient = dy + at[0] * p.dy.stride[2] + at[1] * p.dy.stride[3] + at[2] * p.dy.stride[4];
        auto sum_offset = [&](int64_t a, int64_t b, int64_t c) {
          return a * p.spatial.dilation[0] * strides[0] + b * p.spatial.dilation[1] * strides[1] +
                 c * p.spatial.dilation[2] * strides[2];
        };
        if (large) {
          const int32_t* element = find_maxima(p, x, at, {r0, r1, r2}, channels, scratch);
          for (int64_t channel = 0; channel < channels && *element >= 0; ++channel, ++element) {
            const int64_t c = r2.begin + *element % r2.size(), b = r1.begin + *element / r2.size() % r1.size(),
                          a = r0.begin + *element / r2.size() / r1.size();
            if (s0.has(a) && s1.has(b) && s2.has(c))
              sums.data[sums_origin + sum_offset(a, b, c) + in_pairs<T>(channel, channels)] += float(gradient[channel]);
          }
          continue;
        }
        if (!is_max && (at[2] == windows[2].begin || r2.size() != p.window[2] || r2.size() != last.size()))
          divide_by = divisor_of(p, at[0], at[1], at[2]);
        // Most windows have the same elements inside x as the previous one, so the list is kept.
        if (!(r2 == last && s2 == last_in_slice)) {
          taps.n = 0;
          for (int64_t a = r0.begin; a < r0.end; ++a)
            for (int64_t b = r1.begin; b < r1.end; ++b)
              for (int64_t c = r2.begin; c < r2.end; ++c) {
                taps.x[taps.n] = offset_in_window(p, a, b, c);
                taps.sums[taps.n++] = s0.has(a) && s1.has(b) && s2.has(c) ? sum_offset(a, b, c) : Taps::kElsewhere;
              }
        }
        last = r2;
        last_in_slice = s2;
        add(x + origin, gradient, taps, channels, divide_by, sums.data + sums_origin);
      }
    }
}

template <class T>
void channels_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingChunk& chunk, float* scratch) {
  const int axis = int(chunk.axis);
  const int64_t channels = chunk.channels, line = padded(channels);
  const int64_t slices = ceil_div(spatial_size(p.out, axis), chunk.slice);
  // Without overlap, each element of dx is stored at most once. If the windows also cover x, dx need not be set to
  // zero. The gradients of large windows are added at their maxima only.
  const bool large = p.mode == PoolingMode::max && cpu::pooling::taps_of(p) > kFewTaps;
  bool disjoint = !p.adaptive && !large, covering = disjoint;
  for (int i = 0; i < kMaxSpatial; ++i) {
    const SpatialAttributes& s = p.spatial;
    disjoint = disjoint && s.stride[i] > (p.window[i] - 1) * s.dilation[i];
    covering = covering && s.stride[i] == p.window[i] && s.dilation[i] == 1 &&
               s.stride[i] * spatial_size(p.dy, i) - s.before[i] >= spatial_size(p.x, i);
  }
  const bool in_place = sizeof(T) == sizeof(float) && (large || (!chunk.non_temporal && channels % kPair == 0));
  for (int64_t item = chunk.begin; item < chunk.end; ++item) {
    const int64_t image = item / slices, first = item % slices * chunk.slice;
    const Range slice{first, min_of(first + chunk.slice, spatial_size(p.out, axis))};
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0];
    const T* dy = static_cast<const T*>(args.dy) + image * p.dy.stride[0];
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0];
    Range of[kMaxSpatial];
    Sums sums{};
    sums.disjoint = disjoint;
    int64_t(&strides)[kMaxSpatial] = sums.strides;
    int64_t positions = 1;
    for (int i = kMaxSpatial - 1; i >= 0; --i) {
      of[i] = i == axis ? slice : Range{0, spatial_size(p.out, i)};
      strides[i] = in_place ? p.out.stride[i + 2] : positions * line;
      positions *= of[i].size();
    }
    sums.data = in_place ? reinterpret_cast<float*>(out) : scratch - slice.begin * strides[axis];
    float* taps = in_place ? scratch : scratch + positions * line;
    // Calls visit(element of dx, its sum) for each position, or only for the first of each line.
    auto each_position = [&](auto visit, bool lines = false) __attribute__((always_inline)) {
      for (int64_t a = of[0].begin; a < of[0].end; ++a)
        for (int64_t b = of[1].begin; b < of[1].end; ++b)
          for (int64_t c = of[2].begin; c < (lines ? of[2].begin + 1 : of[2].end); ++c)
            visit(out + a * p.out.stride[2] + b * p.out.stride[3] + c * p.out.stride[4],
                  sums.data + a * strides[0] + b * strides[1] + c * strides[2]);
    };
    if (!(disjoint && covering)) {
      const bool whole_lines = in_place && p.out.stride[4] == channels;
      const int64_t n = whole_lines ? of[2].size() * channels : in_place ? channels : line;
      each_position(
          [&](T*, float* at) {
            int64_t c = 0;
            for (; c + kFloats <= n; c += kFloats) store(at + c, Floats{});
            if (c < n) store_first(at + c, n - c, Floats{});
          },
          whole_lines);
    }
    sum_slice(p, x, dy, axis, slice, channels, sums, taps);
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
