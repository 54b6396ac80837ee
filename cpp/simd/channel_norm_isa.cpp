// SPDX-License-Identifier: Apache-2.0
// The loops of channel_norm.h over a block of shape [rows][columns][space]. If `space` is 1, each lane of a vector has
// its own column, else all lanes have the same column. Each lane adds a limited number of elements in float32, so the
// rounding error of a sum is at most that of the reference engine.
#include "cpp/simd/channel_norm.h"

#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int kPair = 2 * kFloats;

// Moments adds up x - center and (x - center)^2. Gradients adds up dy and dy (x - mean).
struct Moments {
  static constexpr bool reads_dy = false;
  Floats a, b;
  MINIDNN_HD void add(Floats x, Floats, Floats center, int first_lane = 0) {
    Floats d = x - center;
    if (first_lane) d = lanes_from(first_lane, d);
    a += d;
    b += d * d;
  }
};
struct Gradients {
  static constexpr bool reads_dy = true;
  Floats a, b;
  MINIDNN_HD void add(Floats x, Floats dy, Floats mean, int first_lane = 0) {
    Floats product = dy * (x - mean);
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
template <class F, class T> MINIDNN_HD Floats dy_floats(const T* dy) {
  if constexpr (F::reads_dy) return load_floats(dy);
  else return Floats{};
}
template <class F, class T> MINIDNN_HD Pair dy_pair(const T* dy) {
  if constexpr (F::reads_dy) return load_pair(dy);
  else return Pair{};
}
template <class F, class T> MINIDNN_HD Floats dy_first(const T* dy, int64_t n) {
  if constexpr (F::reads_dy) return load_first(dy, n);
  else return Floats{};
}

// the number of elements that a lane adds in float32
constexpr int kSumLength = 128;
// the number of columns whose sums are computed together
constexpr int kTileSpans = 64;

// Adds the sums of one span (contiguous elements of a column) to `total`.
template <class Sums, class T> MINIDNN_HD void add_span(const T* x, const T* dy, int64_t n, Floats center,
                                                        Sums& total) {
  int64_t i = 0;
  while (i + 2 * kPair <= n) {
    Sums s[4]{};  // four independent sums, so that an addition need not wait for the previous one
    const int64_t end = min_of<int64_t>(n, i + kSumLength * 2 * kPair);
    for (; i + 2 * kPair <= end; i += 2 * kPair)
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        const Pair xs = load_pair(x + i + k * kPair), dys = dy_pair<Sums>(dy + i + k * kPair);
        s[2 * k].add(xs.first, dys.first, center);
        s[2 * k + 1].add(xs.second, dys.second, center);
      }
    join(s[0], s[1]);
    join(s[2], s[3]);
    join(s[0], s[2]);
    join(total, s[0]);
  }
  Sums s{};
  for (; i + kFloats <= n; i += kFloats) s.add(load_floats(x + i), dy_floats<Sums>(dy + i), center);
  if (i < n) {
    // The remaining elements do not fill a vector. So the last vector of the span is loaded, without the lanes that
    // were already added. A span shorter than a vector is first copied.
    const int first = int(kFloats - (n - i));
    if (n >= kFloats) {
      s.add(load_floats(x + n - kFloats), dy_floats<Sums>(dy + n - kFloats), center, first);
    } else {
      T last[2][kFloats];
      __builtin_memset(last, 0, sizeof last);
      for (int k = 0; k < n; ++k) {
        last[0][first + k] = x[k];
        if constexpr (Sums::reads_dy) last[1][first + k] = dy[k];
      }
      s.add(load_floats(last[0]), dy_floats<Sums>(last[1]), center, first);
    }
  }
  join(total, s);
}

template <class Sums, class T> void sum_spans(const NormBlock& p, const float* center, float* sums) {
  for (int64_t begin = 0; begin < p.columns; begin += kTileSpans) {
    const int64_t spans = min_of<int64_t>(kTileSpans, p.columns - begin);
    Sums total[kTileSpans];
    for (int64_t c = 0; c < spans; ++c) total[c] = Sums{};
    for (int64_t row = 0; row < p.rows; ++row)
      for (int64_t c = 0; c < spans; ++c) {
        const T* x = static_cast<const T*>(p.x) + row * p.x_step.row + (begin + c) * p.x_step.column;
        const T* dy = static_cast<const T*>(p.dy) + row * p.dy_step.row + (begin + c) * p.dy_step.column;
        add_span(x, dy, p.space, floats(center[begin + c]), total[c]);
      }
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
  for (; c + kPair <= n; c += kPair) {
    const Pair p = load_as_pair<T>(from + c);
    store(to + c, p.first);
    store(to + c + kFloats, p.second);
  }
  for (; c < n; ++c) to[c] = from[c];
}
template <class T> MINIDNN_HD void from_lanes(float* line, int64_t n) {
  for (int64_t c = 0; c + kPair <= n; c += kPair)
    store_from_pair<T>(line + c, Pair{load(line + c), load(line + c + kFloats)});
}

// Adds up `rows` rows of each column into the arrays a and b, whose columns have the order of load_pair().
template <class Sums, int rows, class T>
MINIDNN_HD void add_rows(const NormBlock& p, const T* x, const T* dy, const float* center, float* a, float* b) {
  int64_t c = 0;
  for (; c + kPair <= p.columns; c += kPair) {
    Sums s[2]{};
    const Floats centers[] = {load(center + c), load(center + c + kFloats)};
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const Pair xs = load_pair(x + r * p.x_step.row + c), dys = dy_pair<Sums>(dy + r * p.dy_step.row + c);
      s[0].add(xs.first, dys.first, centers[0]);
      s[1].add(xs.second, dys.second, centers[1]);
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      store(a + c + k * kFloats, load(a + c + k * kFloats) + s[k].a);
      store(b + c + k * kFloats, load(b + c + k * kFloats) + s[k].b);
    }
  }
  for (; c < p.columns; c += kFloats) {
    const int64_t n = min_of<int64_t>(kFloats, p.columns - c);
    Sums s{};
    for (int r = 0; r < rows; ++r)
      s.add(load_first(x + r * p.x_step.row + c, n), dy_first<Sums>(dy + r * p.dy_step.row + c, n),
            load_first(center + c, n));
    store_first(a + c, n, load_first(a + c, n) + s.a);
    store_first(b + c, n, load_first(b + c, n) + s.b);
  }
}

template <class Sums, class T> void sum_rows(const NormBlock& p, const float* center, float* sums) {
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

template <class Sums, class T> void sum_block(const NormBlock& p, const float* center, float* sums) {
  if (p.space > 1) sum_spans<Sums, T>(p, center, sums);
  else sum_rows<Sums, T>(p, center, sums);
}

// Sums x - center and (x - center)^2, where `center` is the mean of a few elements. If it is further from the true mean
// than a standard deviation, the column is summed again around the mean. So the final subtraction loses at most one
// bit.
template <class T> void moments(const NormBlock& p, float* results) {
  float *center = results, *sums = results + p.columns, *squares = sums + p.columns;
  auto is_finite = [](float v) { return v - v == 0; };
  for (int64_t c = 0; c < p.columns; ++c) {
    const float first = load_first(static_cast<const T*>(p.x) + c * p.x_step.column, 1)[0];
    center[c] = is_finite(first) ? first : 0;
  }
  NormBlock sample = p;
  constexpr int64_t kSampleRows = 16, kSpanSample = 64;
  if (p.space > 1) sample.space = min_of(p.space, kSpanSample * max_of<int64_t>(kSampleRows / p.rows, 1));
  sample.rows = min_of(p.rows, kSampleRows);
  sample.x_step.row *= p.rows / sample.rows;
  sum_block<Moments, T>(sample, center, sums);
  const float per_sample = 1 / float(sample.rows * sample.space), n = float(p.rows * p.space), per_member = 1 / n;
  for (int64_t c = 0; c < p.columns; ++c) {
    const float mean = center[c] + sums[c] * per_sample;
    center[c] = is_finite(mean) ? mean : center[c];
  }
  sum_block<Moments, T>(p, center, sums);
  bool sum_again = false;
  for (int64_t c = 0; c < p.columns; ++c) {
    const float away = sums[c] * per_member;
    const bool is_far = away * sums[c] * 2 > squares[c];
    center[c] = is_far ? center[c] + away : center[c];
    sum_again |= is_far;
  }
  if (sum_again) sum_block<Moments, T>(p, center, sums);
  for (int64_t c = 0; c < p.columns; ++c) {
    const float away = sums[c] * per_member, rest = squares[c] - away * sums[c];
    sums[c] = away;
    squares[c] = rest < 0 ? 0 : rest;
  }
}

// Normalises a vector of elements. norm_element() is the same computation for one element.
template <bool adds, bool relu> struct Forward {
  static constexpr bool reads_dy = adds;
  Floats mean, factor, offset;
  template <class Load> MINIDNN_HD Forward(const NormLines& l, int64_t c, Load load)
      : mean(load(l.mean + c)), factor(load(l.factor + c)), offset(load(l.offset + c)) {}
  MINIDNN_HD Floats operator()(Floats x, Floats residual) const {
    Floats y = (x - mean) * factor + offset;
    if (adds) y += residual;
    if (relu) y = y < 0 ? Floats{} : y;  // NaN < 0 is false, so relu keeps NaN
    return y;
  }
};
struct Backward {
  static constexpr bool reads_dy = true;
  Floats mean, factor, offset, slope;
  template <class Load> MINIDNN_HD Backward(const NormLines& l, int64_t c, Load load)
      : mean(load(l.mean + c)), factor(load(l.factor + c)), offset(load(l.offset + c)), slope(load(l.slope + c)) {}
  MINIDNN_HD Floats operator()(Floats x, Floats dy) const { return factor * (dy - offset - (x - mean) * slope); }
};
struct Blend : Backward {
  using Backward::Backward;
  MINIDNN_HD Floats operator()(Floats x, Floats dy) const { return dy * slope + ((x - mean) * factor + offset); }
};
template <bool relu> struct Gate {
  static constexpr bool reads_dy = true;
  template <class Load> MINIDNN_HD Gate(const NormLines&, int64_t, Load) {}
  MINIDNN_HD Floats operator()(Floats y, Floats dy) const { return relu ? (y <= 0 ? Floats{} : dy) : dy; }
};

// The last vector may overlap the one before it, and `out` may be x. So the last vector is computed before anything is
// written.
template <class Map, class T> MINIDNN_HD void map_span(const T* x, const T* dy, int64_t n, const Map& map, T* out) {
  if (n < kFloats) return store_first(out, n, map(load_first(x, n), dy_first<Map>(dy, n)));
  const Floats last = map(load_floats(x + n - kFloats), dy_floats<Map>(dy + n - kFloats));
  int64_t i = 0;
#pragma GCC unroll 2
  for (; i + kPair <= n; i += kPair) {
    const Pair xs = load_pair(x + i), dys = dy_pair<Map>(dy + i);
    store_pair(out + i, Pair{map(xs.first, dys.first), map(xs.second, dys.second)});
  }
  if (i + kFloats < n) store_floats(out + i, map(load_floats(x + i), dy_floats<Map>(dy + i)));
  if (i < n) store_floats(out + n - kFloats, last);
}

// Writes one row of a block in which columns are contiguous. The coefficients must have the order of load_pair().
template <class Map, class T>
MINIDNN_HD void map_columns(const T* x, const T* dy, int64_t n, const NormLines& l, int64_t column, T* out) {
  auto whole = [](const float* from) { return load(from); };
  int64_t c = 0;
  for (; c + kPair <= n; c += kPair) {
    const Map first(l, column + c, whole), second(l, column + c + kFloats, whole);
    const Pair xs = load_pair(x + c), dys = dy_pair<Map>(dy + c);
    store_pair(out + c, Pair{first(xs.first, dys.first), second(xs.second, dys.second)});
  }
  for (; c < n; c += kFloats) {
    const int64_t lanes = min_of<int64_t>(kFloats, n - c);
    const Map map(l, column + c, [=](const float* from) { return load_first(from, lanes); });
    store_first(out + c, lanes, map(load_first(x + c, lanes), dy_first<Map>(dy + c, lanes)));
  }
}

template <class Map, class T> void map_block(const NormBlock& p, const NormLines& given, bool non_temporal) {
  const bool by_span = p.space > 1;
  NormLines l = given;
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
    if (by_span) map_span(x, dy, n, Map(l, c, [](const float* from) { return floats(*from); }), out);
    else map_columns<Map>(x, dy, n, l, begin, out);
  };
  T* out = static_cast<T*>(p.out);
  if (!non_temporal) {
    for (int64_t row = 0; row < p.rows; ++row)
      for (int64_t c = 0; c < lines; ++c) line(row, c, 0, length, out + row * p.out_step.row + c * p.out_step.column);
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

MINIDNN_HD void join_moments_at(int64_t channels, const float* results, int64_t columns, int64_t step, double weight,
                                double between, double* __restrict mean, double* __restrict squares) {
  for (int64_t i = 0; i < channels; ++i) {
    const float* of = results + i * step;
    const double difference = double(of[0]) + double(of[columns]) - mean[i];
    mean[i] += difference * weight;
    squares[i] += double(of[2 * columns]) + difference * difference * between;
  }
}
void join_moments(int64_t channels, const float* results, int64_t columns, int64_t step, double n, double joined,
                  double* mean, double* squares) {
  const double weight = n / (joined + n), between = joined * weight;
  if (step == 1) join_moments_at(channels, results, columns, 1, weight, between, mean, squares);
  else join_moments_at(channels, results, columns, step, weight, between, mean, squares);
}
MINIDNN_HD void join_gradients_at(int64_t channels, const float* results, int64_t columns, int64_t step,
                                  double* __restrict dy, double* __restrict product) {
  for (int64_t i = 0; i < channels; ++i) {
    dy[i] += double(results[i * step]);
    product[i] += double(results[columns + i * step]);
  }
}
void join_gradients(int64_t channels, const float* results, int64_t columns, int64_t step, double* dy,
                    double* product) {
  if (step == 1) join_gradients_at(channels, results, columns, 1, dy, product);
  else join_gradients_at(channels, results, columns, step, dy, product);
}

void inverse_std(int64_t n, const float* var, float eps, float* inv_std) {
  for (int64_t i = 0; i < n; ++i) inv_std[i] = 1 / __builtin_sqrtf(var[i] + eps);
}

template <class T> constexpr ChannelNormKernels::Typed typed() {
  return {moments<T>,
          sum_block<Gradients, T>,
          {{map_block<Forward<false, false>, T>, map_block<Forward<false, true>, T>},
           {map_block<Forward<true, false>, T>, map_block<Forward<true, true>, T>}},
          map_block<Backward, T>,
          map_block<Blend, T>,
          {map_block<Gate<false>, T>, map_block<Gate<true>, T>}};
}

}  // namespace

extern const ChannelNormKernels channel_norm_kernels;
const ChannelNormKernels channel_norm_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>(),
                                                 join_moments,   join_gradients,    inverse_std};

}  // namespace minidnn::MINIDNN_ISA
