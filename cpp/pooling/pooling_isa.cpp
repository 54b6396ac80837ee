// SPDX-License-Identifier: Apache-2.0
// Pooling a line at a time. Where channels lie beside each other, a lane is a channel. Else a lane is a position of the
// last dimension: the lines of a window become one first, with room for the padding, and that is taken apart by the
// stride, so that the elements of neighbouring windows are neighbours as well.
#include "cpp/cpu/floats.h"
#include "cpp/pooling/pooling_kernels.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using detail::divisor, detail::Range, detail::tap_on, detail::taps_in_x, detail::windows_over;
using pooling::kMaxWindowsOver, pooling::padded;
using Ints = Vector<int32_t>;

constexpr int kPair = 2 * kFloats;

template <class F> MINIDNN_HD Pair both(const Pair& a, const Pair& b, F f) {
  return {f(a.first, b.first), f(a.second, b.second)};
}

struct Max {
  static MINIDNN_HD Floats none() { return floats(-INFINITY); }
  static MINIDNN_HD Floats join(Floats a, Floats b) { return (a < b) | (b != b) ? b : a; }
};
struct Sum {
  static MINIDNN_HD Floats none() { return Floats{}; }
  static MINIDNN_HD Floats join(Floats a, Floats b) { return a + b; }
};

// CarefulSum on vectors.
MINIDNN_HD void add_careful(Floats& sum, Floats& lost, Floats v) {
  v += lost;
  const Floats next = sum + v, took = next - sum, error = (sum - (next - took)) + (v - took);
  lost = error == error ? error : Floats{};
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

// ---- Channels beside each other ----

constexpr int kFewTaps = 16;  // whose lines are read at once; more are joined by groups, in memory

// One vector of channels, whole or not, by what F makes of a load.
template <class T, class F> MINIDNN_HD void each_vector(int64_t channels, T* out, F make) {
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) store_pair(out + c, make(c, [](const T* from) { return load_pair(from); }));
  for (; c < channels; c += kFloats) {
    const int64_t n = min_of<int64_t>(kFloats, channels - c);
    store_first(out + c, n, make(c, [=](const T* from) { return Pair{load_first(from, n), Floats{}}; }).first);
  }
}

template <class Op, class T>
MINIDNN_HD void pool_few(const T* const* taps, int64_t n, int64_t channels, float divide_by, T* out) {
  each_vector(channels, out, [&](int64_t c, auto load) __attribute__((always_inline)) {
    Pair v{Op::none(), Op::none()};
    if (n > 0) v = load(taps[0] + c);
    for (int64_t i = 1; i < n; ++i) v = both(v, load(taps[i] + c), Op::join);
    if (divide_by != 1) v.first /= divide_by, v.second /= divide_by;
    return v;
  });
}

// The window at one position, its taps eight at a time: sums of equal elements stay exact inside a group, and between
// groups no rounding error is lost. `room` holds two lines.
template <class Op, class T>
void pool_many(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], const T* x, int64_t channels, float divide_by,
               float* room, T* out) {
  constexpr int kGroup = 8;
  float *sum = room, *lost = room + padded(channels);
  for (int64_t c = 0; c < padded(channels); c += kFloats) {
    store(sum + c, Op::none());
    store(lost + c, Floats{});
  }
  const T* group[kGroup];
  int64_t grouped = 0;
  auto join_group = [&](int64_t n) {
    auto join = [&](int64_t c, Floats v) __attribute__((always_inline)) {
      Floats total = load(sum + c), rest = load(lost + c);
      if constexpr (__is_same(Op, Max)) total = Op::join(total, v);
      else add_careful(total, rest, v);
      store(sum + c, total);
      store(lost + c, rest);
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
    return divide_by != 1 ? (load(sum + c) + load(lost + c)) / divide_by : load(sum + c) + load(lost + c);
  };
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) store_pair(out + c, Pair{result(c), result(c + kFloats)});
  for (; c < channels; c += kFloats) store_first(out + c, min_of<int64_t>(kFloats, channels - c), result(c));
}

template <class Op, class T>
void forward_channels(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int64_t P0 = spatial_size(p.out, 0), P1 = spatial_size(p.out, 1), P2 = spatial_size(p.out, 2);
  for (int64_t item = share.begin; item < share.end; ++item) {
    int64_t at[kMaxSpatial] = {item / P1 % P0, item % P1, 0};
    const int64_t image = item / P1 / P0;
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0] + share.first_channel;
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0] + share.first_channel + at[0] * p.out.stride[2] +
             at[1] * p.out.stride[3];
    const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]);
    for (; at[2] < P2; ++at[2], out += p.out.stride[4]) {
      const float divide_by = p.mode == PoolingMode::max ? 1 : divisor_of(p, at[0], at[1], at[2]);
      const Range r2 = taps_in_x(p, 2, at[2]);
      if (r0.size() * r1.size() * r2.size() > kFewTaps) {
        pool_many<Op>(p, at, x, share.channels, divide_by, room, out);
        continue;
      }
      const T* taps[kFewTaps];
      int64_t n = 0;
      for (int64_t a = r0.begin; a < r0.end; ++a)
        for (int64_t b = r1.begin; b < r1.end; ++b)
          for (int64_t c = r2.begin; c < r2.end; ++c) taps[n++] = x + tap_offset(p, at, a, b, c);
      pool_few<Op>(taps, n, share.channels, divide_by, out);
    }
  }
}
template <class T>
void channels_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  if (p.mode == PoolingMode::max) forward_channels<Max, T>(p, args, share, room);
  else forward_channels<Sum, T>(p, args, share, room);
}

// What a window passes on, a line per output position in the order of T's lanes: the number of the first maximum as an
// integer, or for averages the share of each element.
template <class T>
void find_maxima(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], const T* x, int64_t channels, float* line) {
  const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]), r2 = taps_in_x(p, 2, at[2]);
  auto find = [&](int64_t channel, auto load, Ints& first, Ints& second) __attribute__((always_inline)) {
    Pair best{};
    first = second = Ints{} - 1;
    for (int64_t a = r0.begin; a < r0.end; ++a)
      for (int64_t b = r1.begin; b < r1.end; ++b)
        for (int64_t c = r2.begin; c < r2.end; ++c) {
          const Pair v = load(x + tap_offset(p, at, a, b, c) + channel);
          const Ints number = Ints{} + int32_t((a * p.window[1] + b) * p.window[2] + c);
          auto replace = [&](Floats& best, Ints& found, Floats v) __attribute__((always_inline)) {
            const Ints larger = (~(v <= best) & (best == best)) | (found < 0);
            best = larger ? v : best;
            found = larger ? number : found;
          };
          replace(best.first, first, v.first);
          replace(best.second, second, v.second);
        }
  };
  int64_t c = 0;
  Ints first, second;
  for (; c + kPair <= channels; c += kPair) {
    find(c, [](const T* from) { return load_pair(from); }, first, second);
    store(line + c, (Floats)first);
    store(line + c + kFloats, (Floats)second);
  }
  for (; c < channels; c += kFloats) {
    const int64_t n = min_of<int64_t>(kFloats, channels - c);
    find(c, [=](const T* from) { return Pair{load_first(from, n), Floats{}}; }, first, second);
    store(line + c, (Floats)first);
  }
}

template <class T> MINIDNN_HD void share_out(const T* dy, int64_t channels, float divide_by, float* line) {
  int64_t c = 0;
  for (; c + kPair <= channels; c += kPair) {
    const Pair v = load_pair(dy + c);
    store(line + c, v.first / divide_by);
    store(line + c + kFloats, v.second / divide_by);
  }
  for (; c < channels; c += kFloats)
    store(line + c, load_first(dy + c, min_of<int64_t>(kFloats, channels - c)) / divide_by);
}

// A window that reaches an element of dx: what it passes on, and for maxima as which of its taps.
template <class T> struct Source {
  const float* line;
  const T* dy;
  int32_t tap;
};

template <bool is_max, class T>
MINIDNN_HD void gather(const Source<T>* sources, int64_t n, int64_t channels, T* out) {
  each_vector(channels, out, [&](int64_t c, auto load) __attribute__((always_inline)) {
    Pair sum{};
    for (int64_t i = 0; i < n; ++i) {
      const Source<T>& s = sources[i];
      // A line has room for whole pairs.
      const Floats first = minidnn::MINIDNN_ISA::load(s.line + c),
                   second = minidnn::MINIDNN_ISA::load(s.line + c + kFloats);
      if constexpr (is_max) {
        const Pair dy = load(s.dy + c);
        sum.first += (Floats)((Ints)dy.first & ((Ints)first == s.tap));
        sum.second += (Floats)((Ints)dy.second & ((Ints)second == s.tap));
      } else {
        sum.first += first;
        sum.second += second;
      }
    }
    return sum;
  });
}

template <bool is_max, class T>
void backward_channels(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int axis = int(share.axis);
  const int64_t channels = share.channels, line = padded(channels);
  const int64_t pieces = ceil_div(spatial_size(p.out, axis), share.step);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t image = item / pieces, first = item % pieces * share.step;
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0];
    const T* dy = static_cast<const T*>(args.dy) + image * p.dy.stride[0];
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0];
    int64_t size[kMaxSpatial], begin[kMaxSpatial]{}, end[kMaxSpatial], count[kMaxSpatial];  // of dx; count: of windows
    Range windows[kMaxSpatial];
    for (int i = 0; i < kMaxSpatial; ++i) {
      size[i] = end[i] = spatial_size(p.out, i);
      windows[i] = {0, spatial_size(p.dy, i)};
    }
    begin[axis] = first, end[axis] = min_of(first + share.step, size[axis]);
    // Windows that reach over the first element and the last: between them they follow each other.
    windows[axis] = {windows_over(p, axis, begin[axis]).begin, windows_over(p, axis, end[axis] - 1).end};
    for (int i = 0; i < kMaxSpatial; ++i) count[i] = windows[i].size();
    auto number_of = [&](const int64_t(&at)[kMaxSpatial]) {
      return ((at[0] - windows[0].begin) * count[1] + at[1] - windows[1].begin) * count[2] + at[2] - windows[2].begin;
    };
    auto dy_at = [&](const int64_t(&at)[kMaxSpatial]) {
      return dy + at[0] * p.dy.stride[2] + at[1] * p.dy.stride[3] + at[2] * p.dy.stride[4];
    };
    int64_t at[kMaxSpatial];
    for (at[0] = windows[0].begin; at[0] < windows[0].end; ++at[0])
      for (at[1] = windows[1].begin; at[1] < windows[1].end; ++at[1])
        for (at[2] = windows[2].begin; at[2] < windows[2].end; ++at[2]) {
          float* to = room + number_of(at) * line;
          if constexpr (is_max) find_maxima(p, at, x, channels, to);
          else share_out(dy_at(at), channels, divisor_of(p, at[0], at[1], at[2]), to);
        }
    Streamer<T> stream(out);
    for (int64_t h0 = begin[0]; h0 < end[0]; ++h0)
      for (int64_t h1 = begin[1]; h1 < end[1]; ++h1) {
        const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
        T* to = out + h0 * p.out.stride[2] + h1 * p.out.stride[3] + begin[2] * p.out.stride[4];
        for (int64_t h2 = begin[2]; h2 < end[2]; ++h2, to += p.out.stride[4]) {
          Source<T> sources[kMaxWindowsOver];
          int64_t n = 0;
          const Range over2 = windows_over(p, 2, h2);
          for (at[0] = over0.begin; at[0] < over0.end; ++at[0])
            for (at[1] = over1.begin; at[1] < over1.end; ++at[1])
              for (at[2] = over2.begin; at[2] < over2.end; ++at[2]) {
                const int64_t a = tap_on(p, 0, at[0], h0), b = tap_on(p, 1, at[1], h1), c = tap_on(p, 2, at[2], h2);
                if (a < 0 || b < 0 || c < 0) continue;
                sources[n++] = {room + number_of(at) * line, dy_at(at),
                                int32_t((a * p.window[1] + b) * p.window[2] + c)};
              }
          if (!share.stream) {
            gather<is_max>(sources, n, channels, to);
            continue;
          }
          stream.move_to(to);
          for (int64_t c = 0; c < channels; c += stream.kRoom) {
            const int64_t some = min_of(stream.kRoom, channels - c);
            gather<is_max>(sources, n, some, stream.next());
            stream.advance(some);
            for (int64_t i = 0; i < n; ++i) sources[i].line += some, sources[i].dy += some;
          }
        }
      }
    if (share.stream) stream.finish();
  }
}
template <class T>
void channels_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  if (p.mode == PoolingMode::max) backward_channels<true, T>(p, args, share, room);
  else backward_channels<false, T>(p, args, share, room);
}

// ---- The last dimension contiguous ----

// One line out of several, joined to what `to` holds if `more`.
template <class Op, class T>
void join_few(const T* const* lines, int n, bool more, int64_t length, float* to) {
  auto joined = [&](int64_t i, auto load) __attribute__((always_inline)) {
    Floats v = load(lines[0] + i);
    for (int k = 1; k < n; ++k) v = Op::join(v, load(lines[k] + i));
    return v;
  };
  int64_t i = 0;
  for (; i + kFloats <= length; i += kFloats) {
    Floats v = joined(i, [](const T* from) { return load_floats(from); });
    if (more) v = Op::join(load(to + i), v);
    store(to + i, v);
  }
  if (const int64_t left = length - i; left > 0) {
    Floats v = joined(i, [=](const T* from) { return load_first(from, left); });
    if (more) v = Op::join(load_first(to + i, left), v);
    store_first(to + i, left, v);
  }
}

constexpr int kLines = 8;  // that are joined at a time

// Collects lines and joins them; finish() leaves none behind.
template <class Op, class T> struct Joiner {
  float* to;
  int64_t length;
  const T* lines[kLines]{};
  int n = 0;
  bool more = false;
  MINIDNN_HD void add(const T* line) {
    lines[n++] = line;
    if (n == kLines) join();
  }
  MINIDNN_HD void join() {
    join_few<Op>(lines, n, more, length, to);
    n = 0, more = true;
  }
  MINIDNN_HD void finish() {
    if (n > 0) join();
    else if (!more)
      for (int64_t i = 0; i < length; ++i) to[i] = Op::none()[0];
  }
};

// Element i of a line to element i / stride of phase i % stride, and back. Up to a vector more is written to each.
template <class T> MINIDNN_HD void to_phases(const T* line, int64_t n, int64_t stride, int64_t pitch, float* phases) {
  int64_t i = 0;
  if (stride == 2)
    for (; i + kPair <= n; i += kPair) {
      const Pair p = load_as_pair<bfloat16>(line + i);
      store(phases + i / 2, p.first);
      store(phases + pitch + i / 2, p.second);
    }
  for (int64_t column = i / stride; i < n; ++column)
    for (int64_t phase = 0; phase < stride && i < n; ++phase) phases[phase * pitch + column] = line[i++];
}
MINIDNN_HD void from_phases(const float* phases, int64_t n, int64_t stride, int64_t pitch, float* line) {
  int64_t i = 0;
  if (stride == 2)
    for (; i + kPair <= n; i += kPair)
      store_from_pair<bfloat16>(line + i, Pair{load(phases + i / 2), load(phases + pitch + i / 2)});
  for (int64_t column = i / stride; i < n; ++column)
    for (int64_t phase = 0; phase < stride && i < n; ++phase) line[i++] = phases[phase * pitch + column];
}

template <class T> MINIDNN_HD void to_floats(const T* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store(to + i, load_floats(from + i));
  if (i < n) store(to + i, load_first(from + i, n - i));
}
template <class T> MINIDNN_HD void from_floats(const float* from, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store_floats(to + i, load(from + i));
  if (i < n) store_first(to + i, n - i, load(from + i));
}

// How many elements the windows at each position of the last dimension count; with the others', what averages divide by.
MINIDNN_HD int64_t counted_by(const PoolingProblem& p, int i, int64_t at) {
  return p.mode == PoolingMode::avg ? detail::counted<PoolingMode::avg>(p, i, at)
                                    : detail::counted<PoolingMode::avg_exclude_padding>(p, i, at);
}
void count_line(const PoolingProblem& p, int64_t positions, float* line) {
  for (int64_t q = 0; q < padded(positions); ++q) line[q] = q < positions ? float(counted_by(p, 2, q)) : 1;
}
MINIDNN_HD void divide(float* line, int64_t n, const float* counts, float others) {
  for (int64_t i = 0; i < n; i += kFloats) {
    const Floats divide_by = load(counts + i) * others, one = floats(1);
    store(line + i, load(line + i) / (divide_by < one ? one : divide_by));
  }
}

// A plane in one run, for a window that is all of it.
template <class Op, class T> float pool_run(const T* x, int64_t n) {
  Floats total = Op::none(), lost{};
  auto join = [&](Floats v) __attribute__((always_inline)) {
    if constexpr (__is_same(Op, Max)) total = Op::join(total, v);
    else add_careful(total, lost, v);
  };
  int64_t i = 0;
  for (; i + 4 * kPair <= n; i += 4 * kPair) {
    Pair v[4];
    for (int k = 0; k < 4; ++k) v[k] = load_pair(x + i + k * kPair);
    v[0] = both(both(v[0], v[1], Op::join), both(v[2], v[3], Op::join), Op::join);
    join(Op::join(v[0].first, v[0].second));
  }
  for (; i + kFloats <= n; i += kFloats) join(load_floats(x + i));
  float rest = Op::none()[0];
  for (; i < n; ++i) rest = Op::join(floats(rest), floats(load_first(x + i, 1)[0]))[0];
  if constexpr (__is_same(Op, Max)) {
    for (int k = 0; k < kFloats; ++k) rest = Op::join(floats(rest), floats(total[k]))[0];
    return rest;
  } else {
    return sum_of_lanes(total) + (sum_of_lanes(lost) + rest);
  }
}

template <class Op, class T>
void forward_rows(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int64_t P0 = spatial_size(p.out, 0), P1 = spatial_size(p.out, 1), Q = spatial_size(p.out, 2);
  const int64_t C = p.x.shape[1], W = spatial_size(p.x, 2), stride = p.spatial.stride[2], before = p.spatial.before[2];
  const int64_t span = pooling::line_span(p), pitch = pooling::phase_pitch(p, span);
  float *line = room, *phases = line + padded(span), *counts = phases + stride * pitch, *result = counts + padded(Q);
  if (stride == 1) phases = line;
  const bool average = p.mode != PoolingMode::max;
  if (average) count_line(p, Q, counts);
  const bool whole = pooling::sees_all_as_a_run(p);
  // Of the line, what lies in x; the rest stays as it is.
  const int64_t inside = max_of<int64_t>(min_of(W, span - before), 0);
  for (int64_t i = 0; i < padded(span); ++i) line[i] = Op::none()[0];
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t at[kMaxSpatial] = {item / P1 % P0, item % P1, 0};
    const int64_t plane = item / P1 / P0;
    const T* x = static_cast<const T*>(args.x) + plane / C * p.x.stride[0] + plane % C * p.x.stride[1];
    T* out = static_cast<T*>(args.out) + plane / C * p.out.stride[0] + plane % C * p.out.stride[1] +
             at[0] * p.out.stride[2] + at[1] * p.out.stride[3];
    const float others = average ? float(counted_by(p, 0, at[0]) * counted_by(p, 1, at[1])) : 1;
    if (whole) {
      const float v = pool_run<Op>(x, spatial_size(p.x, 0) * spatial_size(p.x, 1) * W);
      const Floats y = floats(v / (average ? max_of(others * counts[0], 1.0f) : 1));
      store_first(out, 1, y);
      continue;
    }
    const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]);
    Joiner<Op, T> down{line + min_of(before, span), inside};
    for (int64_t a = r0.begin; a < r0.end; ++a)
      for (int64_t b = r1.begin; b < r1.end; ++b)
        down.add(x + p.spatial.input_index(0, at[0], a) * p.x.stride[2] +
                 p.spatial.input_index(1, at[1], b) * p.x.stride[3]);
    down.finish();
    if (stride > 1) to_phases(line, span, stride, pitch, phases);
    Joiner<Op, float> across{result, (Q + kFloats - 1) / kFloats * kFloats};
    for (int64_t r = 0; r < p.window[2]; ++r) {
      const int64_t from = r * p.spatial.dilation[2];
      across.add(stride == 1 ? phases + from : phases + from % stride * pitch + from / stride);
    }
    across.finish();
    if (average) divide(result, Q, counts, others);
    from_floats(result, Q, out);
  }
}
template <class T>
void rows_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  if (p.mode == PoolingMode::max) forward_rows<Max, T>(p, args, share, room);
  else forward_rows<Sum, T>(p, args, share, room);
}

// Writes planes of dx line by line.
template <class T> struct PlaneWriter {
  const PoolingProblem& p;
  T* out;
  bool past_caches;
  Streamer<T> stream;
  MINIDNN_HD void line(int64_t h0, int64_t h1, const float* from) {
    const int64_t W = spatial_size(p.out, 2);
    T* to = out + h0 * p.out.stride[2] + h1 * p.out.stride[3];
    if (!past_caches) return from_floats(from, W, to);
    stream.move_to(to);
    for (int64_t i = 0; i < W; i += stream.kRoom) {
      const int64_t n = min_of(stream.kRoom, W - i);
      from_floats(from + i, n, stream.next());
      stream.advance(n);
    }
  }
};

// dx of one plane: each window adds its dy at its first maximum, windows in order.
template <class T>
void scatter_plane(const PoolingProblem& p, const T* x, const T* dy, PlaneWriter<T>& out, float* room) {
  const int64_t W = spatial_size(p.x, 2), H1 = spatial_size(p.x, 1), rows = spatial_size(p.x, 0) * H1;
  const int64_t Q = spatial_size(p.dy, 2), stride = p.spatial.stride[2], before = p.spatial.before[2];
  const int64_t window = p.window[2], step = p.spatial.dilation[2], pitch = pooling::phase_pitch(p, W);
  float *sums = room + rows * stride * pitch, *line = sums + padded(rows * W);
  int32_t* found = reinterpret_cast<int32_t*>(line + padded(max_of(W, Q)));  // the index in the plane, by window
  int32_t* taps = found + padded(Q);                                         // where their elements lie in the phases
  for (int64_t i = 0; i < rows * W; ++i) sums[i] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = x + row / H1 * p.x.stride[2] + row % H1 * p.x.stride[3];
    float* phases = room + row * stride * pitch;
    if (stride == 1) {
      to_floats(from, W, phases);
    } else {
      to_floats(from, W, line);
      to_phases(line, W, stride, pitch, phases);
    }
  }
  // Windows that lie inside x, and what their taps are apart from them.
  const int64_t first = ceil_div(before, stride), reach = W - 1 - (window - 1) * step + before;
  const int64_t last = reach < 0 ? 0 : min_of(reach / stride + 1, Q);
  for (int64_t r = 0; r < window; ++r) {
    const int64_t at = r * step - before, phase = (at % stride + stride) % stride;
    taps[r] = int32_t(phase * pitch + (at - phase) / stride);
  }
  constexpr int32_t kNowhere = INT32_MIN;  // less q stride, an index may be negative
  Ints lane;
  for (int i = 0; i < kFloats; ++i) lane[i] = i;
  for (int64_t p0 = 0; p0 < spatial_size(p.dy, 0); ++p0)
    for (int64_t p1 = 0; p1 < spatial_size(p.dy, 1); ++p1) {
      const Range r0 = taps_in_x(p, 0, p0), r1 = taps_in_x(p, 1, p1);
      if (r0.size() * r1.size() == 0) continue;
      auto each_row = [&](auto visit) __attribute__((always_inline)) {
        for (int64_t a = r0.begin; a < r0.end; ++a)
          for (int64_t b = r1.begin; b < r1.end; ++b)
            visit(p.spatial.input_index(0, p0, a) * H1 + p.spatial.input_index(1, p1, b));
      };
      for (int64_t q = first; q < last; q += kFloats) {
        Floats best{};
        Ints at = Ints{} + kNowhere;
        each_row([&](int64_t row) __attribute__((always_inline)) {
          const float* phases = room + row * stride * pitch + q;
          int32_t index = int32_t(row * W - before);
          for (int64_t r = 0; r < window; ++r, index += int32_t(step)) {
            const Floats v = load(phases + taps[r]);
            const Ints larger = (~(v <= best) & (best == best)) | (at == kNowhere);
            best = larger ? v : best;
            at = larger ? Ints{} + index : at;
          }
        });
        store(found + q, at + (lane + int32_t(q)) * int32_t(stride));
      }
      auto find = [&](int64_t q) {
        const Range r2 = taps_in_x(p, 2, q);
        float best = 0;
        found[q] = -1;
        each_row([&](int64_t row) __attribute__((always_inline)) {
          for (int64_t r = r2.begin; r < r2.end; ++r) {
            const int64_t i = p.spatial.input_index(2, q, r);
            const float v = room[(row * stride + i % stride) * pitch + i / stride];
            if (found[q] >= 0 && (v <= best || best != best)) continue;
            best = v;
            found[q] = int32_t(row * W + i);
          }
        });
      };
      for (int64_t q = 0; q < min_of(first, Q); ++q) find(q);
      for (int64_t q = max_of(last, first); q < Q; ++q) find(q);
      to_floats(dy + p0 * p.dy.stride[2] + p1 * p.dy.stride[3], Q, line);
      for (int64_t q = 0; q < Q; ++q)
        if (found[q] >= 0) sums[found[q]] += line[q];
    }
  for (int64_t row = 0; row < rows; ++row) out.line(row / H1, row % H1, sums + row * W);
}

// dx of one plane for averages: dy by what its window divides by, summed down, then across.
template <class T>
void spread_plane(const PoolingProblem& p, const T* dy, const float* counts, PlaneWriter<T>& out, float* room) {
  const int64_t W = spatial_size(p.out, 2), P0 = spatial_size(p.dy, 0), P1 = spatial_size(p.dy, 1);
  const int64_t Q = spatial_size(p.dy, 2), stride = p.spatial.stride[2], columns = ceil_div(W, stride);
  const int64_t pitch = pooling::phase_pitch(p, W), shares_pitch = pooling::shares_pitch(p);
  const int64_t zeros = pooling::zeros_before(p);
  float *down = room + P0 * P1 * shares_pitch, *phases = down + shares_pitch, *line = phases + stride * pitch;
  for (int64_t p0 = 0; p0 < P0; ++p0)
    for (int64_t p1 = 0; p1 < P1; ++p1) {
      float* shares = room + (p0 * P1 + p1) * shares_pitch + zeros;
      to_floats(dy + p0 * p.dy.stride[2] + p1 * p.dy.stride[3], Q, shares);
      divide(shares, Q, counts, float(counted_by(p, 0, p0) * counted_by(p, 1, p1)));
    }
  for (int64_t h0 = 0; h0 < spatial_size(p.out, 0); ++h0)
    for (int64_t h1 = 0; h1 < spatial_size(p.out, 1); ++h1) {
      const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
      Joiner<Sum, float> rows{down, shares_pitch};
      for (int64_t p0 = over0.begin; p0 < over0.end; ++p0)
        for (int64_t p1 = over1.begin; p1 < over1.end; ++p1)
          if (tap_on(p, 0, p0, h0) >= 0 && tap_on(p, 1, p1, h1) >= 0) rows.add(room + (p0 * P1 + p1) * shares_pitch);
      rows.finish();
      for (int64_t phase = 0; phase < stride; ++phase) {
        Joiner<Sum, float> across{phases + phase * pitch, (columns + kFloats - 1) / kFloats * kFloats};
        for (int64_t r = 0; r < p.window[2]; ++r)
          if (const int64_t from = phase + p.spatial.before[2] - r * p.spatial.dilation[2]; from % stride == 0)
            across.add(down + zeros + from / stride);
        across.finish();
      }
      if (stride > 1) from_phases(phases, W, stride, pitch, line);
      out.line(h0, h1, stride > 1 ? line : phases);
    }
}

template <class T>
void rows_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int64_t C = p.x.shape[1], Q = spatial_size(p.dy, 2);
  float* counts = room + pooling::rows_backward_room(p) - padded(Q);
  if (p.mode != PoolingMode::max) {
    for (int64_t i = 0; i < pooling::rows_backward_room(p) - padded(Q); ++i) room[i] = 0;
    count_line(p, Q, counts);
  }
  for (int64_t plane = share.begin; plane < share.end; ++plane) {
    auto of = [&](auto* base, const TensorDesc& d) { return base + plane / C * d.stride[0] + plane % C * d.stride[1]; };
    T* out = of(static_cast<T*>(args.out), p.out);
    const T* dy = of(static_cast<const T*>(args.dy), p.dy);
    PlaneWriter<T> writer{p, out, share.stream, Streamer<T>(out)};
    if (p.mode == PoolingMode::max) scatter_plane(p, of(static_cast<const T*>(args.x), p.x), dy, writer, room);
    else spread_plane(p, dy, counts, writer, room);
    if (share.stream) writer.stream.finish();
  }
}

template <class T> constexpr PoolingKernels::Typed typed() {
  return {channels_forward<T>, channels_backward<T>, rows_forward<T>, rows_backward<T>};
}

}  // namespace

extern const PoolingKernels pooling_kernels;
const PoolingKernels pooling_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>()};

}  // namespace minidnn::MINIDNN_ISA
