// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized for float64 and integers, compiled once per instruction set. Elements are converted
// to the type in which they are combined (double or int64) and mapped, a span at a time. So the loops that combine them
// do not depend on the dtype, and only on the kind of the mode.
#include "cpp/reduce/cpu/vectorized_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int64_t kSpan = 256;  // the number of elements that are converted at a time
constexpr int64_t kRows = 4;    // the number of rows that are combined with the partial results at a time

template <class A, class T> void widen(const void* x, int64_t at, int64_t stride, int64_t n, A* to) {
  auto from = static_cast<const T*>(x) + at;
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = A(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = A(from[i * stride]);
}
template <class A> void widen(DType t, const void* x, int64_t at, int64_t stride, int64_t n, A* to) {
  switch (t) {
    case DType::float64:
      if constexpr (!reduction::is_integer<A>) widen<A, double>(x, at, stride, n, to);
      return;
    case DType::int8:
      return widen<A, int8_t>(x, at, stride, n, to);
    case DType::int32:
      return widen<A, int32_t>(x, at, stride, n, to);
    case DType::int64:
      return widen<A, int64_t>(x, at, stride, n, to);
    default:
      widen<A, uint8_t>(x, at, stride, n, to);
      if (t == DType::boolean)
        for (int64_t i = 0; i < n; ++i) to[i] = A(to[i] != 0);
  }
}

// Maps n elements. `to` may be `from`.
template <ReduceMode mode, class A> void map_all(const A* from, A* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = reduction::mapped(mode, from[i]);
}
template <class A> void map_all(ReduceMode mode, const A* from, A* to, int64_t n) {
  switch (mode) {
    case ReduceMode::amax:
      return map_all<ReduceMode::amax>(from, to, n);
    case ReduceMode::norm1:
      return map_all<ReduceMode::norm1>(from, to, n);
    case ReduceMode::norm2:
    case ReduceMode::sumsq:
      return map_all<ReduceMode::sumsq>(from, to, n);
    case ReduceMode::min:
    case ReduceMode::argmin:
      return map_all<ReduceMode::min>(from, to, n);
    case ReduceMode::any:
      return map_all<ReduceMode::any>(from, to, n);
    case ReduceMode::all:
      return map_all<ReduceMode::all>(from, to, n);
    default:
      return;
  }
}
// Whether a mode combines the elements themselves.
MINIDNN_HD bool is_plain(ReduceMode m) {
  return m == ReduceMode::sum || m == ReduceMode::mean || m == ReduceMode::max || m == ReduceMode::prod ||
         m == ReduceMode::argmax;
}

// The elements of a call. A is the type in which they are combined.
template <class A> struct Elements {
  const ReduceChunk& p;
  DType dtype;
  ReduceMode mode;
  bool plain;   // whether elements are not mapped
  bool direct;  // whether elements have the type A in memory

  Elements(const ReduceChunk& chunk, DType t, ReduceMode m) : p(chunk), dtype(t), mode(m), plain(is_plain(m)) {
    direct = t == (reduction::is_integer<A> ? DType::int64 : DType::float64);
  }
  // Returns n <= kSpan mapped elements, from element `at` on. They are in memory, or in `buffer`.
  const A* span(int64_t at, int64_t stride, int64_t n, A* buffer) const {
    const A* from = static_cast<const A*>(p.x) + at;
    if (!direct || stride != 1) {
      widen(dtype, p.x, at, stride, n, buffer);
      from = buffer;
    }
    if (plain) return from;
    map_all(mode, from, buffer, n);
    return buffer;
  }
};

// Combines two elements, or two vectors. Sums and products of integers wrap around, so they are computed unsigned.
template <class V> struct Unsigned {
  using type = V;
};
template <> struct Unsigned<int64_t> {
  using type = uint64_t;
};
template <> struct Unsigned<Vector<int64_t>> {
  using type = Vector<uint64_t>;
};
template <ReduceKind kind, class V> MINIDNN_HD V combine(V a, V b) {
  using U = typename Unsigned<V>::type;
  if constexpr (kind == ReduceKind::sum) return V(U(a) + U(b));
  else if constexpr (kind == ReduceKind::prod) return V(U(a) * U(b));
  else return (a < b) | (b != b) ? b : a;
}
template <ReduceKind kind, class A> MINIDNN_HD A nothing() {
  return reduction::identity<kind == ReduceKind::arg ? ReduceKind::max : kind, A>().value;
}
template <class A> MINIDNN_HD bool is_larger(A a, A b) { return (b < a) | ((a != a) & (b == b)); }

template <ReduceKind kind, class A> A combined_span(const A* x, int64_t n, A result) {
  using V = Vector<A>;
  constexpr int64_t kLanes = minidnn::MINIDNN_ISA::kLanes<A>, kChains = 4;
  const A none = nothing<kind, A>();
  int64_t i = 0;
  if (n >= kLanes) {
    V chains[kChains];
    for (V& v : chains) v = none - V{};
    for (; i + kChains * kLanes <= n; i += kChains * kLanes)
#pragma GCC unroll 4
      for (int64_t k = 0; k < kChains; ++k) chains[k] = combine<kind>(chains[k], load(x + i + k * kLanes));
    for (; i + kLanes <= n; i += kLanes) chains[0] = combine<kind>(chains[0], load(x + i));
    const V all = combine<kind>(combine<kind>(chains[0], chains[1]), combine<kind>(chains[2], chains[3]));
    result = combine<kind>(result, A(reduce_lanes(all, combine<kind, V>)));
  }
  for (; i < n; ++i) result = combine<kind>(result, x[i]);
  return result;
}

// Combines `rows` rows of elements, `down` apart, with the partial results of `outputs` outputs, whose elements are
// `right` apart.
template <ReduceKind kind, class A>
void combine_rows(const Elements<A>& e, int64_t at, int64_t down, int64_t right, int64_t rows, int64_t outputs,
                  A* values) {
  A buffer[kRows][kSpan];
  for (int64_t first = 0; first < outputs; first += kSpan) {
    const int64_t n = min_of(kSpan, outputs - first), from = at + first * right;
    A* const to = values + first;
    int64_t i = 0;
    for (; i + kRows <= rows; i += kRows) {
      const A* row[kRows];
      for (int64_t k = 0; k < kRows; ++k) row[k] = e.span(from + (i + k) * down, right, n, buffer[k]);
      if (e.direct && right == 1)
        for (int64_t k = 0; k < kRows && i + kRows + k < rows; ++k) prefetch_row(row[k], kRows * down, n);
      int64_t j = 0;
      for (; j + kLanes<A> <= n; j += kLanes<A>)
        store(to + j, combine<kind>(load(to + j), combine<kind>(combine<kind>(load(row[0] + j), load(row[1] + j)),
                                                                combine<kind>(load(row[2] + j), load(row[3] + j)))));
      for (; j < n; ++j)
        to[j] = combine<kind>(to[j],
                              combine<kind>(combine<kind>(row[0][j], row[1][j]), combine<kind>(row[2][j], row[3][j])));
    }
    for (; i < rows; ++i) {
      const A* row = e.span(from + i * down, right, n, buffer[0]);
      int64_t j = 0;
      for (; j + kLanes<A> <= n; j += kLanes<A>) store(to + j, combine<kind>(load(to + j), load(row + j)));
      for (; j < n; ++j) to[j] = combine<kind>(to[j], row[j]);
    }
  }
}

// The same for argmax and argmin, whose indices are updated, too.
template <class A>
void combine_arg_rows(const Elements<A>& e, int64_t down, int64_t right) {
  A buffer[kSpan];
  for (int64_t first = 0; first < e.p.outputs; first += kSpan) {
    const int64_t n = min_of(kSpan, e.p.outputs - first);
    A* const values = reinterpret_cast<A*>(e.p.values) + first;
    int64_t* const indices = e.p.indices + first;
    for (int64_t i = 0; i < e.p.n; ++i) {
      const A* row = e.span(first * right + i * down, right, n, buffer);
      for (int64_t j = 0; j < n; ++j) {
        const bool larger = is_larger(row[j], values[j]) | (indices[j] < 0);
        values[j] = larger ? row[j] : values[j];
        indices[j] = larger ? e.p.begin + i : indices[j];
      }
    }
  }
}

template <ReduceKind kind, class A> void across_outputs(const Elements<A>& e, int64_t down, int64_t right) {
  if constexpr (kind == ReduceKind::arg) {
    combine_arg_rows(e, down, right);
  } else {
    const ReduceChunk& p = e.p;
    A* const values = reinterpret_cast<A*>(p.values);
    combine_rows<kind>(e, 0, down, right, p.n, p.outputs, values);
  }
}

template <ReduceKind kind, class A> void along_output(const Elements<A>& e) {
  const ReduceChunk& p = e.p;
  constexpr int64_t kShort = 32;
  if (p.n < kShort && p.outputs > 1) return across_outputs<kind>(e, 1, p.step);
  A buffer[kSpan];
  A* const values = reinterpret_cast<A*>(p.values);
  for (int64_t output = 0; output < p.outputs; ++output)
    for (int64_t i = 0; i < p.n; i += kSpan) {
      const int64_t n = min_of(kSpan, p.n - i);
      const A* x = e.span(output * p.step + i, 1, n, buffer);
      if constexpr (kind == ReduceKind::arg) {
        const A largest = combined_span<ReduceKind::max>(x, n, nothing<kind, A>());
        if (!is_larger(largest, values[output]) && p.indices[output] >= 0) continue;
        int64_t where = 0;
        while (x[where] != largest && (x[where] == x[where] || largest == largest)) ++where;
        values[output] = largest;
        p.indices[output] = p.begin + i + where;
      } else {
        values[output] = combined_span<kind>(x, n, values[output]);
      }
    }
}

template <ReduceKind kind, class A> void run(const Elements<A>& e, bool across) {
  if (across) across_outputs<kind>(e, e.p.step, 1);
  else along_output<kind>(e);
}
template <class A> void run(const ReduceChunk& p, DType dtype, ReduceMode mode, bool across) {
  const Elements<A> e(p, dtype, mode);
  switch (kind_of(mode)) {
    case ReduceKind::prod:
      return run<ReduceKind::prod>(e, across);
    case ReduceKind::max:
      return run<ReduceKind::max>(e, across);
    case ReduceKind::arg:
      return run<ReduceKind::arg>(e, across);
    default:
      return run<ReduceKind::sum>(e, across);
  }
}

template <class T> void store_all(const float* from, void* to, int64_t at, int64_t n) {
  T* const y = static_cast<T*>(to) + at;
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store_floats(y + i, load(from + i));
  for (; i < n; ++i) y[i] = T(from[i]);
}
void finish(ReduceMode mode, const double* values, int64_t n, int64_t count, DType dtype, void* to) {
  float results[kSpan];
  for (int64_t at = 0, some; at < n; at += some) {
    some = min_of(kSpan, n - at);
    auto all = [&](auto f) __attribute__((always_inline)) {
      for (int64_t i = 0; i < some; ++i) results[i] = float(f(values[at + i]));
    };
    switch (mode) {
      case ReduceMode::mean:
        all([=](double v) { return v / double(count); });
        break;
      case ReduceMode::norm2:
        all([](double v) { return __builtin_sqrt(v); });
        break;
      case ReduceMode::min:
        all([](double v) { return -v; });
        break;
      default:
        all([](double v) { return v; });
    }
    if (dtype == DType::float32) store_all<float>(results, to, at, some);
    else if (dtype == DType::bfloat16) store_all<bfloat16>(results, to, at, some);
    else store_all<float16>(results, to, at, some);
  }
}

}  // namespace

extern const ReduceWideKernels reduce_wide_kernels;
const ReduceWideKernels reduce_wide_kernels = {run<double>, run<int64_t>, finish};

}  // namespace minidnn::MINIDNN_ISA
