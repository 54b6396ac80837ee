// SPDX-License-Identifier: Apache-2.0
// Sums keep their rounding errors, as softmax_math.h's do: a few terms are added plainly, what they make carefully.
#include "cpp/cpu/runs.h"
#include "cpp/softmax/softmax_kernels.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Vector<float>;

// ---- rows: lanes run along the row

constexpr int kTree = 4;  // vectors added in pairs before the sum takes them

struct Sum {
  V sum{}, lost{};  // CarefulSum, lane by lane
  inline __attribute__((always_inline)) void add(V v) {
    v += lost;
    V next = sum + v, took = next - sum, error = (sum - (next - took)) + (v - took);
    lost = error == error ? error : V{};
    sum = next;
  }
};

template <class Op> inline __attribute__((always_inline)) float across(V v, Op op) {
  float lanes[kLanes<float>];
  store(lanes, v);
#pragma GCC unroll 4
  for (int half = kLanes<float> / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) lanes[i] = op(lanes[i], lanes[i + half]);
  return lanes[0];
}
float total(const Sum& s) {
  auto plus = [](float a, float b) { return a + b; };
  return across(s.sum, plus) + across(s.lost, plus);
}

// Adds f(i), for vectors at i = 0, kLanes ... below n, a multiple of kStep.
template <class F> inline __attribute__((always_inline)) void add_all(Sum& sum, int64_t n, F f) {
  constexpr int64_t kLane = kLanes<float>;
  int64_t i = 0;
  for (; i + kTree * kLane <= n; i += kTree * kLane)
    sum.add((f(i) + f(i + kLane)) + (f(i + 2 * kLane) + f(i + 3 * kLane)));
  for (; i < n; i += kLane) sum.add(f(i));
}

// A NaN may be passed over here: it comes back in the sum.
float largest_of(const float* x, int64_t n, float so_far) {
  constexpr int64_t kLane = kLanes<float>;
  V most[kTree];
  for (V& m : most) m = V{} + so_far;
  int64_t i = 0;
  for (; i + kTree * kLane <= n; i += kTree * kLane)
#pragma GCC unroll 4
    for (int k = 0; k < kTree; ++k) {
      V v = load(x + i + k * kLane);
      most[k] = most[k] > v ? most[k] : v;
    }
  for (; i < n; i += kLane) {
    V v = load(x + i);
    most[0] = most[0] > v ? most[0] : v;
  }
  for (int k = 1; k < kTree; ++k) most[0] = most[0] > most[k] ? most[0] : most[k];
  return across(most[0], [](float a, float b) { return a > b ? a : b; });
}

void exponentials(const float* x, float* e, int64_t n, float largest) {
  n &= -kStep;
#pragma GCC ivdep  // e is x or apart from it
  for (int64_t i = 0; i < n; ++i) e[i] = maths::exp_of_negative(x[i] - largest);
}
void scale(const float* e, float* y, int64_t n, float factor) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = e[i] * factor;
}
void shift(const float* x, float* y, int64_t n, float largest, float log_sum) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - largest) - log_sum;
}
// Lanes beyond the row hold zeros: they are to be what adds nothing.
template <class T> const float* read_row(const T* from, float* room, int64_t n, float beyond) {
  const float* x = read_run(from, room, n);
  for (int64_t i = n; i < whole_steps(n); ++i) room[i] = beyond;
  return x;
}

template <class T> void forward_row(const T* x, T* y, const SoftmaxCut& cut, float* room) {
  const int64_t cols = cut.cols;
  const bool kept = cut.room_floats > kRun;  // the row in `room`, as floats
  float largest = -INFINITY;
  for (int64_t i = 0; i < cols; i += kRun) {
    int64_t run = min_of(kRun, cols - i);
    largest = largest_of(read_row(x + i, kept ? room + i : room, run, -INFINITY), whole_steps(run), largest);
  }
  Sum sum;
  for (int64_t i = 0; i < cols; i += kRun) {
    int64_t run = min_of(kRun, cols - i), whole = whole_steps(run);
    alignas(64) float here[kRun];
    // A row of float32 was not copied, but for its end.
    const float* from = !kept                                ? read_row(x + i, room, run, -INFINITY)
                        : sizeof(T) == 4 && run % kStep == 0 ? reinterpret_cast<const float*>(x + i)
                                                             : room + i;
    float* e = kept && !cut.log ? room + i : here;
    exponentials(from, e, whole, largest);
    add_all(sum, whole, [&](int64_t at) __attribute__((always_inline)) { return load(e + at); });
  }
  const float sum_of_row = total(sum), factor = 1.0f / sum_of_row, log_sum = maths::log(sum_of_row);
  alignas(64) float xs[kRun];
  write_all(y, cols, cut.past_caches, [&](int64_t i, int64_t run, float* out) {
    const int64_t whole = whole_steps(run);
    if (cut.log) return shift(read_run(x + i, xs, run), out, whole, largest, log_sum);
    if (kept) return scale(room + i, out, whole, factor);
    exponentials(read_run(x + i, xs, run), out, whole, largest);
    scale(out, out, whole, factor);
  });
}

void gradient(const float* y, const float* dy, float* dx, int64_t n, float sum) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - sum);
}
void log_gradient(const float* y, const float* dy, float* dx, int64_t n, float sum) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - maths::exp(y[i]) * sum;
}

template <class T> void backward_row(const T* y, const T* dy, T* dx, const SoftmaxCut& cut) {
  const int64_t cols = cut.cols;
  alignas(64) float ys[kRun], dys[kRun];
  Sum sum;
  for (int64_t i = 0; i < cols; i += kRun) {
    int64_t run = min_of(kRun, cols - i);
    const float* g = read_run(dy + i, dys, run);
    if (cut.log) {
      add_all(sum, whole_steps(run), [&](int64_t at) __attribute__((always_inline)) { return load(g + at); });
    } else {
      const float* p = read_run(y + i, ys, run);
      add_all(sum, whole_steps(run),
              [&](int64_t at) __attribute__((always_inline)) { return load(g + at) * load(p + at); });
    }
  }
  const float all = total(sum);
  write_all(dx, cols, cut.past_caches, [&](int64_t i, int64_t run, float* out) {
    const float *p = read_run(y + i, ys, run), *g = read_run(dy + i, dys, run);
    (cut.log ? log_gradient : gradient)(p, g, out, whole_steps(run), all);
  });
}

// ---- strips: lanes run across rows that lie beside each other, `width` of them, a whole number of steps

constexpr int kPlain = 8;  // rows added plainly before the sums take them

struct Across {  // a number for each column of a strip
  alignas(64) float at[kRun];
};

void take_largest(const float* x, float* largest, int64_t n) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) largest[j] = max_or_nan(largest[j], x[j]);
}
void exponentials(const float* x, const float* largest, float* e, float* sum, int64_t n) {
  n &= -kStep;
#pragma GCC ivdep  // e is x or apart from it
  for (int64_t j = 0; j < n; ++j) {
    float v = maths::exp_of_negative(x[j] - largest[j]);
    e[j] = v;
    sum[j] += v;
  }
}
void add_products(const float* a, const float* b, float* sum, int64_t n) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) sum[j] += a[j] * b[j];
}
void add_plainly(const float* a, float* sum, int64_t n) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) sum[j] += a[j];
}
void add_carefully(float* few, float* sum, float* lost, int64_t n) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) {
    CarefulSum<float> s{sum[j], lost[j]};
    s.add(few[j]);
    sum[j] = s.sum, lost[j] = s.lost, few[j] = 0;
  }
}
// add(c, few) for each row c adds it to `few`; the sums come out.
template <class Add>
inline __attribute__((always_inline)) void sum_rows(int64_t cols, int64_t n, Across& sum, Add add) {
  Across few, lost;
  __builtin_memset(&few, 0, sizeof few);
  __builtin_memset(&lost, 0, sizeof lost);
  __builtin_memset(&sum, 0, sizeof sum);
  for (int64_t c = 0; c < cols; ++c) {
    add(c, few.at);
    if (c % kPlain == kPlain - 1 || c == cols - 1) add_carefully(few.at, sum.at, lost.at, n);
  }
  add_plainly(lost.at, sum.at, n);
}

// x[c * n + j], c in [0, cols), becomes y in place.
void forward_strip(float* x, int64_t cols, int64_t n, bool log) {
  Across largest, sum;
  for (float& v : largest.at) v = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) take_largest(x + c * n, largest.at, n);
  sum_rows(cols, n, sum, [&](int64_t c, float* few) {
    alignas(64) float unused[kRun];
    exponentials(x + c * n, largest.at, log ? unused : x + c * n, few, n);
  });
  n &= -kStep;
  if (log) {
    for (int64_t j = 0; j < n; ++j) sum.at[j] = maths::log(sum.at[j]);
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t j = 0; j < n; ++j) x[c * n + j] = (x[c * n + j] - largest.at[j]) - sum.at[j];
  } else {
    for (int64_t j = 0; j < n; ++j) sum.at[j] = 1.0f / sum.at[j];
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t j = 0; j < n; ++j) x[c * n + j] *= sum.at[j];
  }
}
// dx comes out in y.
void backward_strip(float* y, const float* dy, int64_t cols, int64_t n, bool log) {
  Across sum;
  sum_rows(cols, n, sum, [&](int64_t c, float* few) {
    if (log) add_plainly(dy + c * n, few, n);
    else add_products(dy + c * n, y + c * n, few, n);
  });
  n &= -kStep;
  for (int64_t c = 0; c < cols; ++c) {
    float* at = y + c * n;
    const float* g = dy + c * n;
    if (log)
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) at[j] = g[j] - maths::exp(at[j]) * sum.at[j];
    else
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) at[j] = at[j] * (g[j] - sum.at[j]);
  }
}

// ---- getting strips in and out

struct Window {
  int64_t first, width;  // the element offset of the strip's first, and how many columns there are
  int64_t pitch;         // of its rows in the room
};
Window window_of(const SoftmaxCut& cut, int64_t item) {
  int64_t first, width;
  if (cut.kind == SoftmaxCut::strips) {
    int64_t strips = ceil_div(cut.inner, cut.width), column = item % strips * cut.width;
    first = item / strips * cut.cols * cut.inner + column;
    width = min_of(cut.width, cut.inner - column);
  } else {
    int64_t outers = cut.width / cut.inner;
    first = item * outers * cut.cols * cut.inner;
    width = min_of(outers, cut.outer - item * outers) * cut.inner;
  }
  return {first, width, whole_steps(width)};
}

// Calls f(element, place in the room) for the elements of a block in the order of memory.
template <class F>
inline __attribute__((always_inline)) void each_of_block(const SoftmaxCut& cut, const Window& w, F f) {
  int64_t i = 0;
  if (cut.inner == 1)
    for (int64_t column = 0; column < w.width; ++column)
      for (int64_t c = 0; c < cut.cols; ++c) f(i++, c * w.pitch + column);
  else
    for (int64_t column = 0; column < w.width; column += cut.inner)
      for (int64_t c = 0; c < cut.cols; ++c)
        for (int64_t j = 0; j < cut.inner; ++j) f(i++, c * w.pitch + column + j);
}

template <class T>
void read_strip(const T* tensor, const SoftmaxCut& cut, const Window& w, float* room, float* stage) {
  const T* from = tensor + w.first;
  if (cut.kind == SoftmaxCut::strips) {
    for (int64_t c = 0; c < cut.cols; ++c) {
      float* to = room + c * w.pitch;
      const float* x = read_run(from + c * cut.inner, to, w.width);
      if (x != to) __builtin_memcpy(to, x, size_t(w.width) * sizeof(float));
    }
    return;
  }
  const int64_t n = w.width * cut.cols;
  const float* x = stage;
  if constexpr (sizeof(T) == 4) x = from;
  else
    for (int64_t i = 0; i < n; i += kRun) read_run(from + i, stage + i, min_of(kRun, n - i));
  each_of_block(cut, w, [&](int64_t i, int64_t at) __attribute__((always_inline)) { room[at] = x[i]; });
}
template <class T>
void write_strip(const float* room, T* tensor, const SoftmaxCut& cut, const Window& w, float* stage) {
  T* to = tensor + w.first;
  if (cut.kind == SoftmaxCut::strips) {
    for (int64_t c = 0; c < cut.cols; ++c) {
      T* y = to + c * cut.inner;
      bool lines = cut.past_caches && until_line(y) == 0 && w.width * int64_t(sizeof(T)) % 64 == 0;
      write_run(room + c * w.pitch, y, w.width, lines);
    }
    return;
  }
  const int64_t n = w.width * cut.cols;
  float* y = stage;
  if constexpr (sizeof(T) == 4) y = to;
  each_of_block(cut, w, [&](int64_t i, int64_t at) __attribute__((always_inline)) { y[i] = room[at]; });
  if constexpr (sizeof(T) != 4)
    for (int64_t i = 0; i < n; i += kRun) write_run(stage + i, to + i, min_of(kRun, n - i), false);
}

template <class T>
void forward(const SoftmaxCut& cut, const SoftmaxArgs& a, float* room, int64_t begin, int64_t end) {
  auto x = static_cast<const T*>(a.in);
  auto y = static_cast<T*>(a.out);
  for (int64_t i = begin; i < end; ++i) {
    if (cut.kind == SoftmaxCut::rows) {
      forward_row(x + i * cut.cols, y + i * cut.cols, cut, room);
      continue;
    }
    Window w = window_of(cut, i);
    float* stage = room + cut.cols * whole_steps(cut.width);
    read_strip(x, cut, w, room, stage);
    forward_strip(room, cut.cols, w.pitch, cut.log);
    write_strip(room, y, cut, w, stage);
  }
  if (cut.past_caches) streams_end();
}

template <class T>
void backward(const SoftmaxCut& cut, const SoftmaxArgs& a, float* room, int64_t begin, int64_t end) {
  auto y = static_cast<const T*>(a.in), dy = static_cast<const T*>(a.dy);
  auto dx = static_cast<T*>(a.out);
  for (int64_t i = begin; i < end; ++i) {
    if (cut.kind == SoftmaxCut::rows) {
      backward_row(y + i * cut.cols, dy + i * cut.cols, dx + i * cut.cols, cut);
      continue;
    }
    Window w = window_of(cut, i);
    const int64_t floats = cut.cols * whole_steps(cut.width);
    float *gradients = room + floats, *stage = gradients + floats;
    read_strip(y, cut, w, room, stage);
    read_strip(dy, cut, w, gradients, stage);
    backward_strip(room, gradients, cut.cols, w.pitch, cut.log);
    write_strip(room, dx, cut, w, stage);
  }
  if (cut.past_caches) streams_end();
}

}  // namespace

extern const SoftmaxKernels softmax_kernels;
const SoftmaxKernels softmax_kernels = {{forward<float>, nullptr, forward<float16>, forward<bfloat16>},
                                        {backward<float>, nullptr, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
