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

// One line out of several, joined to what `to` holds if `more`. Nothing is written past the end.
template <class Op, class T>
void join_lines(const T* const* lines, int n, bool more, int64_t length, float* to) {
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

// What is done to lines in memory, for code that is compiled once for all types.
struct Memory {
  int64_t size;  // of an element
  void (*read)(const void* from, int64_t n, float* to);
  void (*write)(const float* from, int64_t n, void* to);
  void (*max)(const void* const* lines, int n, bool more, int64_t length, float* to);
  void (*sum)(const void* const* lines, int n, bool more, int64_t length, float* to);
  float (*max_of_run)(const void* from, int64_t n);
  float (*sum_of_run)(const void* from, int64_t n);
};
template <class Op, class T> void join_memory(const void* const* lines, int n, bool more, int64_t length, float* to) {
  join_lines<Op>(reinterpret_cast<const T* const*>(lines), n, more, length, to);
}
template <class T> void read_line(const void* from, int64_t n, float* to) {
  const T* line = static_cast<const T*>(from);
  join_lines<Sum>(&line, 1, false, n, to);
}
template <class T> void write_line(const float* from, int64_t n, void* to) {
  T* line = static_cast<T*>(to);
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store_floats(line + i, load(from + i));
  if (i == n) return;
  if (i > 0) store_floats(line + n - kFloats, load(from + n - kFloats));
  else store_first(line, n, load(from));
}
template <class Op, class T> float pool_memory(const void* from, int64_t n) {
  return pool_run<Op>(static_cast<const T*>(from), n);
}
template <class T>
constexpr Memory memory_of = {sizeof(T),           read_line<T>,        write_line<T>,      join_memory<Max, T>,
                              join_memory<Sum, T>, pool_memory<Max, T>, pool_memory<Sum, T>};

// Collects lines and joins them; finish() leaves none behind.
struct Joiner {
  void (*join)(const void* const* lines, int n, bool more, int64_t length, float* to);
  float none;
  int64_t length;
  float* to;
  static constexpr int kLines = 8;
  const void* lines[kLines]{};
  int n = 0;
  bool more = false;
  void add(const void* line) {
    lines[n++] = line;
    if (n == kLines) join_now();
  }
  void finish() {
    if (n > 0) join_now();
    else if (!more)
      for (int64_t i = 0; i < length; ++i) to[i] = none;
  }

 private:
  void join_now() {
    join(lines, n, more, length, to);
    n = 0, more = true;
  }
};

// A problem along rows, and what is the same for all of them.
struct Rows {
  const PoolingProblem& p;
  const Memory& memory;
  const int64_t H1, W, rows;         // of x; rows: of a plane
  const int64_t P0, P1, Q, windows;  // of y; windows: lines of a plane
  const int64_t stride, before, window, span;
  const bool is_max;
  int32_t* taps;     // where the elements of a tap begin in the phases of a padded line
  int32_t* counts;   // of the windows over the elements of each phase of x, and of those:
  int32_t* first;    // element j stride + phase lies in window first + j
  int32_t* numbers;  // as this tap of it
  float* divisors;   // of averages, but for the other dimensions
  float* room;       // for the rest

  Rows(const PoolingProblem& problem, const Memory& m, float* all)
      : p(problem),
        memory(m),
        H1(spatial_size(p.x, 1)),
        W(spatial_size(p.x, 2)),
        rows(spatial_size(p.x, 0) * H1),
        P0(spatial_size(p.dy, 0)),
        P1(spatial_size(p.dy, 1)),
        Q(spatial_size(p.dy, 2)),
        windows(P0 * P1),
        stride(p.spatial.stride[2]),
        before(p.spatial.before[2]),
        window(p.window[2]),
        span(pooling::line_span(p)),
        is_max(p.mode == PoolingMode::max) {
    taps = reinterpret_cast<int32_t*>(all);
    first = taps + padded(window), numbers = first + padded(window), counts = numbers + padded(window);
    divisors = reinterpret_cast<float*>(counts + padded(stride));
    room = divisors + padded(Q);
    const int64_t pitch = pooling::phase_pitch(p, span), step = p.spatial.dilation[2];
    for (int64_t r = 0; r < window; ++r)
      taps[r] = int32_t(stride == 1 ? r * step : r * step % stride * pitch + r * step / stride);
    int32_t* to = first;
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int32_t* begin = to;
      for (int64_t r = window; r-- > 0;)  // windows in order
        if (const int64_t from = phase + before - r * step; from % stride == 0) {
          numbers[to - first] = int32_t(r);
          *to++ = int32_t(from / stride);
        }
      counts[phase] = int32_t(to - begin);
    }
    if (!is_max)
      for (int64_t q = 0; q < padded(Q); ++q) divisors[q] = q < Q ? float(counted(2, q)) : 1;
  }

  // How many elements a window at position `at` of dimension i counts.
  int64_t counted(int i, int64_t at) const {
    return p.mode == PoolingMode::avg ? detail::counted<PoolingMode::avg>(p, i, at)
                                      : detail::counted<PoolingMode::avg_exclude_padding>(p, i, at);
  }
  void divide(float* line, float others) const {
    for (int64_t i = 0; i < Q; i += kFloats) {
      const Floats by = load(divisors + i) * others, one = floats(1);
      store(line + i, load(line + i) / (by < one ? one : by));
    }
  }
  Joiner joiner_of_floats(int64_t length, float* to) const {
    return {is_max ? join_memory<Max, float> : join_memory<Sum, float>, is_max ? -INFINITY : 0, length, to};
  }
  const char* line_of(const void* base, const TensorDesc& d, int64_t a, int64_t b) const {
    return static_cast<const char*>(base) + (a * d.stride[2] + b * d.stride[3]) * memory.size;
  }
  const char* x_row(const void* x, int64_t row) const { return line_of(x, p.x, row / H1, row % H1); }
  char* plane_of(const void* base, const TensorDesc& d, int64_t plane) const {
    const int64_t C = p.x.shape[1];
    return static_cast<char*>(const_cast<void*>(base)) +
           (plane / C * d.stride[0] + plane % C * d.stride[1]) * memory.size;
  }
};

// Element i of a line to element i / stride of phase i % stride, and back.
void to_phases(const float* line, int64_t n, int64_t stride, int64_t pitch, float* phases) {
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
void from_phases(const float* phases, int64_t n, int64_t stride, int64_t pitch, float* line) {
  int64_t i = 0;
  if (stride == 2)
    for (; i + kPair <= n; i += kPair)
      store_from_pair<bfloat16>(line + i, Pair{load(phases + i / 2), load(phases + pitch + i / 2)});
  for (int64_t column = i / stride; i < n; ++column)
    for (int64_t phase = 0; phase < stride && i < n; ++phase) line[i++] = phases[phase * pitch + column];
}

void forward_rows(const Rows& r, const PoolingArgs& args, const PoolingShare& share) {
  const PoolingProblem& p = r.p;
  const int64_t pitch = pooling::phase_pitch(p, r.span);
  float *line = r.room, *phases = line + padded(r.span), *result = phases + r.stride * pitch;
  if (r.stride == 1) phases = line;
  const bool whole = pooling::sees_all_as_a_run(p);
  // Of the line, what lies in x; the rest stays as it is.
  const int64_t inside = max_of<int64_t>(min_of(r.W, r.span - r.before), 0);
  const float none = r.is_max ? -INFINITY : 0;
  for (int64_t i = 0; i < padded(r.span); ++i) line[i] = none;
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t plane = item / r.P1 / r.P0, p0 = item / r.P1 % r.P0, p1 = item % r.P1;
    const char* x = r.plane_of(args.x, p.x, plane);
    void* out = const_cast<char*>(r.line_of(r.plane_of(args.out, p.out, plane), p.out, p0, p1));
    const float others = r.is_max ? 1 : float(r.counted(0, p0) * r.counted(1, p1));
    if (whole) {
      result[0] = (r.is_max ? r.memory.max_of_run : r.memory.sum_of_run)(x, r.rows * r.W);
    } else {
      Joiner down{r.is_max ? r.memory.max : r.memory.sum, none, inside, line + min_of(r.before, r.span)};
      const Range r0 = taps_in_x(p, 0, p0), r1 = taps_in_x(p, 1, p1);
      for (int64_t a = r0.begin; a < r0.end; ++a)
        for (int64_t b = r1.begin; b < r1.end; ++b)
          down.add(r.line_of(x, p.x, p.spatial.input_index(0, p0, a), p.spatial.input_index(1, p1, b)));
      down.finish();
      if (r.stride > 1) to_phases(line, r.span, r.stride, pitch, phases);
      Joiner across = r.joiner_of_floats(ceil_div<int64_t>(r.Q, kFloats) * kFloats, result);
      for (int64_t tap = 0; tap < r.window; ++tap) across.add(phases + r.taps[tap]);
      across.finish();
    }
    if (!r.is_max) r.divide(result, others);
    r.memory.write(result, r.Q, out);
  }
}

// Writes planes of dx line by line.
struct PlaneWriter {
  const Rows& r;
  char* out;
  bool past_caches;
  Streamer<char> stream;
  void line(int64_t h0, int64_t h1, const float* from) {
    char* to = const_cast<char*>(r.line_of(out, r.p.out, h0, h1));
    if (!past_caches) return r.memory.write(from, r.W, to);
    stream.move_to(to);
    const int64_t room = stream.kRoom / r.memory.size;
    for (int64_t i = 0; i < r.W; i += room) {
      const int64_t n = min_of(room, r.W - i);
      r.memory.write(from + i, n, stream.next());
      stream.advance(n * r.memory.size);
    }
  }
};

// The maxima of one plane: for each window `found` gets what says where its first one lies, row_value(row, a, b) plus
// tap_value times the tap along the last dimension; kNowhere if it sees nothing.
constexpr int32_t kNowhere = INT32_MIN;
template <class RowValue>
MINIDNN_HD void find_maxima_of_plane(const Rows& r, const char* x, int32_t tap_value, RowValue row_value, float* room,
                                     int32_t* found, int64_t found_pitch) {
  const PoolingProblem& p = r.p;
  const int64_t pitch = pooling::phase_pitch(p, r.span), line_pitch = padded(r.Q);
  float *line = room, *phases = line + padded(r.span), *values = phases + r.stride * pitch;
  int32_t* taps = reinterpret_cast<int32_t*>(values + r.rows * line_pitch);
  const int64_t inside = max_of<int64_t>(min_of(r.W, r.span - r.before), 0);
  if (r.stride == 1) phases = line;
  for (int64_t i = 0; i < padded(r.span); ++i) line[i] = -INFINITY;

  // Across: each row's maxima, padding being -Inf.
  for (int64_t row = 0; row < r.rows; ++row) {
    r.memory.read(r.x_row(x, row), inside, line + min_of(r.before, r.span));
    if (r.stride > 1) to_phases(line, r.span, r.stride, pitch, phases);
    for (int64_t q = 0; q < r.Q; q += kFloats) {
      Floats best = load(phases + q);
      Ints at{};
      for (int64_t tap = 1; tap < r.window; ++tap)
        take_larger(best, at, load(phases + r.taps[tap] + q), Ints{} + int32_t(tap) * tap_value);
      store(values + row * line_pitch + q, best);
      store(taps + row * line_pitch + q, at);
    }
  }
  // Down.
  for (int64_t p0 = 0; p0 < r.P0; ++p0)
    for (int64_t p1 = 0; p1 < r.P1; ++p1, found += found_pitch) {
      const Range r0 = taps_in_x(p, 0, p0), r1 = taps_in_x(p, 1, p1);
      auto each_row = [&](auto visit) __attribute__((always_inline)) {
        for (int64_t a = r0.begin; a < r0.end; ++a)
          for (int64_t b = r1.begin; b < r1.end; ++b) {
            const int64_t row = p.spatial.input_index(0, p0, a) * r.H1 + p.spatial.input_index(1, p1, b);
            visit(row, row_value(row, a, b));
          }
      };
      bool doubtful = false;
      for (int64_t q = 0; q < r.Q; q += kFloats) {
        Floats best = floats(-INFINITY);
        Ints at = Ints{} + kNowhere;
        each_row([&](int64_t row, int32_t value) __attribute__((always_inline)) {
          take_larger(best, at, load(values + row * line_pitch + q), load(taps + row * line_pitch + q) + value);
        });
        store(found + q, at);
        const Ints is_lowest = best == floats(-INFINITY);
        for (int i = 0; i < kFloats; ++i) doubtful |= is_lowest[i] && q + i < r.Q;
      }
      if (!doubtful) continue;
      // -Inf: an element of x, or padding, or nothing at all.
      for (int64_t q = 0; q < r.Q; ++q) {
        const Range r2 = taps_in_x(p, 2, q);
        float best = 0;
        int32_t at = kNowhere;
        each_row([&](int64_t row, int32_t value) __attribute__((always_inline)) {
          for (int64_t tap = r2.begin; tap < r2.end; ++tap) {
            float v;
            r.memory.read(r.x_row(x, row) + p.spatial.input_index(2, q, tap) * r.memory.size, 1, &v);
            if (at != kNowhere && (v <= best || best != best)) continue;
            best = v;
            at = value + int32_t(tap) * tap_value;
          }
        });
        found[q] = at;
      }
    }
}

// Windows of few taps: an element of dx asks those over it.
void gather_maxima(const Rows& r, const char* x, const char* dy, PlaneWriter& out) {
  const PoolingProblem& p = r.p;
  const int64_t pitch = pooling::phase_pitch(p, r.W), line_pitch = pooling::shares_pitch(p);
  const int64_t zeros = pooling::zeros_before(p), columns = ceil_div(r.W, r.stride);
  float* gradients = r.room;
  int32_t* found = reinterpret_cast<int32_t*>(gradients + r.windows * line_pitch);
  float *phases = gradients + 2 * r.windows * line_pitch, *line = phases + r.stride * pitch;
  for (int64_t i = 0; i < r.windows * line_pitch; ++i) found[i] = kNowhere;
  auto number_of = [&](int64_t a, int64_t b) { return int32_t((a * p.window[1] + b) * r.window); };
  find_maxima_of_plane(
      r, x, 1, [&](int64_t, int64_t a, int64_t b) { return number_of(a, b); }, line + padded(r.W), found + zeros,
      line_pitch);
  for (int64_t i = 0; i < r.windows; ++i) {
    for (int k = 0; k < kFloats; ++k) found[i * line_pitch + zeros + r.Q + k] = kNowhere;
    r.memory.read(r.line_of(dy, p.dy, i / r.P1, i % r.P1), r.Q, gradients + i * line_pitch + zeros);
  }
  for (int64_t h0 = 0; h0 < spatial_size(p.out, 0); ++h0)
    for (int64_t h1 = 0; h1 < r.H1; ++h1) {
      struct {
        int64_t line;
        int32_t number;
      } over[kMaxWindowsOver];
      int lines = 0;
      const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
      for (int64_t p0 = over0.begin; p0 < over0.end; ++p0)
        for (int64_t p1 = over1.begin; p1 < over1.end; ++p1) {
          const int64_t a = tap_on(p, 0, p0, h0), b = tap_on(p, 1, p1, h1);
          if (a >= 0 && b >= 0) over[lines++] = {(p0 * r.P1 + p1) * line_pitch + zeros, number_of(a, b)};
        }
      int64_t window = 0;
      for (int64_t phase = 0; phase < r.stride; window += r.counts[phase++])
        for (int64_t j = 0; j < columns; j += kFloats) {
          Floats sum{};
          for (int k = 0; k < lines; ++k)
            for (int64_t i = window; i < window + r.counts[phase]; ++i) {
              const int64_t at = over[k].line + r.first[i] + j;
              const Ints chosen = load(found + at) == over[k].number + r.numbers[i];
              sum += (Floats)(chosen & (Ints)load(gradients + at));
            }
          store(phases + phase * pitch + j, sum);
        }
      if (r.stride > 1) from_phases(phases, r.W, r.stride, pitch, line);
      out.line(h0, h1, r.stride > 1 ? line : phases);
    }
}

// Windows of many taps: each adds its dy to the element that it found, windows in order.
void scatter_maxima(const Rows& r, const char* x, const char* dy, PlaneWriter& out) {
  const int64_t line_pitch = padded(r.Q);
  float *sums = r.room, *gradients = sums + padded(r.rows * r.W);
  int32_t* found = reinterpret_cast<int32_t*>(gradients + line_pitch);
  find_maxima_of_plane(
      r, x, int32_t(r.p.spatial.dilation[2]),
      [&](int64_t row, int64_t, int64_t) { return int32_t(row * r.W - r.before); },
      gradients + (1 + r.windows) * line_pitch, found, line_pitch);
  for (int64_t i = 0; i < r.rows * r.W; ++i) sums[i] = 0;
  for (int64_t i = 0; i < r.windows; ++i, found += line_pitch) {
    r.memory.read(r.line_of(dy, r.p.dy, i / r.P1, i % r.P1), r.Q, gradients);
    for (int64_t q = 0; q < r.Q; ++q)
      if (found[q] != kNowhere) sums[found[q] + q * r.stride] += gradients[q];
  }
  for (int64_t row = 0; row < r.rows; ++row) out.line(row / r.H1, row % r.H1, sums + row * r.W);
}

// Averages: dy by what its window divides by, summed down, then across.
void spread_averages(const Rows& r, const char* dy, PlaneWriter& out) {
  const PoolingProblem& p = r.p;
  const int64_t pitch = pooling::phase_pitch(p, r.W), line_pitch = pooling::shares_pitch(p);
  const int64_t zeros = pooling::zeros_before(p), columns = ceil_div(r.W, r.stride);
  float *down = r.room + r.windows * line_pitch, *phases = down + line_pitch, *line = phases + r.stride * pitch;
  for (int64_t i = 0; i < r.windows; ++i) {
    float* shares = r.room + i * line_pitch + zeros;
    r.memory.read(r.line_of(dy, p.dy, i / r.P1, i % r.P1), r.Q, shares);
    r.divide(shares, float(r.counted(0, i / r.P1) * r.counted(1, i % r.P1)));
  }
  const bool one = pooling::sees_all_as_a_run(p);  // then all of the plane is one number
  for (int64_t i = 0; one && i < r.W; ++i) line[i] = r.room[zeros];
  for (int64_t h0 = 0; h0 < spatial_size(p.out, 0); ++h0)
    for (int64_t h1 = 0; h1 < r.H1; ++h1) {
      if (one) {
        out.line(h0, h1, line);
        continue;
      }
      const Range over0 = windows_over(p, 0, h0), over1 = windows_over(p, 1, h1);
      Joiner rows = r.joiner_of_floats(line_pitch, down);
      for (int64_t p0 = over0.begin; p0 < over0.end; ++p0)
        for (int64_t p1 = over1.begin; p1 < over1.end; ++p1)
          if (tap_on(p, 0, p0, h0) >= 0 && tap_on(p, 1, p1, h1) >= 0) rows.add(r.room + (p0 * r.P1 + p1) * line_pitch);
      rows.finish();
      int64_t window = 0;
      for (int64_t phase = 0; phase < r.stride; window += r.counts[phase++]) {
        Joiner across = r.joiner_of_floats(ceil_div<int64_t>(columns, kFloats) * kFloats, phases + phase * pitch);
        for (int64_t i = window; i < window + r.counts[phase]; ++i) across.add(down + zeros + r.first[i]);
        across.finish();
      }
      if (r.stride > 1) from_phases(phases, r.W, r.stride, pitch, line);
      out.line(h0, h1, r.stride > 1 ? line : phases);
    }
}

void backward_rows(const Rows& r, const PoolingArgs& args, const PoolingShare& share) {
  const PoolingProblem& p = r.p;
  for (int64_t i = 0; i < pooling::rows_backward_room(p) - pooling::rows_tables(p); ++i) r.room[i] = 0;  // around lines
  for (int64_t plane = share.begin; plane < share.end; ++plane) {
    char* out = r.plane_of(args.out, p.out, plane);
    const char *dy = r.plane_of(args.dy, p.dy, plane), *x = r.plane_of(args.x, p.x, plane);
    PlaneWriter writer{r, out, share.stream, Streamer<char>(out)};
    if (!r.is_max) spread_averages(r, dy, writer);
    else if (pooling::gathers(p)) gather_maxima(r, x, dy, writer);
    else scatter_maxima(r, x, dy, writer);
    if (share.stream) writer.stream.finish();
  }
}

template <class T>
void rows_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  forward_rows(Rows(p, memory_of<T>, room), args, share);
}
template <class T>
void rows_backward(const PoolingProblem& p, const PoolingArgs& args, const PoolingShare& share, float* room) {
  backward_rows(Rows(p, memory_of<T>, room), args, share);
}

template <class T> constexpr PoolingKernels::Typed typed() {
  return {channels_forward<T>, channels_backward<T>, rows_forward<T>, rows_backward<T>};
}

}  // namespace

extern const PoolingKernels pooling_kernels;
const PoolingKernels pooling_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>()};

}  // namespace minidnn::MINIDNN_ISA
