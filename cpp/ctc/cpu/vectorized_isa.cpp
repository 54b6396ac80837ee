// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.ctc.vectorized, compiled once per instruction set. Blanks and labels have separate arrays, so vectors
// of states read their neighbours at unaligned addresses and need no shuffles.
#include "cpp/core/host_device/elementary_double.h"
#include "cpp/ctc/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Vector<float>;
using Ints = Vector<int32_t>;
constexpr int64_t kLane = kLanes<float>;
constexpr float kZero = float(ctc::kZeroExponent), kMost = float(ctc::kMostLog);

MINIDNN_HD V larger(V a, V b) { return a > b ? a : b; }
// 2^k for integers k <= 0. It is 0 if k <= -127.
MINIDNN_HD V power(V k) {
  k = elementary::at_least(k, -127.0f);
  return V((Ints(k + (elementary::kShift + 127)) << 23));
}

struct Numbers {
  V m, e;
};
MINIDNN_HD Numbers sum(Numbers a, Numbers b) {
  const V e = larger(a.e, b.e);
  return {a.m * power(a.e - e) + b.m * power(b.e - e), e};
}
MINIDNN_HD Numbers choose(Ints mask, Numbers yes, Numbers no) {
  return {select(mask, yes.m, no.m), select(mask, yes.e, no.e)};
}
MINIDNN_HD Numbers exponential(V x) {
  const Ints small = x < -kMost, usual = x <= kMost;
  const auto n = elementary::multiple_of_ln2(elementary::at_most(elementary::at_least(x, -kMost), kMost));
  const V r = x - n.value * elementary::kLn2High - n.value * elementary::kLn2Low;
  Numbers v{r * r * elementary::exp_tail(r) + r + 1.0f, n.value};
  v = choose(usual, v, {floats(NAN), V{}});
  return choose(small, {V{}, floats(kZero)}, v);
}
MINIDNN_HD Numbers normalized(Numbers v) {
  // Only 0 has the exponent -127. NaN stays NaN.
  const Ints exponent = Ints(v.m) >> 23;
  return {v.m * V((254 - exponent) << 23), v.e + elementary::to_float<V>(exponent - 127)};
}

// Arrays of numbers, with an element for each label or blank.
struct Array {
  float *m, *e;
  MINIDNN_HD Numbers at(int64_t i) const { return {load(m + i), load(e + i)}; }
  MINIDNN_HD void put(int64_t i, Numbers v) const {
    store(m + i, v.m);
    store(e + i, v.e);
  }
  MINIDNN_HD void put_one(int64_t i, CtcNumber<float> v) const {
    m[i] = v.m;
    e[i] = v.e;
  }
  MINIDNN_HD CtcNumber<float> one(int64_t i) const { return {m[i], e[i]}; }
};

// What a thread works with. All arrays hold zeros beyond their last element.
struct Work {
  Array blanks, labels, next_blanks;  // alpha, or beta times p
  Array scores;                       // p of the labels
  Array alpha_blanks, alpha_labels;   // a copy of a row of alpha
  int32_t* skip;                      // -1 if a path may come from the label before without a blank, else 0
  float* posteriors;                  // of the labels
  int32_t* classes;                   // of the labels
  float* row;                         // a row of dx in float32
  int64_t count, end;                 // the number of labels; the first multiple of the lanes beyond the last blank
  CtcNumber<float> blank;             // p of the blank
};

Work work_of(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, const CtcArena& arena) {
  float* at = arena.numbers;
  const auto array = [&] {
    float* const begin = at;
    at += arena.length;
    return begin + CtcArena::kMargin;
  };
  const auto numbers = [&] { return Array{array(), array()}; };
  Work w{numbers(), numbers(), numbers(), numbers(), numbers(), numbers()};
  for (float* v = arena.numbers; v < at; v += 2 * arena.length)
    for (int64_t i = 0; i < arena.length; ++i) {
      v[i] = 0;
      v[arena.length + i] = kZero;
    }
  w.skip = reinterpret_cast<int32_t*>(array());
  w.posteriors = array();
  w.classes = reinterpret_cast<int32_t*>(array());
  w.row = at;
  w.count = s.labels;
  w.end = (s.labels + kLane) & -kLane;
  for (int64_t i = 0; i < s.labels; ++i) w.classes[i] = int32_t(ctc::class_of(p, a, s, s.labels + 1 + i));
  for (int64_t i = 0; i < arena.length - CtcArena::kMargin; ++i) w.skip[i] = ctc::skips(p, a, s, i) ? -1 : 0;
  return w;
}

// The loops over elements of x and dx, one set for each dtype.
struct RowLoops {
  float (*lse)(const void* x, int64_t n);
  void (*gather)(const void* x, const int32_t* classes, int64_t n, float* to);
  void (*softmax)(const void* x, int64_t n, float lse, float g, float* row);  // row = g exp(x - lse)
  void (*write)(const float* row, void* dx, int64_t n, bool non_temporal);
  int64_t size;
};

template <class A> void exponentials(const A* x, A* e, int64_t n, A less) {
  n &= -kStep;
#pragma GCC ivdep  // e is x itself or does not overlap x
  for (int64_t i = 0; i < n; ++i) e[i] = elementary::exp(x[i] - less);
}
template <class T> Accumulator<T> lse_of(const void* from, int64_t n) {
  using A = Accumulator<T>;
  using As = Vector<A>;
  const T* const x = static_cast<const T*>(from);
  alignas(64) A widened[kSpan], terms[kSpan];
  As most = As{} - A(INFINITY);
  for (int64_t i = 0; i < n; i += kSpan) {
    const int64_t count = min_of(kSpan, n - i);
    const A* v = read_span<Order::lanes>(x + i, widened, count, -INFINITY);
    for (int64_t j = 0; j < whole_steps(count); j += kLanes<A>) {
      const As here = load(v + j);
      most = here > most ? here : most;
    }
  }
  const A largest = reduce_lanes(most, [](As a, As b) __attribute__((always_inline)) { return a > b ? a : b; });
  CompensatedSum<A> sum;
  for (int64_t i = 0; i < n; i += kSpan) {
    const int64_t count = min_of(kSpan, n - i);
    exponentials(read_span<Order::lanes>(x + i, widened, count, -INFINITY), terms, whole_steps(count), largest);
    As few{};
    for (int64_t j = 0; j < whole_steps(count); j += kLanes<A>) few += load(terms + j);
    sum.add(sum_lanes(few));
  }
  return largest + maths::log(sum.value());
}
double lse_of_doubles(const double* x, int64_t n) { return lse_of<double>(x, n); }
void softmax_of_doubles(const double* x, int64_t n, double lse, double g, double* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = g * elementary::exp(x[i] - lse);
}
template <class T> void gather(const void* x, const int32_t* classes, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = float(static_cast<const T*>(x)[classes[i]]);
}
template <class T> void softmax(const void* x, int64_t n, float lse, float g, float* row) {
  alignas(64) float widened[kSpan];
  for (int64_t i = 0; i < n; i += kSpan) {
    const int64_t count = min_of(kSpan, n - i);
    const float* v = read_span<Order::memory>(static_cast<const T*>(x) + i, widened, count);
    for (int64_t j = 0; j < whole_steps(count); j += kLane) store(row + i + j, g * elementary::exp(load(v + j) - lse));
  }
}
template <class T> void write(const float* row, void* dx, int64_t n, bool non_temporal) {
  write_all<Order::memory>(static_cast<T*>(dx), n, non_temporal, [=](int64_t i, int64_t count, float* out) {
    __builtin_memcpy(out, row + i, size_t(whole_steps(count)) * sizeof(float));
  });
}
template <class T> constexpr RowLoops kLoops = {lse_of<T>, gather<T>, softmax<T>, write<T>, sizeof(T)};

const RowLoops& loops_of(const CtcProblem& p) {
  return p.x.dtype == DType::float32 ? kLoops<float> : p.x.dtype == DType::float16 ? kLoops<float16> : kLoops<bfloat16>;
}
MINIDNN_HD const char* row_of(const CtcProblem& p, const CtcArgs& a, int64_t t, int64_t b, int64_t size) {
  return static_cast<const char*>(a.x) + (t * p.x.stride[0] + b * p.x.stride[1]) * size;
}

// Computes p of the labels and of the blank from a row of x.
void read_scores(const CtcProblem& p, const RowLoops& loops, const char* x, float lse, Work& w) {
  const int32_t blank = int32_t(p.blank);
  loops.gather(x, w.classes, w.count, w.scores.m);
  loops.gather(x, &blank, 1, w.scores.m + w.count);
  for (int64_t i = 0; i < w.end; i += kLane) w.scores.put(i, exponential(load(w.scores.m + i) - lse));
  w.blank = w.scores.one(w.count);
  for (int64_t i = w.count; i < w.end; ++i) w.scores.put_one(i, ctc::zero<float>());
}
// Multiplies by p.
MINIDNN_HD Numbers of_blank(const Work& w, Numbers v) { return {v.m * w.blank.m, v.e + w.blank.e}; }
MINIDNN_HD Numbers of_label(const Work& w, int64_t i, Numbers v) {
  return {v.m * load(w.scores.m + i), v.e + load(w.scores.e + i)};
}

// Numbers grow by less than a factor of 5 in a step. Normalising them now and then suffices.
MINIDNN_HD bool is_time_to_normalize(int64_t t) { return t % 8 == 7; }
void normalize(const Work& w) {
  for (int64_t i = 0; i < w.end; i += kLane) {
    w.blanks.put(i, normalized(w.blanks.at(i)));
    w.labels.put(i, normalized(w.labels.at(i)));
  }
}

// alpha of the next step. It goes from the last states to the first, so that no state is read after its change.
void forward_step(const Work& w) {
  for (int64_t i = w.end - kLane; i >= 0; i -= kLane) {
    const Numbers blank = w.blanks.at(i), label = w.labels.at(i), both = sum(blank, w.labels.at(i - 1));
    w.blanks.put(i, of_blank(w, both));
    w.labels.put(i, of_label(w, i, sum(label, choose(load(w.skip + i), both, blank))));
  }
}
// beta of the step before, from beta times p: into next_blanks and labels.
void backward_step(const Work& w) {
  for (int64_t i = 0; i < w.end; i += kLane) w.next_blanks.put(i, sum(w.blanks.at(i), w.labels.at(i)));
  for (int64_t i = 0; i < w.end; i += kLane) {
    const Numbers behind = choose(load(w.skip + i + 1), w.next_blanks.at(i + 1), w.blanks.at(i + 1));
    w.labels.put(i, sum(w.labels.at(i), behind));
  }
}

// A row of alpha in memory: the blanks, and the labels behind them.
struct AlphaRow {
  Array blanks, labels;
  bool has_room;  // whether rows of the same sequence follow, so that whole vectors of both arrays lie within them
  AlphaRow(const CtcArgs& a, const CtcSequence& s, int64_t t) {
    const int64_t at = s.alpha + t * s.states();
    blanks = {static_cast<float*>(a.alpha) + at, static_cast<float*>(a.exponents) + at};
    labels = {blanks.m + s.labels + 1, blanks.e + s.labels + 1};
    has_room = (s.steps - 1 - t) * s.states() >= kLane;
  }
};
void copy(const Array& from, const Array& to, int64_t n) {
  __builtin_memcpy(to.m, from.m, size_t(n) * sizeof(float));
  __builtin_memcpy(to.e, from.e, size_t(n) * sizeof(float));
}
void store_row(const Work& w, const AlphaRow& row) {
  if (!row.has_room) {
    copy(w.blanks, row.blanks, w.count + 1);
    copy(w.labels, row.labels, w.count);
    return;
  }
  // What the vectors hold beyond their last element is overwritten by the labels, and by the next row.
  for (int64_t i = 0; i < w.end; i += kLane) row.blanks.put(i, w.blanks.at(i));
  for (int64_t i = 0; i < w.end; i += kLane) row.labels.put(i, w.labels.at(i));
}
// Returns the row, or a copy of it, with readable memory behind both arrays. What is there has no effect, because beta
// is 0 there.
AlphaRow load_row(const Work& w, AlphaRow row) {
  if (row.has_room) return row;
  copy(row.blanks, w.alpha_blanks, w.count + 1);
  copy(row.labels, w.alpha_labels, w.count);
  row.blanks = w.alpha_blanks;
  row.labels = w.alpha_labels;
  return row;
}

CtcNumber<float> forward(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, const CtcArena& arena) {
  Work w = work_of(p, a, s, arena);
  const RowLoops& loops = loops_of(p);
  float* const lse = static_cast<float*>(a.lse);
  w.blanks.put_one(0, {1, 0});  // what comes before the first step
  for (int64_t t = 0; t < s.steps; ++t) {
    const char* const x = row_of(p, a, t, s.b, loops.size);
    if (p.logits) lse[t * p.batch() + s.b] = loops.lse(x, p.classes());
    read_scores(p, loops, x, p.logits ? lse[t * p.batch() + s.b] : 0, w);
    forward_step(w);
    if (is_time_to_normalize(t)) normalize(w);
    store_row(w, AlphaRow(a, s, t));
  }
  return ctc::probability<float>(a, s);
}

// Multiplies beta by alpha, which gives the posteriors of the states, and then by p. Returns the posterior of the blank
// and that of all labels, times some number that is equal for all.
struct Posteriors {
  float blank, labels;
};
Posteriors multiply_step(const Work& w, const AlphaRow& alpha, float exponent) {
  V blanks{}, labels{};
  const auto posterior = [=](Numbers alpha, Numbers beta) __attribute__((always_inline)) {
    return alpha.m * beta.m * power(alpha.e + beta.e - exponent);
  };
  for (int64_t i = 0; i < w.end; i += kLane) {
    const Numbers blank = w.next_blanks.at(i), label = w.labels.at(i);
    blanks += posterior(alpha.blanks.at(i), blank);
    const V own = posterior(alpha.labels.at(i), label);
    labels += own;
    store(w.posteriors + i, own);
    w.blanks.put(i, of_blank(w, blank));
    w.labels.put(i, of_label(w, i, label));
  }
  return {sum_lanes(blanks), sum_lanes(labels)};
}

void backward(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, const CtcArena& arena, float g,
              bool non_temporal) {
  Work w = work_of(p, a, s, arena);
  const RowLoops& loops = loops_of(p);
  const auto dx = [&](int64_t t) {
    return static_cast<char*>(a.dx) + (t * p.dx.stride[0] + s.b * p.dx.stride[1]) * loops.size;
  };
  const int64_t n = w.count, steps = g == 0 ? 0 : s.steps, row_length = CtcArena::row_of(p);
  for (int64_t c = 0; c < row_length; ++c) w.row[c] = 0;
  for (int64_t t = steps; t < p.steps(); ++t) loops.write(w.row, dx(t), p.classes(), non_temporal);
  const CtcNumber<float> whole = ctc::probability<float>(a, s);
  w.blanks.put_one(n, {1, 0});  // what comes behind the last step
  for (int64_t t = steps - 1; t >= 0; --t) {
    const char* const x = row_of(p, a, t, s.b, loops.size);
    const float lse = p.logits ? static_cast<const float*>(a.lse)[t * p.batch() + s.b] : 0;
    loops.softmax(x, p.classes(), lse, g, w.row);
    if (g == g) {
      read_scores(p, loops, x, lse, w);
      const AlphaRow alpha = load_row(w, AlphaRow(a, s, t));
      backward_step(w);
      const Posteriors posterior = multiply_step(w, alpha, whole.e);
      if (is_time_to_normalize(t)) normalize(w);
      // The posteriors of a step have the sum 1. To divide by their sum removes what their rounding errors have in
      // common.
      const float factor = g / (posterior.blank + posterior.labels);
      for (int64_t i = 0; i < n; ++i) w.row[w.classes[i]] -= factor * w.posteriors[i];
      w.row[p.blank] -= factor * posterior.blank;
    }
    loops.write(w.row, dx(t), p.classes(), non_temporal);
  }
  if (non_temporal) store_fence();
}

}  // namespace

extern const CtcKernels ctc_kernels;
const CtcKernels ctc_kernels = {forward, backward, lse_of_doubles, softmax_of_doubles};

}  // namespace minidnn::MINIDNN_ISA
