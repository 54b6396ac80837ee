// SPDX-License-Identifier: Apache-2.0
// The loops of channel_norm.h over a block of shape [rows][columns][space]. If `space` is 1, each lane of a vector has
// its own column, else all lanes have the same column. Each lane adds a limited number of elements directly, so the rounding
// error of a sum is at most that of the reference engine. Lanes are float, or double for float64.
#include "cpp/simd/channel_norm.h"

#include "cpp/core/host_device/maths.h"
#include "cpp/simd/lanes.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T> constexpr int kPair = 2 * kWidth<T>;

// Moments adds up x - center and (x - center)^2. Gradients adds up dy and dy (x - mean).
template <class V> struct Moments {
  static constexpr bool reads_dy = false;
  V a, b;
  MINIDNN_HD void add(V x, V, V center, int first_lane = 0) {
    V d = x - center;
    if (first_lane) d = lanes_from(first_lane, d);
    a += d;
    b += d * d;
  }
};
template <class V> struct Gradients {
  static constexpr bool reads_dy = true;
  V a, b;
  MINIDNN_HD void add(V x, V dy, V mean, int first_lane = 0) {
    V product = dy * (x - mean);
    if (first_lane) {
      dy = lanes_from(first_lane, dy);
      product = lanes_from(first_lane, product);
    }
    a += dy;
    b += product;
  }
};
template <class Sums> MINIDNN_HD void join(Sums& total, const Sums& s) {
  total.a += s.a;
  total.b += s.b;
}

// Loads elements of dy if the functor F reads dy, else returns zeros.
template <class F, class T> MINIDNN_HD Lanes<T> dy_lanes(const T* dy) {
  if constexpr (F::reads_dy) return load_floats(dy);
  else return Lanes<T>{};
}
template <class F, class T> MINIDNN_HD PairOf<T> dy_pair(const T* dy) {
  if constexpr (F::reads_dy) return load_pair(dy);
  else return PairOf<T>{};
}
template <class F, class T> MINIDNN_HD Lanes<T> dy_first(const T* dy, int64_t n) {
  if constexpr (F::reads_dy) return load_first(dy, n);
  else return Lanes<T>{};
}

// the number of elements that a lane adds directly
constexpr int kSumLength = 128;
// the number of columns whose sums are computed together
constexpr int kTileSpans = 64;

// Calls f(row, column) for the spans of a block, in the order in which x has them in memory.
template <class F> MINIDNN_HD void each_span(const NormBlock& p, int64_t columns, const F& f) {
  const bool by_column = p.x_step.row < p.x_step.column;
  const int64_t outer = by_column ? columns : p.rows, inner = by_column ? p.rows : columns;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < inner; ++j) f(by_column ? j : i, by_column ? i : j);
}

// Adds the sums of one span (contiguous elements of a column) to `total`.
template <class Sums, class T> MINIDNN_HD void add_span(const T* x, const T* dy, int64_t n, Lanes<T> center,
                                                        Sums& total) {
  int64_t i = 0;
  while (i + 2 * kPair<T> <= n) {
    Sums s[4]{};  // four independent sums, so that an addition need not wait for the previous one
    const int64_t end = min_of<int64_t>(n, i + kSumLength * 2 * kPair<T>);
    for (; i + 2 * kPair<T> <= end; i += 2 * kPair<T>)
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        const PairOf<T> xs = load_pair(x + i + k * kPair<T>), dys = dy_pair<Sums>(dy + i + k * kPair<T>);
        s[2 * k].add(xs.first, dys.first, center);
        s[2 * k + 1].add(xs.second, dys.second, center);
      }
    join(s[0], s[1]);
    join(s[2], s[3]);
    join(s[0], s[2]);
    join(total, s[0]);
  }
  Sums s{};
  for (; i + kWidth<T> <= n; i += kWidth<T>) s.add(load_floats(x + i), dy_lanes<Sums>(dy + i), center);
  if (i < n) {
    // The remaining elements do not fill a vector. So the last vector of the span is loaded, without the lanes that
    // were already added. A span shorter than a vector is first copied.
    const int first = int(kWidth<T> - (n - i));
    if (n >= kWidth<T>) {
      s.add(load_floats(x + n - kWidth<T>), dy_lanes<Sums>(dy + n - kWidth<T>), center, first);
    } else {
      T last[2][kWidth<T>];
      __builtin_memset(last, 0, sizeof last);
      for (int k = 0; k < n; ++k) {
        last[0][first + k] = x[k];
        if constexpr (Sums::reads_dy) last[1][first + k] = dy[k];
      }
      s.add(load_floats(last[0]), dy_lanes<Sums>(last[1]), center, first);
    }
  }
  join(total, s);
}

template <class Sums, class T> void sum_spans(const NormBlock& p, const Accumulator<T>* center, Accumulator<T>* sums) {
  for (int64_t begin = 0; begin < p.columns; begin += kTileSpans) {
    const int64_t spans = min_of<int64_t>(kTileSpans, p.columns - begin);
    Sums total[kTileSpans];
    for (int64_t c = 0; c < spans; ++c) total[c] = Sums{};
    each_span(p, spans, [&](int64_t row, int64_t c) __attribute__((always_inline)) {
      const T* x = static_cast<const T*>(p.x) + row * p.x_step.row + (begin + c) * p.x_step.column;
      const T* dy = static_cast<const T*>(p.dy) + row * p.dy_step.row + (begin + c) * p.dy_step.column;
      add_span(x, dy, p.space, lanes_of<T>(center[begin + c]), total[c]);
    });
    for (int64_t c = 0; c < spans; ++c) {
      sums[begin + c] = sum_lanes(total[c].a);
      sums[p.columns + begin + c] = sum_lanes(total[c].b);
    }
  }
}

// to_lanes() puts an array in the order in which load_pair() loads elements, and from_lanes() restores its order.
// Columns after the last pair of vectors keep their order.
template <class T> MINIDNN_HD void to_lanes(const float* from, int64_t n, float* to) {
  int64_t c = 0;
  for (; c + kPair<T> <= n; c += kPair<T>) {
    const Pair p = load_as_pair<T>(from + c);
    store(to + c, p.first);
    store(to + c + kFloats, p.second);
  }
  for (; c < n; ++c) to[c] = from[c];
}
template <class T> MINIDNN_HD void from_lanes(float* line, int64_t n) {
  for (int64_t c = 0; c + kPair<T> <= n; c += kPair<T>)
    store_from_pair<T>(line + c, Pair{load(line + c), load(line + c + kFloats)});
}

// Adds up `rows` rows of each column into the arrays a and b, whose columns have the order of load_pair().
template <class Sums, int rows, class T>
MINIDNN_HD void add_rows(const NormBlock& p, const T* x, const T* dy, const Accumulator<T>* center, Accumulator<T>* a,
                         Accumulator<T>* b) {
  int64_t c = 0;
  for (; c + kPair<T> <= p.columns; c += kPair<T>) {
    Sums s[2]{};
    const Lanes<T> centers[] = {load(center + c), load(center + c + kWidth<T>)};
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const PairOf<T> xs = load_pair(x + r * p.x_step.row + c), dys = dy_pair<Sums>(dy + r * p.dy_step.row + c);
      s[0].add(xs.first, dys.first, centers[0]);
      s[1].add(xs.second, dys.second, centers[1]);
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      store(a + c + k * kWidth<T>, load(a + c + k * kWidth<T>) + s[k].a);
      store(b + c + k * kWidth<T>, load(b + c + k * kWidth<T>) + s[k].b);
    }
  }
  for (; c < p.columns; c += kWidth<T>) {
    const int64_t n = min_of<int64_t>(kWidth<T>, p.columns - c);
    Sums s{};
    for (int r = 0; r < rows; ++r)
      s.add(load_first(x + r * p.x_step.row + c, n), dy_first<Sums>(dy + r * p.dy_step.row + c, n),
            load_first(center + c, n));
    store_first(a + c, n, load_first(a + c, n) + s.a);
    store_first(b + c, n, load_first(b + c, n) + s.b);
  }
}

template <class Sums, class T> void sum_rows(const NormBlock& p, const Accumulator<T>* center, Accumulator<T>* sums) {
  float in_lanes[kNormColumns];
  if constexpr (kIsInterleaved<T>) {
    to_lanes<T>(center, p.columns, in_lanes);
    center = in_lanes;
  }
  for (int64_t c = 0; c < 2 * p.columns; ++c) sums[c] = 0;
  const T* x = static_cast<const T*>(p.x);
  const T* dy = static_cast<const T*>(p.dy);
  int64_t row = 0;
  for (; row + 8 <= p.rows; row += 8, x += 8 * p.x_step.row, dy += 8 * p.dy_step.row)
    add_rows<Sums, 8>(p, x, dy, center, sums, sums + p.columns);
  for (; row + 4 <= p.rows; row += 4, x += 4 * p.x_step.row, dy += 4 * p.dy_step.row)
    add_rows<Sums, 4>(p, x, dy, center, sums, sums + p.columns);
  for (; row < p.rows; ++row, x += p.x_step.row, dy += p.dy_step.row)
    add_rows<Sums, 1>(p, x, dy, center, sums, sums + p.columns);
  if constexpr (kIsInterleaved<T>) {
    from_lanes<T>(sums, p.columns);
    from_lanes<T>(sums + p.columns, p.columns);
  }
}

template <class Sums, class T> void sum_block(const NormBlock& p, const Accumulator<T>* center, Accumulator<T>* sums) {
  if (p.space > 1) sum_spans<Sums, T>(p, center, sums);
  else sum_rows<Sums, T>(p, center, sums);
}

// Sums x - center and (x - center)^2, where `center` is the mean of a few elements. If it is further from the true mean
// than a standard deviation, the column is summed again around the mean. So the final subtraction loses at most one
// bit.
template <class T> void moments(const NormBlock& p, Accumulator<T>* results) {
  using A = Accumulator<T>;
  using Sums = Moments<Lanes<T>>;
  A *center = results, *sums = results + p.columns, *squares = sums + p.columns;
  auto is_finite = [](A v) { return v - v == 0; };
  for (int64_t c = 0; c < p.columns; ++c) {
    const A first = load_first(static_cast<const T*>(p.x) + c * p.x_step.column, 1)[0];
    center[c] = is_finite(first) ? first : 0;
  }
  NormBlock sample = p;
  constexpr int64_t kSampleRows = 16, kSpanSample = 64;
  if (p.space > 1) sample.space = min_of(p.space, kSpanSample * max_of<int64_t>(kSampleRows / p.rows, 1));
  sample.rows = min_of(p.rows, kSampleRows);
  sample.x_step.row *= p.rows / sample.rows;
  sum_block<Sums, T>(sample, center, sums);
  const A per_sample = 1 / A(sample.rows * sample.space), n = A(p.rows * p.space), per_member = 1 / n;
  for (int64_t c = 0; c < p.columns; ++c) {
    const A mean = center[c] + sums[c] * per_sample;
    center[c] = is_finite(mean) ? mean : center[c];
  }
  sum_block<Sums, T>(p, center, sums);
  bool sum_again = false;
  for (int64_t c = 0; c < p.columns; ++c) {
    const A away = sums[c] * per_member;
    const bool is_far = away * sums[c] * 2 > squares[c];
    center[c] = is_far ? center[c] + away : center[c];
    sum_again |= is_far;
  }
  if (sum_again) sum_block<Sums, T>(p, center, sums);
  for (int64_t c = 0; c < p.columns; ++c) {
    const A away = sums[c] * per_member, rest = squares[c] - away * sums[c];
    sums[c] = away;
    squares[c] = rest < 0 ? 0 : rest;
  }
}

// Normalises a vector of elements. norm_element() is the same computation for one element.
template <class V, bool adds, bool relu> struct Forward {
  static constexpr bool reads_dy = adds;
  V mean, factor, offset;
  template <class Lines, class Load> MINIDNN_HD Forward(const Lines& l, int64_t c, Load load)
      : mean(load(l.mean + c)), factor(load(l.factor + c)), offset(load(l.offset + c)) {}
  MINIDNN_HD V operator()(V x, V residual) const {
    V y = (x - mean) * factor + offset;
    if (adds) y += residual;
    if (relu) y = y < 0 ? V{} : y;  // NaN < 0 is false, so relu keeps NaN
    return y;
  }
};
template <class V> struct Backward {
  static constexpr bool reads_dy = true;
  V mean, factor, offset, slope;
  template <class Lines, class Load> MINIDNN_HD Backward(const Lines& l, int64_t c, Load load)
      : mean(load(l.mean + c)), factor(load(l.factor + c)), offset(load(l.offset + c)), slope(load(l.slope + c)) {}
  MINIDNN_HD V operator()(V x, V dy) const { return factor * (dy - offset - (x - mean) * slope); }
};
template <class V> struct Blend : Backward<V> {
  using Backward<V>::Backward;
  using Backward<V>::mean, Backward<V>::factor, Backward<V>::offset, Backward<V>::slope;
  MINIDNN_HD V operator()(V x, V dy) const { return dy * slope + ((x - mean) * factor + offset); }
};
template <class V, bool relu> struct Gate {
  static constexpr bool reads_dy = true;
  template <class Lines, class Load> MINIDNN_HD Gate(const Lines&, int64_t, Load) {}
  MINIDNN_HD V operator()(V y, V dy) const { return relu ? (y <= 0 ? V{} : dy) : dy; }
};

// The last vector may overlap the one before it, and `out` may be x. So the last vector is computed before anything is
// written.
template <class Map, class T> MINIDNN_HD void map_span(const T* x, const T* dy, int64_t n, const Map& map, T* out) {
  if (n < kWidth<T>) return store_first(out, n, map(load_first(x, n), dy_first<Map>(dy, n)));
  const Lanes<T> last = map(load_floats(x + n - kWidth<T>), dy_lanes<Map>(dy + n - kWidth<T>));
  int64_t i = 0;
#pragma GCC unroll 2
  for (; i + kPair<T> <= n; i += kPair<T>) {
    const PairOf<T> xs = load_pair(x + i), dys = dy_pair<Map>(dy + i);
    store_pair(out + i, PairOf<T>{map(xs.first, dys.first), map(xs.second, dys.second)});
  }
  if (i + kWidth<T> < n) store_floats(out + i, map(load_floats(x + i), dy_lanes<Map>(dy + i)));
  if (i < n) store_floats(out + n - kWidth<T>, last);
}

// Writes one row of a block in which columns are contiguous. The coefficients must have the order of load_pair().
template <class Map, class T>
MINIDNN_HD void map_columns(const T* x, const T* dy, int64_t n, const NormLines<Accumulator<T>>& l, int64_t column,
                            T* out) {
  auto whole = [](const Accumulator<T>* from) { return load(from); };
  int64_t c = 0;
  for (; c + kPair<T> <= n; c += kPair<T>) {
    const Map first(l, column + c, whole), second(l, column + c + kWidth<T>, whole);
    const PairOf<T> xs = load_pair(x + c), dys = dy_pair<Map>(dy + c);
    store_pair(out + c, PairOf<T>{first(xs.first, dys.first), second(xs.second, dys.second)});
  }
  for (; c < n; c += kWidth<T>) {
    const int64_t lanes = min_of<int64_t>(kWidth<T>, n - c);
    const Map map(l, column + c, [=](const Accumulator<T>* from) { return load_first(from, lanes); });
    store_first(out + c, lanes, map(load_first(x + c, lanes), dy_first<Map>(dy + c, lanes)));
  }
}

template <class Map, class T> void map_block(const NormBlock& p, const NormLines<Accumulator<T>>& given,
                                             bool non_temporal) {
  const bool by_span = p.space > 1;
  NormLines<Accumulator<T>> l = given;
  float in_lanes[kIsInterleaved<T> ? 4 : 1][kNormColumns];
  if constexpr (kIsInterleaved<T>)
    if (!by_span) {
      to_lanes<T>(given.mean, p.columns, in_lanes[0]);
      if (given.factor) to_lanes<T>(given.factor, p.columns, in_lanes[1]);
      if (given.offset) to_lanes<T>(given.offset, p.columns, in_lanes[2]);
      if (given.slope) to_lanes<T>(given.slope, p.columns, in_lanes[3]);
      l = {in_lanes[0], in_lanes[1], in_lanes[2], in_lanes[3]};
    }
  const int64_t lines = by_span ? p.columns : 1, length = by_span ? p.space : p.columns;
  auto line = [&](int64_t row, int64_t c, int64_t begin, int64_t n, T* out) __attribute__((always_inline)) {
    const T* x = static_cast<const T*>(p.x) + row * p.x_step.row + c * p.x_step.column + begin;
    const T* dy = static_cast<const T*>(p.dy) + row * p.dy_step.row + c * p.dy_step.column + begin;
    if (by_span) map_span(x, dy, n, Map(l, c, [](const Accumulator<T>* from) { return lanes_of<T>(*from); }), out);
    else map_columns<Map>(x, dy, n, l, begin, out);
  };
  T* out = static_cast<T*>(p.out);
  if (!non_temporal) {
    each_span(p, lines, [&](int64_t row, int64_t c) __attribute__((always_inline)) {
      line(row, c, 0, length, out + row * p.out_step.row + c * p.out_step.column);
    });
    return;
  }
  Streamer<T> to(out);
  for (int64_t row = 0; row < p.rows; ++row) {
    to.move_to(out + row * p.out_step.row);
    for (int64_t c = 0; c < lines; ++c)
      for (int64_t begin = 0; begin < length; begin += to.kCapacity) {
        const int64_t n = min_of<int64_t>(to.kCapacity, length - begin);
        line(row, c, begin, n, to.next());
        to.advance(n);
      }
  }
  to.finish();
}

template <class A>
MINIDNN_HD void join_moments_at(int64_t channels, const A* results, int64_t columns, int64_t step, double weight,
                                double between, double* __restrict mean, double* __restrict squares) {
  for (int64_t i = 0; i < channels; ++i) {
    const A* of = results + i * step;
    const double difference = (double(of[0]) - mean[i]) + double(of[columns]);
    mean[i] += difference * weight;
    squares[i] += double(of[2 * columns]) + difference * difference * between;
  }
}
template <class A>
void join_moments(int64_t channels, const A* results, int64_t columns, int64_t step, double n, double joined,
                  double* mean, double* squares) {
  const double weight = n / (joined + n), between = joined * weight;
  if (step == 1) join_moments_at(channels, results, columns, 1, weight, between, mean, squares);
  else join_moments_at(channels, results, columns, step, weight, between, mean, squares);
}
template <class A>
MINIDNN_HD void join_gradients_at(int64_t channels, const A* results, int64_t columns, int64_t step,
                                  double* __restrict dy, double* __restrict product) {
  for (int64_t i = 0; i < channels; ++i) {
    dy[i] += double(results[i * step]);
    product[i] += double(results[columns + i * step]);
  }
}
template <class A>
void join_gradients(int64_t channels, const A* results, int64_t columns, int64_t step, double* dy, double* product) {
  if (step == 1) join_gradients_at(channels, results, columns, 1, dy, product);
  else join_gradients_at(channels, results, columns, step, dy, product);
}

template <class A> void inverse_std(int64_t n, const A* var, A eps, A* inv_std) {
  for (int64_t i = 0; i < n; ++i) inv_std[i] = 1 / maths::sqrt(var[i] + eps);
}

template <class T> constexpr ChannelNormLoops<Accumulator<T>> loops() {
  using V = Lanes<T>;
  using A = Accumulator<T>;
  return {moments<T>,
          sum_block<Gradients<V>, T>,
          {{map_block<Forward<V, false, false>, T>, map_block<Forward<V, false, true>, T>},
           {map_block<Forward<V, true, false>, T>, map_block<Forward<V, true, true>, T>}},
          map_block<Backward<V>, T>,
          map_block<Blend<V>, T>,
          {map_block<Gate<V, false>, T>, map_block<Gate<V, true>, T>},
          join_moments<A>,
          join_gradients<A>,
          inverse_std<A>};
}

}  // namespace

extern const ChannelNormKernels channel_norm_kernels;
const ChannelNormKernels channel_norm_kernels = {loops<float>(), loops<bfloat16>(), loops<float16>(), loops<double>()};

}  // namespace minidnn::MINIDNN_ISA
