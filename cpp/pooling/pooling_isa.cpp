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
  static MINIDNN_HD Floats join(Floats a, Floats b) {
#if defined(__AVX__) && !defined(__AVX512F__)
    const Floats larger = __builtin_ia32_maxps256(b, a);  // a where either is NaN
    return b == b ? larger : b;
#else
    return (a < b) | (b != b) ? b : a;
#endif
  }
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

constexpr int kFewTaps = 64;  // whose lines are read at once; more are joined by groups, in memory
constexpr int kGroup = 8;     // taps that are joined before they join the others

// Vectors of channels, whole or not, by what make(c, load) returns.
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
    Pair total{Op::none(), Op::none()};
    for (int64_t i = 0; i < n;) {
      Pair group = load(taps[i] + c);
      const int64_t end = min_of(i + kGroup, n);
      for (++i; i < end; ++i) group = both(group, load(taps[i] + c), Op::join);
      total = both(total, group, Op::join);
    }
    if (divide_by != 1) total.first /= divide_by, total.second /= divide_by;
    return total;
  });
}

// The window at one position, its taps eight at a time: sums of equal elements stay exact inside a group, and between
// groups no rounding error is lost. `room` holds two lines.
template <class Op, class T>
void pool_many(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], const T* x, int64_t channels, float divide_by,
               float* room, T* out) {
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

// Takes what is larger, or the first NaN. In order of taps, it leaves the first maximum.
MINIDNN_HD void take_larger(Floats& best, Ints& at, Floats v, Ints v_at) {
  const Ints larger = ~(v <= best) & (best == best);
  best = larger ? v : best;
  at = larger ? v_at : at;
}

// What a window passes on, a line per output position in the order of T's lanes: the number of the first maximum as an
// integer, -1 if there is none, or for averages the share of each element.
template <class T>
void find_maxima(const T* const* taps, const int32_t* numbers, int64_t n, int64_t channels, float* line) {
  auto find = [&](int64_t c, auto load, Ints& first, Ints& second) __attribute__((always_inline)) {
    first = second = Ints{} - 1;
    if (n == 0) return;
    Pair best = load(taps[0] + c);
    first = second = Ints{} + numbers[0];
    for (int64_t i = 1; i < n; ++i) {
      const Pair v = load(taps[i] + c);
      const Ints number = Ints{} + numbers[i];
      take_larger(best.first, first, v.first, number);
      take_larger(best.second, second, v.second, number);
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
    const int64_t some = min_of<int64_t>(kFloats, channels - c);
    find(c, [=](const T* from) { return Pair{load_first(from, some), Floats{}}; }, first, second);
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
    // In room: the windows' lines, the taps of one, and the windows over each index of the last axis, one after the other.
    float* after = room + count[0] * count[1] * count[2] * line;
    const T** taps = reinterpret_cast<const T**>(after);
    int32_t* numbers = reinterpret_cast<int32_t*>(taps + p.window[0] * p.window[1] * p.window[2]);
    struct Over {
      int32_t position, tap;
    };
    Over* over = reinterpret_cast<Over*>(numbers + p.window[0] * p.window[1] * p.window[2]);
    const int64_t most_over = pooling::most_windows_over(p, 2);
    for (int64_t h2 = begin[2]; h2 < end[2]; ++h2) {
      Over* to = over + (h2 - begin[2]) * (most_over + 1);
      const Range positions = windows_over(p, 2, h2);
      for (int64_t q = positions.begin; q < positions.end; ++q)
        if (const int64_t tap = tap_on(p, 2, q, h2); tap >= 0) *to++ = {int32_t(q), int32_t(tap)};
      to->position = -1;
    }

    int64_t at[kMaxSpatial];
    for (at[0] = windows[0].begin; at[0] < windows[0].end; ++at[0])
      for (at[1] = windows[1].begin; at[1] < windows[1].end; ++at[1]) {
        const Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]);
        for (at[2] = windows[2].begin; at[2] < windows[2].end; ++at[2]) {
          float* to = room + number_of(at) * line;
          if constexpr (is_max) {
            const Range r2 = taps_in_x(p, 2, at[2]);
            int64_t n = 0;
            for (int64_t a = r0.begin; a < r0.end; ++a)
              for (int64_t b = r1.begin; b < r1.end; ++b)
                for (int64_t c = r2.begin; c < r2.end; ++c) {
                  taps[n] = x + tap_offset(p, at, a, b, c);
                  numbers[n++] = int32_t((a * p.window[1] + b) * p.window[2] + c);
                }
            find_maxima(taps, numbers, n, channels, to);
          } else {
            share_out(dy_at(at), channels, divisor_of(p, at[0], at[1], at[2]), to);
          }
        }
      }
    Streamer<T> stream(out);
    for (int64_t h0 = begin[0]; h0 < end[0]; ++h0)
      for (int64_t h1 = begin[1]; h1 < end[1]; ++h1) {
        Source<T> lines[kMaxWindowsOver];  // of windows over h0 and h1, at position 0 of the last axis
        int64_t lines_over = 0;
        const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
        for (at[0] = over0.begin, at[2] = 0; at[0] < over0.end; ++at[0])
          for (at[1] = over1.begin; at[1] < over1.end; ++at[1]) {
            const int64_t a = tap_on(p, 0, at[0], h0), b = tap_on(p, 1, at[1], h1);
            if (a >= 0 && b >= 0)
              lines[lines_over++] = {room + number_of(at) * line, dy_at(at),
                                     int32_t((a * p.window[1] + b) * p.window[2])};
          }
        T* to = out + h0 * p.out.stride[2] + h1 * p.out.stride[3] + begin[2] * p.out.stride[4];
        const Over* over_h2 = over;
        for (int64_t h2 = begin[2]; h2 < end[2]; ++h2, to += p.out.stride[4], over_h2 += most_over + 1) {
          Source<T> sources[kMaxWindowsOver];
          int64_t n = 0;
          for (int64_t i = 0; i < lines_over; ++i)
            for (const Over* o = over_h2; o->position >= 0; ++o)
              sources[n++] = {lines[i].line + o->position * line, lines[i].dy + o->position * p.dy.stride[4],
                              lines[i].tap + o->tap};
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
  auto whole = [](const T* from) { return load_floats(from); };
  int64_t i = 0;
  for (; i + kFloats <= length; i += kFloats) {
    const Floats v = joined(i, whole);
    store(to + i, more ? Op::join(load(to + i), v) : v);
  }
  const int64_t left = length - i;
  if (left > 0 && i > 0 && !more) {
    store(to + length - kFloats, joined(length - kFloats, whole));
  } else if (left > 0) {
    const Floats v = joined(i, [=](const T* from) { return load_first(from, left); });
    store_first(to + i, left, more ? Op::join(load_first(to + i, left), v) : v);
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

// Nothing is written past the end.
template <class T> MINIDNN_HD void to_floats(const T* from, int64_t n, float* to) {
  join_few<Sum>(&from, 1, false, n, to);
}
template <class T> MINIDNN_HD void from_floats(const float* from, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store_floats(to + i, load(from + i));
  if (i == n) return;
  if (i > 0) store_floats(to + n - kFloats, load(from + n - kFloats));
  else store_first(to, n, load(from));
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

// Calls f(first window position, tap) for the windows over the elements of one phase of the last dimension, windows in
// order: element j * stride + phase lies in the window at position first + j.
template <class F> MINIDNN_HD void each_window_over(const PoolingProblem& p, int64_t phase, F f) {
  const int64_t stride = p.spatial.stride[2];
  for (int64_t r = p.window[2]; r-- > 0;)
    if (const int64_t from = phase + p.spatial.before[2] - r * p.spatial.dilation[2]; from % stride == 0)
      f(from / stride, r);
}

// The maxima of one plane: for each window `found` gets what says where its first one lies, row_value(row, a, b) plus
// tap_value times the tap along the last dimension; kNowhere if it sees nothing.
constexpr int32_t kNowhere = INT32_MIN;
template <class T, class RowValue>
MINIDNN_HD void find_maxima_of_plane(const PoolingProblem& p, const T* x, int32_t tap_value, RowValue row_value,
                                     float* room, int32_t* found, int64_t found_pitch) {
  const int64_t W = spatial_size(p.x, 2), H1 = spatial_size(p.x, 1), rows = spatial_size(p.x, 0) * H1;
  const int64_t Q = spatial_size(p.dy, 2), stride = p.spatial.stride[2], before = p.spatial.before[2];
  const int64_t span = pooling::line_span(p), pitch = pooling::phase_pitch(p, span), line_pitch = padded(Q);
  float *line = room, *phases = line + padded(span), *values = phases + stride * pitch;
  int32_t* taps = reinterpret_cast<int32_t*>(values + rows * line_pitch);
  const int64_t inside = max_of<int64_t>(min_of(W, span - before), 0);
  auto row_of_x = [&](int64_t row) { return x + row / H1 * p.x.stride[2] + row % H1 * p.x.stride[3]; };
  if (stride == 1) phases = line;
  for (int64_t i = 0; i < padded(span); ++i) line[i] = -INFINITY;

  // Across: each row's maxima, padding being -Inf.
  for (int64_t row = 0; row < rows; ++row) {
    to_floats(row_of_x(row), inside, line + min_of(before, span));
    if (stride > 1) to_phases(line, span, stride, pitch, phases);
    for (int64_t q = 0; q < Q; q += kFloats) {
      Floats best = load(phases + q);
      Ints at{};
      for (int64_t r = 1; r < p.window[2]; ++r) {
        const int64_t from = r * p.spatial.dilation[2];
        const float* tap = stride == 1 ? phases + from : phases + from % stride * pitch + from / stride;
        take_larger(best, at, load(tap + q), Ints{} + int32_t(r) * tap_value);
      }
      store(values + row * line_pitch + q, best);
      store(taps + row * line_pitch + q, at);
    }
  }
  // Down.
  for (int64_t p0 = 0; p0 < spatial_size(p.dy, 0); ++p0)
    for (int64_t p1 = 0; p1 < spatial_size(p.dy, 1); ++p1, found += found_pitch) {
      const Range r0 = taps_in_x(p, 0, p0), r1 = taps_in_x(p, 1, p1);
      auto each_row = [&](auto visit) __attribute__((always_inline)) {
        for (int64_t a = r0.begin; a < r0.end; ++a)
          for (int64_t b = r1.begin; b < r1.end; ++b) {
            const int64_t row = p.spatial.input_index(0, p0, a) * H1 + p.spatial.input_index(1, p1, b);
            visit(row, row_value(row, a, b));
          }
      };
      bool doubtful = false;
      for (int64_t q = 0; q < Q; q += kFloats) {
        Floats best = floats(-INFINITY);
        Ints at = Ints{} + kNowhere;
        each_row([&](int64_t row, int32_t value) __attribute__((always_inline)) {
          take_larger(best, at, load(values + row * line_pitch + q), load(taps + row * line_pitch + q) + value);
        });
        store(found + q, at);
        for (int i = 0; i < kFloats; ++i) doubtful |= best[i] == -INFINITY;
      }
      if (!doubtful) continue;
      // -Inf: an element of x, or padding, or nothing at all.
      for (int64_t q = 0; q < Q; ++q) {
        const Range r2 = taps_in_x(p, 2, q);
        float best = 0;
        int32_t at = kNowhere;
        each_row([&](int64_t row, int32_t value) __attribute__((always_inline)) {
          for (int64_t r = r2.begin; r < r2.end; ++r) {
            const float v = load_first(row_of_x(row) + p.spatial.input_index(2, q, r), 1)[0];
            if (at != kNowhere && (v <= best || best != best)) continue;
            best = v;
            at = value + int32_t(r) * tap_value;
          }
        });
        found[q] = at;
      }
    }
}

// Windows of few taps: an element of dx asks those over it.
template <class T>
void gather_maxima(const PoolingProblem& p, const T* x, const T* dy, PlaneWriter<T>& out, float* room) {
  const int64_t W = spatial_size(p.out, 2), P0 = spatial_size(p.dy, 0), P1 = spatial_size(p.dy, 1);
  const int64_t Q = spatial_size(p.dy, 2), stride = p.spatial.stride[2], columns = ceil_div(W, stride);
  const int64_t pitch = pooling::phase_pitch(p, W), line_pitch = pooling::shares_pitch(p);
  const int64_t zeros = pooling::zeros_before(p);
  float* gradients = room;
  int32_t* found = reinterpret_cast<int32_t*>(gradients + P0 * P1 * line_pitch);
  float *phases = gradients + 2 * P0 * P1 * line_pitch, *line = phases + stride * pitch;
  for (int64_t i = 0; i < P0 * P1 * line_pitch; ++i) found[i] = kNowhere;
  find_maxima_of_plane(
      p, x, 1, [&](int64_t, int64_t a, int64_t b) { return int32_t((a * p.window[1] + b) * p.window[2]); },
      line + padded(W), found + zeros, line_pitch);
  for (int64_t p0 = 0; p0 < P0; ++p0)
    for (int64_t p1 = 0; p1 < P1; ++p1) {
      int32_t* behind = found + (p0 * P1 + p1) * line_pitch + zeros + Q;
      for (int i = 0; i < kFloats; ++i) behind[i] = kNowhere;
      to_floats(dy + p0 * p.dy.stride[2] + p1 * p.dy.stride[3], Q, gradients + (p0 * P1 + p1) * line_pitch + zeros);
    }
  for (int64_t h0 = 0; h0 < spatial_size(p.out, 0); ++h0)
    for (int64_t h1 = 0; h1 < spatial_size(p.out, 1); ++h1) {
      struct {
        int64_t line;
        int32_t tap;
      } over[kMaxWindowsOver];
      int lines = 0;
      const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
      for (int64_t p0 = over0.begin; p0 < over0.end; ++p0)
        for (int64_t p1 = over1.begin; p1 < over1.end; ++p1) {
          const int64_t a = tap_on(p, 0, p0, h0), b = tap_on(p, 1, p1, h1);
          if (a >= 0 && b >= 0)
            over[lines++] = {(p0 * P1 + p1) * line_pitch + zeros, int32_t((a * p.window[1] + b) * p.window[2])};
        }
      for (int64_t phase = 0; phase < stride; ++phase) {
        struct {
          int64_t first;
          int32_t tap;
        } windows[kMaxWindowsOver];
        int n = 0;
        each_window_over(p, phase, [&](int64_t first, int64_t tap) { windows[n++] = {first, int32_t(tap)}; });
        for (int64_t j = 0; j < columns; j += kFloats) {
          Floats sum{};
          for (int k = 0; k < lines; ++k)
            for (int i = 0; i < n; ++i) {
              const int64_t at = over[k].line + windows[i].first + j;
              const Ints chosen = load(found + at) == over[k].tap + windows[i].tap;
              sum += (Floats)(chosen & (Ints)load(gradients + at));
            }
          store(phases + phase * pitch + j, sum);
        }
      }
      if (stride > 1) from_phases(phases, W, stride, pitch, line);
      out.line(h0, h1, stride > 1 ? line : phases);
    }
}

// Windows of many taps: each adds its dy to the element that it found, windows in order.
template <class T>
void scatter_maxima(const PoolingProblem& p, const T* x, const T* dy, PlaneWriter<T>& out, float* room) {
  const int64_t W = spatial_size(p.out, 2), H1 = spatial_size(p.out, 1), rows = spatial_size(p.out, 0) * H1;
  const int64_t P0 = spatial_size(p.dy, 0), P1 = spatial_size(p.dy, 1), Q = spatial_size(p.dy, 2);
  const int64_t before = p.spatial.before[2], line_pitch = padded(Q);
  float *sums = room, *gradients = sums + padded(rows * W);
  int32_t* found = reinterpret_cast<int32_t*>(gradients + line_pitch);
  find_maxima_of_plane(
      p, x, int32_t(p.spatial.dilation[2]), [&](int64_t row, int64_t, int64_t) { return int32_t(row * W - before); },
      gradients + (1 + P0 * P1) * line_pitch, found, line_pitch);
  for (int64_t i = 0; i < rows * W; ++i) sums[i] = 0;
  for (int64_t p0 = 0; p0 < P0; ++p0)
    for (int64_t p1 = 0; p1 < P1; ++p1, found += line_pitch) {
      to_floats(dy + p0 * p.dy.stride[2] + p1 * p.dy.stride[3], Q, gradients);
      for (int64_t q = 0; q < Q; ++q)
        if (found[q] != kNowhere) sums[found[q] + q * p.spatial.stride[2]] += gradients[q];
    }
  for (int64_t row = 0; row < rows; ++row) out.line(row / H1, row % H1, sums + row * W);
}

// Averages: dy by what its window divides by, summed down, then across.
template <class T>
void spread_averages(const PoolingProblem& p, const T* dy, const float* counts, PlaneWriter<T>& out, float* room) {
  const int64_t W = spatial_size(p.out, 2), P0 = spatial_size(p.dy, 0), P1 = spatial_size(p.dy, 1);
  const int64_t Q = spatial_size(p.dy, 2), stride = p.spatial.stride[2], columns = ceil_div(W, stride);
  const int64_t pitch = pooling::phase_pitch(p, W), line_pitch = pooling::shares_pitch(p);
  const int64_t zeros = pooling::zeros_before(p);
  float *down = room + P0 * P1 * line_pitch, *phases = down + line_pitch, *line = phases + stride * pitch;
  for (int64_t p0 = 0; p0 < P0; ++p0)
    for (int64_t p1 = 0; p1 < P1; ++p1) {
      float* shares = room + (p0 * P1 + p1) * line_pitch + zeros;
      to_floats(dy + p0 * p.dy.stride[2] + p1 * p.dy.stride[3], Q, shares);
      divide(shares, Q, counts, float(counted_by(p, 0, p0) * counted_by(p, 1, p1)));
    }
  const bool one = pooling::sees_all_as_a_run(p);  // then all of the plane is one number
  for (int64_t i = 0; one && i < W; ++i) line[i] = room[zeros];
  for (int64_t h0 = 0; h0 < spatial_size(p.out, 0); ++h0)
    for (int64_t h1 = 0; h1 < spatial_size(p.out, 1); ++h1) {
      if (one) {
        out.line(h0, h1, line);
        continue;
      }
      const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
      Joiner<Sum, float> rows{down, line_pitch};
      for (int64_t p0 = over0.begin; p0 < over0.end; ++p0)
        for (int64_t p1 = over1.begin; p1 < over1.end; ++p1)
          if (tap_on(p, 0, p0, h0) >= 0 && tap_on(p, 1, p1, h1) >= 0) rows.add(room + (p0 * P1 + p1) * line_pitch);
      rows.finish();
      for (int64_t phase = 0; phase < stride; ++phase) {
        Joiner<Sum, float> across{phases + phase * pitch, (columns + kFloats - 1) / kFloats * kFloats};
        each_window_over(p, phase, [&](int64_t first, int64_t) { across.add(down + zeros + first); });
        across.finish();
      }
      if (stride > 1) from_phases(phases, W, stride, pitch, line);
      out.line(h0, h1, stride > 1 ? line : phases);
    }
}

template <class T>
void rows_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  const int64_t C = p.x.shape[1], Q = spatial_size(p.dy, 2), floats = pooling::rows_backward_room(p);
  float* counts = room + floats - padded(Q);
  for (int64_t i = 0; i < floats - padded(Q); ++i) room[i] = 0;  // what lies around lines
  if (p.mode != PoolingMode::max) count_line(p, Q, counts);
  for (int64_t plane = share.begin; plane < share.end; ++plane) {
    auto of = [&](auto* base, const TensorDesc& d) { return base + plane / C * d.stride[0] + plane % C * d.stride[1]; };
    T* out = of(static_cast<T*>(args.out), p.out);
    const T* dy = of(static_cast<const T*>(args.dy), p.dy);
    const T* x = of(static_cast<const T*>(args.x), p.x);
    PlaneWriter<T> writer{p, out, share.stream, Streamer<T>(out)};
    if (p.mode != PoolingMode::max) spread_averages(p, dy, counts, writer, room);
    else if (pooling::gathers(p)) gather_maxima(p, x, dy, writer, room);
    else scatter_maxima(p, x, dy, writer, room);
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
