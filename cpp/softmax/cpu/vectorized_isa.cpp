// SPDX-License-Identifier: Apache-2.0
// Softmax per instruction set. Like those of softmax_math.h, sums are compensated: a few terms are added plainly, and
// their sum is added to a compensated sum.
#include "cpp/simd/convert.h"
#include "cpp/simd/transpose.h"
#include "cpp/softmax/cpu/vectorized_kernel.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Vector<float>;
static_assert(kWholeColumns % kStep == 0);

// dy - exp(y) sum, or 0 where y is -inf.
inline __attribute__((always_inline)) float log_gradient(float y, float dy, float sum) {
  const float gradient = dy - maths::exp(y) * sum;
  return y == -INFINITY ? 0 : gradient;
}
inline __attribute__((always_inline)) V log_gradient(V y, V dy, float sum) {
  const V gradient = dy - elementary::exp(y) * sum;
  return y == -INFINITY ? V{} : gradient;
}

// ---- rows: lanes run along the row

constexpr int kTree = 4;  // vectors added in pairs before they join the sum

struct Sum {
  V sum{}, compensation{};  // CompensatedSum per lane
  inline __attribute__((always_inline)) void add(V v) {
    v += compensation;
    V next = sum + v, took = next - sum, error = (sum - (next - took)) + (v - took);
    compensation = error == error ? error : V{};
    sum = next;
  }
  inline __attribute__((always_inline)) void add(const Sum& other) {
    compensation += other.compensation;
    add(other.sum);
  }
};

inline __attribute__((always_inline)) float total(const Sum& s) {
  return reduce_lanes(s.sum + s.compensation, [](V a, V b) __attribute__((always_inline)) { return a + b; });
}

// Adds f(i), for vectors at i = 0, kLanes ... below n, a multiple of kStep.
template <class F> inline __attribute__((always_inline)) void add_all(Sum& sum, int64_t n, F f) {
  constexpr int64_t kLane = kLanes<float>;
  int64_t i = 0;
  for (; i + kTree * kLane <= n; i += kTree * kLane)
    sum.add((f(i) + f(i + kLane)) + (f(i + 2 * kLane) + f(i + 3 * kLane)));
  for (; i < n; i += kLane) sum.add(f(i));
}

// May skip a NaN: it reappears in the sum.
float largest_of(const float* x, int64_t n, float scale, float so_far) {
  constexpr int64_t kLane = kLanes<float>;
  V most[kTree];
  for (V& m : most) m = V{} + so_far;
  int64_t i = 0;
  for (; i + kTree * kLane <= n; i += kTree * kLane)
#pragma GCC unroll 4
    for (int k = 0; k < kTree; ++k) {
      V v = load(x + i + k * kLane) * scale;
      most[k] = most[k] > v ? most[k] : v;
    }
  for (; i < n; i += kLane) {
    V v = load(x + i) * scale;
    most[0] = most[0] > v ? most[0] : v;
  }
  for (int k = 1; k < kTree; ++k) most[0] = most[0] > most[k] ? most[0] : most[k];
  return reduce_lanes(most[0], [](V a, V b) __attribute__((always_inline)) { return a > b ? a : b; });
}

void exponentials(const float* x, float* e, int64_t n, float scale, float largest) {
  n &= -kStep;
#pragma GCC ivdep  // e is either x or does not overlap it
  for (int64_t i = 0; i < n; ++i) e[i] = maths::exp_of_negative(x[i] * scale - largest);
}
void multiply(const float* e, float* y, int64_t n, float factor) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = e[i] * factor;
}
void shift(const float* x, float* y, int64_t n, float scale, float largest, float log_sum) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * scale - largest) - log_sum;
}
// `masked`: `room` already holds the row, in memory order, filled up with -inf at its end.
template <Order order, class T>
void forward_row(const T* x, T* y, const SoftmaxCut& cut, float scale, float* room, bool masked = false) {
  const int64_t cols = cut.cols;
  const bool kept =
      cut.room_floats > kRun;  // whether `room` holds the row as floats (a float32 row: at first only its end)
  const bool copied = masked || (kept && sizeof(T) != 4);
  // The fill value of the last span: it becomes -inf when it is scaled. With scale 0, no value does; then the fill is
  // 0, and each lane beyond the row adds 1 to the sum.
  const float beyond = scale > 0 ? -INFINITY : scale < 0 ? INFINITY : 0;
  const float ones = scale == 0 ? float(whole_steps(cols) - cols) : 0;
  auto read = [&](int64_t i, int64_t run) -> const float* {
    return masked ? room + i : read_run<order>(x + i, kept ? room + i : room, run, beyond);
  };
  float largest = -INFINITY;
  for (int64_t i = 0; i < cols; i += kRun) {
    int64_t run = min_of(kRun, cols - i);
    largest = largest_of(read(i, run), whole_steps(run), scale, largest);
  }
  Sum sum;
  for (int64_t i = 0; i < cols; i += kRun) {
    int64_t run = min_of(kRun, cols - i), whole = whole_steps(run);
    alignas(64) float here[kRun];
    float* e = kept && !cut.log ? room + i : here;
    exponentials(copied ? room + i : read(i, run), e, whole, scale, largest);
    add_all(sum, whole, [&](int64_t at) __attribute__((always_inline)) { return load(e + at); });
  }
  const float sum_of_row = total(sum) - ones;
  if (cut.log) {
    const float log_sum = maths::log(sum_of_row);
    write_all<order>(y, cols, cut.non_temporal, [&](int64_t i, int64_t run, float* out) {
      shift(copied ? room + i : read(i, run), out, whole_steps(run), scale, largest, log_sum);
    });
  } else {
    const float factor = 1.0f / sum_of_row;
    write_all<order>(y, cols, cut.non_temporal, [&](int64_t i, int64_t run, float* out) {
      const int64_t whole = whole_steps(run);
      if (!kept) exponentials(read(i, run), out, whole, scale, largest);
      multiply(kept ? room + i : out, out, whole, factor);
    });
  }
}

// Computes a row times `scale`, with its mask, as floats in memory order.
template <class T>
void mask_row(const T* x, const void* mask, int64_t at, const SoftmaxCut& cut, float scale, float* room) {
  for (int64_t i = 0; i < cut.cols; i += kRun) {
    const int64_t run = min_of(kRun, cut.cols - i), whole = whole_steps(run);
    alignas(64) float values[kRun], added[kRun];
    const float* v = read_run<Order::memory>(x + i, values, run, -INFINITY);
    float* const to = room + i;
    if (cut.masked == SoftmaxMask::add) {
      const float* add = read_run<Order::memory>(static_cast<const T*>(mask) + at + i, added, run);
      for (int64_t j = 0; j < run; ++j) to[j] = v[j] * scale + add[j];
    } else {
      const uint8_t* keep = static_cast<const uint8_t*>(mask) + at + i;
      for (int64_t j = 0; j < run; ++j) to[j] = keep[j] ? v[j] * scale : -INFINITY;
    }
    for (int64_t j = run; j < whole; ++j) to[j] = -INFINITY;
  }
}

// Two adjacent vectors of elements, in any order.
struct Pair {
  V first, second;
};
inline __attribute__((always_inline)) Pair load_pair(const float* from) {
  return {load(from), load(from + kLanes<float>)};
}
inline __attribute__((always_inline)) Pair load_pair(const bfloat16* from) {
  Vector<uint32_t> both;
  __builtin_memcpy(&both, from, sizeof both);
  return {V(both << 16), V(both & 0xffff0000)};
}

// Adds dy (log) or dy y to the sum; n is a whole number of steps.
template <class T> void add_terms(Sum& sum, const T* y, const T* dy, int64_t n, bool log) {
  constexpr int64_t kPair = 2 * kLanes<float>;
  auto term = [&](int64_t i) __attribute__((always_inline)) {
    Pair g = load_pair(dy + i);
    if (log) return g.first + g.second;
    Pair p = load_pair(y + i);
    return g.first * p.first + g.second * p.second;
  };
  int64_t i = 0;
  if (constexpr int64_t kStride = 8 * kPair; n >= kStride) {  // four sums: each addition waits for the previous one
    Sum sums[4]{sum};
    for (; i + kStride <= n; i += kStride)
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[k].add(term(i + 2 * k * kPair) + term(i + (2 * k + 1) * kPair));
    sums[0].add(sums[1]);
    sums[2].add(sums[3]);
    sums[0].add(sums[2]);
    sum = sums[0];
  }
  for (; i + 2 * kPair <= n; i += 2 * kPair) sum.add(term(i) + term(i + kPair));
  for (; i < n; i += kPair) sum.add(term(i));
}
template <> [[maybe_unused]] void add_terms(Sum& sum, const float16* y, const float16* dy, int64_t n, bool log) {
  alignas(64) float ys[kRun], dys[kRun];
  for (int64_t i = 0, run; i < n; i += run) {
    run = min_of(kRun, n - i);
    widen<Order::lanes>(y + i, ys, run);
    widen<Order::lanes>(dy + i, dys, run);
    add_terms<float>(sum, ys, dys, run, log);
  }
}

template <class T> void backward_row(const T* y, const T* dy, T* dx, const SoftmaxCut& cut, float scale) {
  const int64_t cols = cut.cols, whole = cols & -kStep;
  Sum sum;
  add_terms(sum, y, dy, whole, cut.log);
  if (whole < cols) {
    T ys[kStep] = {}, dys[kStep] = {};
    __builtin_memcpy(ys, y + whole, size_t(cols - whole) * sizeof(T));
    __builtin_memcpy(dys, dy + whole, size_t(cols - whole) * sizeof(T));
    add_terms(sum, ys, dys, kStep, cut.log);
  }
  const float all = total(sum);
  if (cut.log)
    map_all(y, dy, dx, cols, cut.non_temporal, [=](const T* y, const T* dy, T* dx, int64_t n) {
      each(y, dy, dx, n,
           [=](float y, float dy) __attribute__((always_inline)) { return log_gradient(y, dy, all) * scale; });
    });
  else
    map_all(y, dy, dx, cols, cut.non_temporal, [=](const T* y, const T* dy, T* dx, int64_t n) {
      each(y, dy, dx, n, [=](float y, float dy) __attribute__((always_inline)) { return y * (dy - all) * scale; });
    });
}

// ---- short rows, a group at a time: entering the loops above costs more than the rows themselves

constexpr int64_t kMostFew = 128;  // columns

template <class T> constexpr bool kTakesFew = true;
template <> constexpr bool kTakesFew<float16> = false;

constexpr int64_t kLane = kLanes<float>;
typedef Vector<uint32_t> Words;
typedef uint16_t Shorts __attribute__((vector_size(kVectorBytes / 2)));

inline __attribute__((always_inline)) Words nearest_bfloat16s_of(V v) {  // bfloat16s in the upper halves
  const Words u = Words(v), nearest = u + 0x7fff + (u >> 16 & 1);
  return v != v ? u | 0x400000 : nearest;
}
// load_row() loads a row as vectors, in any order; the last vector includes elements behind the row. store_row() stores
// a row likewise.
inline __attribute__((always_inline)) void load_row(const float* from, V* to, int64_t cols) {
  for (int64_t i = 0; i < cols; i += kLane) to[i / kLane] = load(from + i);
}
inline __attribute__((always_inline)) void store_row(float* to, const V* from, int64_t cols) {
  for (int64_t i = 0; i < cols; i += kLane) store(to + i, from[i / kLane]);
}
inline __attribute__((always_inline)) void load_row(const bfloat16* from, V* to, int64_t cols) {
  int64_t i = 0;
  for (; i + 2 * kLane <= cols; i += 2 * kLane) {
    Pair p = load_pair(from + i);
    to[i / kLane] = p.first, to[i / kLane + 1] = p.second;
  }
  for (; i < cols; i += kLane) {
    Shorts s;
    __builtin_memcpy(&s, from + i, sizeof s);
    to[i / kLane] = V(__builtin_convertvector(s, Words) << 16);
  }
}
inline __attribute__((always_inline)) void store_row(bfloat16* to, const V* from, int64_t cols) {
  int64_t i = 0;
  for (; i + 2 * kLane <= cols; i += 2 * kLane) {
    const Words both =
        nearest_bfloat16s_of(from[i / kLane]) >> 16 | (nearest_bfloat16s_of(from[i / kLane + 1]) & 0xffff0000);
    __builtin_memcpy(to + i, &both, sizeof both);
  }
  for (; i < cols; i += kLane) {
    const Shorts s = __builtin_convertvector(nearest_bfloat16s_of(from[i / kLane]) >> 16, Shorts);
    __builtin_memcpy(to + i, &s, sizeof s);
  }
}

constexpr int64_t kGroup = 16;  // rows whose sums are inverted, or whose logarithms are computed, together

// Contiguous rows. Elements behind them may be read, up to `end`.
template <class T> struct Rows {
  const T *first, *end;
  int64_t cols;
  T copy[kGroup * kMostFew + kLane];

  const T* group(int64_t row, int64_t count) {
    const T* at = first + row * cols;
    if (cols % kLane == 0 || end - at >= count * cols + kLane) return at;
    __builtin_memcpy(copy, at, size_t(count * cols) * sizeof(T));
    return copy;
  }
};
// Calls f(first row, rows, buffer for their results) for each group. f writes whole vectors to the buffer.
template <class T, class F>
inline __attribute__((always_inline)) void each_group(T* out, int64_t rows, int64_t cols, bool non_temporal, F f) {
  alignas(64) T stage[kGroup * kMostFew + kLane];
  const bool straight = !non_temporal && cols % kLane == 0;
  for (int64_t row = 0; row < rows; row += kGroup) {
    const int64_t count = min_of(kGroup, rows - row);
    f(row, count, straight ? out + row * cols : stage);
    if (!straight) copy_run(stage, out + row * cols, count * cols, non_temporal);
  }
}
// The last vector of a row, with `beyond` in the lanes behind the row's end.
inline __attribute__((always_inline)) V row_end(V v, int64_t cols, float beyond) {
  Vector<int32_t> lane;
  for (int i = 0; i < kLane; ++i) lane[i] = i;
  const int32_t n = int32_t(cols - (cols - 1) / kLane * kLane);
  return lane < n ? v : V{} + beyond;
}

template <class T> void forward_few(Rows<T>& x, T* y, int64_t rows, bool log, float scale, bool non_temporal) {
  const int64_t cols = x.cols, vectors = ceil_div(cols, kLane);
  each_group(y, rows, cols, non_temporal, [&](int64_t row, int64_t count, T* to) __attribute__((always_inline)) {
    V values[kGroup * kMostFew / kLane];
    float amount[kGroup];
    for (float& a : amount) a = 1;
    const T* from = x.group(row, count);
    for (int64_t r = 0; r < count; ++r) {
      V* const v = values + r * vectors;
      load_row(from + r * cols, v, cols);
      for (int64_t i = 0; i < vectors; ++i) v[i] *= scale;
      if (cols % kLane) v[vectors - 1] = row_end(v[vectors - 1], cols, -INFINITY);
      V most = v[0], sum{};
      for (int64_t i = 1; i < vectors; ++i) most = most > v[i] ? most : v[i];  // a NaN reappears in the sum
      most = V{} + reduce_lanes(most, [](V a, V b) __attribute__((always_inline)) { return a > b ? a : b; });
      for (int64_t i = 0; i < vectors; ++i) {
        v[i] -= most;
        const V e = elementary::exp_of_negative(v[i]);
        sum += e;
        if (!log) v[i] = e;
      }
      amount[r] = reduce_lanes(sum, [](V a, V b) __attribute__((always_inline)) { return a + b; });
    }
    if (log)
      for (float& a : amount) a = maths::log(a);
    else
      for (float& a : amount) a = 1.0f / a;
    for (int64_t r = 0; r < count; ++r) {
      V* const v = values + r * vectors;
      for (int64_t i = 0; i < vectors; ++i) v[i] = log ? v[i] - amount[r] : v[i] * amount[r];
      store_row(to + r * cols, v, cols);
    }
  });
}
template <class T> void backward_few(Rows<T>& y, Rows<T>& dy, T* dx, int64_t rows, bool log, float scale,
                                     bool non_temporal) {
  const int64_t cols = y.cols, vectors = ceil_div(cols, kLane);
  each_group(dx, rows, cols, non_temporal, [&](int64_t row, int64_t count, T* to) __attribute__((always_inline)) {
    const T *values = y.group(row, count), *gradients = dy.group(row, count);
    for (int64_t r = 0; r < count; ++r) {
      V p[kMostFew / kLane], g[kMostFew / kLane], sum{};
      load_row(values + r * cols, p, cols);
      load_row(gradients + r * cols, g, cols);
      if (cols % kLane) {
        p[vectors - 1] = row_end(p[vectors - 1], cols, 0);
        g[vectors - 1] = row_end(g[vectors - 1], cols, 0);
      }
      if (log)
        for (int64_t i = 0; i < vectors; ++i) sum += g[i];
      else
        for (int64_t i = 0; i < vectors; ++i) sum += g[i] * p[i];
      const float all = reduce_lanes(sum, [](V a, V b) __attribute__((always_inline)) { return a + b; });
      if (log)
        for (int64_t i = 0; i < vectors; ++i) g[i] = log_gradient(p[i], g[i], all) * scale;
      else
        for (int64_t i = 0; i < vectors; ++i) g[i] = p[i] * (g[i] - all) * scale;
      store_row(to + r * cols, g, cols);
    }
  });
}

// ---- strips: lanes run across adjacent rows, n columns of them, a whole number of steps

constexpr int kPlain = 8;  // rows added plainly before they join the compensated sums

// One number per column. Where T is bfloat16, the numbers of even columns precede those of odd ones: a word holds two
// columns.
struct Across {
  alignas(64) float at[kRun];
};

// number[j] = f(number[j], a[j], b[j])
template <class F>
inline __attribute__((always_inline)) void fold(float* number, const float* a, const float* b, int64_t n, F f) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) number[j] = f(number[j], a[j], b[j]);
}
template <class F>
inline __attribute__((always_inline)) void fold(float* number, const bfloat16* a, const bfloat16* b, int64_t n, F f) {
  auto as = reinterpret_cast<const Two*>(a), bs = reinterpret_cast<const Two*>(b);
  const int64_t half = (n & -kStep) / 2;
  float* odd = number + half;
#pragma GCC ivdep
  for (int64_t j = 0; j < half; ++j) {
    const uint32_t x = as[j], y = bs[j];
    number[j] = f(number[j], detail::float_of(x << 16), detail::float_of(y << 16));
    odd[j] = f(odd[j], detail::float_of(x & 0xffff0000), detail::float_of(y & 0xffff0000));
  }
}
template <class F>
inline __attribute__((always_inline)) void fold(float* number, const float16* a, const float16* b, int64_t n, F f) {
  Across as, bs;
  widen<Order::memory>(a, as.at, n);
  if (b != a) widen<Order::memory>(b, bs.at, n);
  fold(number, as.at, b != a ? bs.at : as.at, n, f);
}
// out[j] = f(a[j], b[j], number[j], other[j])
template <class F>
inline __attribute__((always_inline)) void each_column(const float* a, const float* b, const float* number,
                                                       const float* other, float* out, int64_t n, F f) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) out[j] = f(a[j], b[j], number[j], other[j]);
}
template <class F>
inline __attribute__((always_inline)) void each_column(const bfloat16* a, const bfloat16* b, const float* number,
                                                       const float* other, bfloat16* out, int64_t n, F f) {
  auto as = reinterpret_cast<const Two*>(a), bs = reinterpret_cast<const Two*>(b);
  auto outs = reinterpret_cast<Two*>(out);
  const int64_t half = (n & -kStep) / 2;
#pragma GCC ivdep
  for (int64_t j = 0; j < half; ++j) {
    const uint32_t x = as[j], y = bs[j];
    const float even = f(detail::float_of(x << 16), detail::float_of(y << 16), number[j], other[j]);
    const float odd =
        f(detail::float_of(x & 0xffff0000), detail::float_of(y & 0xffff0000), number[half + j], other[half + j]);
    outs[j] = nearest_bfloat16(even) >> 16 | (nearest_bfloat16(odd) & 0xffff0000);
  }
}
template <class F>
inline __attribute__((always_inline)) void each_column(const float16* a, const float16* b, const float* number,
                                                       const float* other, float16* out, int64_t n, F f) {
  Across as, bs;
  widen<Order::memory>(a, as.at, n);
  if (b != a) widen<Order::memory>(b, bs.at, n);
  each_column(as.at, b != a ? bs.at : as.at, number, other, as.at, n, f);
  narrow<Order::memory>(as.at, out, n);
}
// out[j] = e[j] number[j]; e has the order of the numbers
void scale_columns(const float* e, const float* number, float* out, int64_t n) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) out[j] = e[j] * number[j];
}
void scale_columns(const float* e, const float* number, bfloat16* out, int64_t n) {
  auto outs = reinterpret_cast<Two*>(out);
  const int64_t half = (n & -kStep) / 2;
  for (int64_t j = 0; j < half; ++j)
    outs[j] =
        nearest_bfloat16(e[j] * number[j]) >> 16 | (nearest_bfloat16(e[half + j] * number[half + j]) & 0xffff0000);
}
void scale_columns(const float* e, const float* number, float16* out, int64_t n) {
  Across products;
  scale_columns(e, number, products.at, n);
  narrow<Order::memory>(products.at, out, n);
}

// e[j] = exp(x[j] - largest[j]), in the order of the numbers; adds them to sum[j].
void add_exponentials(const float* x, float scale, const float* largest, float* e, float* sum, int64_t n) {
  n &= -kStep;
#pragma GCC ivdep  // e is either x or does not overlap it
  for (int64_t j = 0; j < n; ++j) sum[j] += e[j] = maths::exp_of_negative(x[j] * scale - largest[j]);
}
void add_exponentials(const bfloat16* x, float scale, const float* largest, float* e, float* sum, int64_t n) {
  auto xs = reinterpret_cast<const Two*>(x);
  const int64_t half = (n & -kStep) / 2;
  for (int64_t j = 0; j < half; ++j) {
    e[j] = detail::float_of(xs[j] << 16);
    e[half + j] = detail::float_of(xs[j] & 0xffff0000);
  }
  add_exponentials(e, scale, largest, e, sum, n);
}
void add_exponentials(const float16* x, float scale, const float* largest, float* e, float* sum, int64_t n) {
  widen<Order::memory>(x, e, n);
  add_exponentials(e, scale, largest, e, sum, n);
}
void add_compensated(float* few, float* sum, float* compensation, int64_t n) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) {
    CompensatedSum<float> s{sum[j], compensation[j]};
    s.add(few[j]);
    sum[j] = s.sum, compensation[j] = s.compensation, few[j] = 0;
  }
}
// Computes compensated sums over the rows: add(c, few) must add row c to `few`.
template <class Add>
inline __attribute__((always_inline)) void sum_rows(int64_t cols, int64_t n, Across& sum, Add add) {
  Across few, compensation;
  __builtin_memset(&few, 0, sizeof few);
  __builtin_memset(&compensation, 0, sizeof compensation);
  __builtin_memset(&sum, 0, sizeof sum);
  for (int64_t c = 0; c < cols; ++c) {
    add(c, few.at);
    if (c % kPlain == kPlain - 1 || c == cols - 1) add_compensated(few.at, sum.at, compensation.at, n);
  }
  for (int64_t j = 0; j < n; ++j) sum.at[j] += compensation.at[j];
}

// The rows of a strip of `width` columns, `pitch` elements apart, read in whole steps. Elements behind a row may be
// read too, up to `end`, as long as no thread writes them.
template <class T> struct Strip {
  const T* first;
  int64_t pitch, width;
  const T* end;
  T copy[kRun] = {};

  const T* row(int64_t c) {
    const T* at = first + c * pitch;
    if (width % kStep == 0 || end - at >= whole_steps(width)) return at;
    __builtin_memcpy(copy, at, size_t(width) * sizeof(T));
    return copy;
  }
};
// Calls make(buffer for a row's result), which writes whole steps; only `width` elements of them reach `to`.
template <class T, class Make>
inline __attribute__((always_inline)) void write_row(T* to, int64_t width, bool non_temporal, Make make) {
  if (width % kStep == 0 && !non_temporal) return make(to);
  alignas(64) T results[kRun];
  make(results);
  copy_run(results, to, width, non_temporal);
}

// `room` holds the exponentials.
template <class T>
void forward_strip(Strip<T>& x, T* y, int64_t cols, bool log, float scale, bool non_temporal, float* room) {
  const int64_t n = whole_steps(x.width);
  Across largest, sum;
  for (float& v : largest.at) v = -INFINITY;
  auto larger = [scale](float so_far, float x, float) __attribute__((always_inline)) {
    return so_far > x * scale ? so_far : x * scale;  // a NaN reappears in the sum
  };
  for (int64_t c = 0; c < cols; ++c) fold(largest.at, x.row(c), x.row(c), n, larger);
  sum_rows(cols, n, sum, [&](int64_t c, float* few) {
    Across unused;
    float* e = log ? unused.at : room + c * n;
    add_exponentials(x.row(c), scale, largest.at, e, few, n);
  });
  if (log)
    for (int64_t j = 0; j < n; ++j) sum.at[j] = maths::log(sum.at[j]);
  else
    for (int64_t j = 0; j < n; ++j) sum.at[j] = 1.0f / sum.at[j];
  for (int64_t c = 0; c < cols; ++c)
    write_row(y + c * x.pitch, x.width, non_temporal, [&](T* to) {
      if (log)
        each_column(x.row(c), x.row(c), largest.at, sum.at, to, n,
                    [scale](float x, float, float most, float log_sum)
                        __attribute__((always_inline)) { return (x * scale - most) - log_sum; });
      else scale_columns(room + c * n, sum.at, to, n);
    });
}
template <class T>
void backward_strip(Strip<T>& y, Strip<T>& dy, T* dx, int64_t cols, bool log, float scale, bool non_temporal) {
  const int64_t n = whole_steps(y.width);
  Across sum;
  sum_rows(cols, n, sum, [&](int64_t c, float* few) {
    if (log)
      fold(few, dy.row(c), dy.row(c), n,
           [](float sum, float dy, float) __attribute__((always_inline)) { return sum + dy; });
    else
      fold(few, y.row(c), dy.row(c), n,
           [](float sum, float y, float dy) __attribute__((always_inline)) { return sum + y * dy; });
  });
  for (int64_t c = 0; c < cols; ++c)
    write_row(dx + c * y.pitch, y.width, non_temporal, [&](T* to) {
      if (log)
        each_column(y.row(c), dy.row(c), sum.at, sum.at, to, n,
                    [scale](float y, float dy, float sum, float)
                        __attribute__((always_inline)) { return log_gradient(y, dy, sum) * scale; });
      else
        each_column(y.row(c), dy.row(c), sum.at, sum.at, to, n,
                    [scale](float y, float dy, float sum, float)
                        __attribute__((always_inline)) { return y * (dy - sum) * scale; });
    });
}

// ---- blocks: rows too short for lanes, or with too few adjacent ones, are transposed into strips and back

// What one block holds: `outers` outer indices, whose elements are contiguous.
struct Block {
  int64_t cols, inner, outers;
  int64_t width() const { return outers * inner; }
  int64_t elements() const { return cols * width(); }
};

bool is_few(const Block& b) { return b.inner == 1 && b.cols <= kMostFew; }

template <class F> inline __attribute__((always_inline)) void each_of_block(const Block& b, int64_t pitch, F f) {
  int64_t i = 0;
  for (int64_t column = 0; column < b.width(); column += b.inner)
    for (int64_t c = 0; c < b.cols; ++c)
      for (int64_t j = 0; j < b.inner; ++j) f(i++, c * pitch + column + j);
}
template <class T> void read_block(const T* from, const Block& b, int64_t pitch, float* strip, float* stage) {
  const int64_t n = b.elements();
  const float* x = stage;
  if constexpr (sizeof(T) == 4) x = from;
  else
    for (int64_t i = 0; i < n; i += kRun) read_run<Order::memory>(from + i, stage + i, min_of(kRun, n - i));
  if (b.inner == 1) transpose_tile(x, b.cols, strip, pitch, b.width(), b.cols);
  else each_of_block(b, pitch, [&](int64_t i, int64_t at) __attribute__((always_inline)) { strip[at] = x[i]; });
}
template <class T>
void write_block(const float* strip, T* to, const Block& b, int64_t pitch, float* stage, bool non_temporal) {
  const int64_t n = b.elements();
  if (b.inner == 1) transpose_tile(strip, pitch, stage, b.cols, b.cols, b.width());
  else each_of_block(b, pitch, [&](int64_t i, int64_t at) __attribute__((always_inline)) { stage[i] = strip[at]; });
  for (int64_t i = 0; i < n; i += kRun) write_run<Order::memory>(stage + i, to + i, min_of(kRun, n - i), non_temporal);
}

// ---- the items of a problem

// Calls strip(first element, columns) or block(first element, Block) for an item.
template <class Strip, class OfBlock>
inline __attribute__((always_inline)) void find_item(const SoftmaxCut& cut, int64_t item, Strip strip, OfBlock block) {
  if (cut.kind == SoftmaxCut::strips) {
    int64_t strips = ceil_div(cut.inner, cut.width), column = item % strips * cut.width;
    strip(item / strips * cut.cols * cut.inner + column, min_of(cut.width, cut.inner - column));
  } else {
    int64_t outers = cut.width / cut.inner, first = item * outers;
    block(first * cut.cols * cut.inner, Block{cut.cols, cut.inner, min_of(outers, cut.outer - first)});
  }
}

// The end of the readable part of a tensor: in place, elements that another thread writes at the same time must not be
// read.
template <class T> const T* end_of(const SoftmaxCut& cut, const T* tensor, bool in_place) {
  return in_place ? tensor : tensor + cut.outer * cut.cols * cut.inner;
}

template <class T>
void forward(const SoftmaxCut& cut, const SoftmaxArgs& a, float* room, int64_t begin, int64_t end) {
  const float scale = float(a.scale);
  auto x = static_cast<const T*>(a.in);
  auto y = static_cast<T*>(a.out);
  const int64_t pitch = whole_steps(cut.width), floats = cut.cols * pitch;
  for (int64_t i = begin; i < end; ++i)
    if (cut.masked != SoftmaxMask::none) {
      mask_row(x + i * cut.cols, a.mask, cut.mask.offset_of(i), cut, scale, room);
      forward_row<Order::memory>(x + i * cut.cols, y + i * cut.cols, cut, 1, room, true);
    } else if (cut.kind == SoftmaxCut::rows) {
      forward_row<Order::lanes>(x + i * cut.cols, y + i * cut.cols, cut, scale, room);
    } else {
      find_item(
          cut, i,
          [&](int64_t at, int64_t width) {
            Strip<T> strip{x + at, cut.inner, width, end_of(cut, x, x == y)};
            forward_strip(strip, y + at, cut.cols, cut.log, scale, cut.non_temporal, room);
          },
          [&](int64_t at, const Block& b) {
            if constexpr (kTakesFew<T>)
              if (is_few(b)) {
                Rows<T> rows{x + at, end_of(cut, x, x == y), b.cols};
                return forward_few(rows, y + at, b.outers, cut.log, scale, cut.non_temporal);
              }
            float *strip = room + floats, *stage = strip + floats + kStep;
            read_block(x + at, b, pitch, strip, stage);
            Strip<float> block{strip, pitch, pitch, nullptr};
            forward_strip(block, strip, cut.cols, cut.log, scale, false, room);
            write_block(strip, y + at, b, pitch, stage, cut.non_temporal);
          });
    }
  if (cut.non_temporal) store_fence();
}

template <class T>
void backward(const SoftmaxCut& cut, const SoftmaxArgs& a, float* room, int64_t begin, int64_t end) {
  const float scale = float(a.scale);
  auto y = static_cast<const T*>(a.in), dy = static_cast<const T*>(a.dy);
  auto dx = static_cast<T*>(a.out);
  const int64_t pitch = whole_steps(cut.width), floats = cut.cols * pitch;
  for (int64_t i = begin; i < end; ++i)
    if (cut.kind == SoftmaxCut::rows) backward_row(y + i * cut.cols, dy + i * cut.cols, dx + i * cut.cols, cut, scale);
    else
      find_item(
          cut, i,
          [&](int64_t at, int64_t width) {
            Strip<T> values{y + at, cut.inner, width, end_of(cut, y, y == dx)};
            Strip<T> gradients{dy + at, cut.inner, width, end_of(cut, dy, dy == dx)};
            backward_strip(values, gradients, dx + at, cut.cols, cut.log, scale, cut.non_temporal);
          },
          [&](int64_t at, const Block& b) {
            if constexpr (kTakesFew<T>)
              if (is_few(b)) {
                Rows<T> values{y + at, end_of(cut, y, y == dx), b.cols};
                Rows<T> gradients{dy + at, end_of(cut, dy, dy == dx), b.cols};
                return backward_few(values, gradients, dx + at, b.outers, cut.log, scale, cut.non_temporal);
              }
            float *strip = room, *gradients = strip + floats + kStep, *stage = gradients + floats + kStep;
            read_block(y + at, b, pitch, strip, stage);
            read_block(dy + at, b, pitch, gradients, stage);
            Strip<float> values{strip, pitch, pitch, nullptr}, dys{gradients, pitch, pitch, nullptr};
            backward_strip(values, dys, strip, cut.cols, cut.log, scale, false);
            write_block(strip, dx + at, b, pitch, stage, cut.non_temporal);
          });
  if (cut.non_temporal) store_fence();
}

}  // namespace

extern const SoftmaxKernels softmax_kernels;
const SoftmaxKernels softmax_kernels = {{forward<float>, nullptr, forward<float16>, forward<bfloat16>},
                                        {backward<float>, nullptr, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
