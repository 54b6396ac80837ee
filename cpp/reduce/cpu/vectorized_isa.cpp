// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set. A vector holds several elements of one output
// (an element of the result), or one element of each of several outputs.
#include "cpp/core/host_device/elementary.h"
#include "cpp/reduce/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using enum ReduceMode;
using Ints = Vector<int32_t>;

// A lane adds at most kShortSum elements in float32, and the sum is added to a float64 number. So rounding errors stay
// small.
constexpr int64_t kShortSum = 32;
// The number of independent partial results, so that an operation need not wait for the previous one.
constexpr int kChains = 4;

// Maps an element to the value that is combined with others, such as its square for norm2. V is float or a vector of
// floats.
template <ReduceMode mode, class V> MINIDNN_HD V map(V v) {
  const V one = elementary::all<V>(1), zero{};
  if constexpr (mode == norm1 || mode == amax) return elementary::magnitude(v);
  else if constexpr (mode == sumsq) return v * v;
  else if constexpr (mode == min || mode == argmin) return -v;
  else if constexpr (mode == any) return v != 0 ? one : zero;
  else if constexpr (mode == all) return v == 0 ? one : zero;
  else return v;
}
template <ReduceMode mode, class V> MINIDNN_HD V combine(V a, V b) {
  if constexpr (kind_of(mode) == ReduceKind::sum) return a + b;
  else if constexpr (kind_of(mode) == ReduceKind::prod) return a * b;
  else return (a < b) | (b != b) ? b : a;
}
// kNothing is the neutral element of a reduction, such as 0 for sums. map(kElement) is kNothing.
template <ReduceMode mode> constexpr float kNothing = kind_of(mode) == ReduceKind::sum    ? 0.f
                                                      : kind_of(mode) == ReduceKind::prod ? 1.f
                                                                                          : -__builtin_inff();
template <ReduceMode mode> constexpr float kElement = mode == min                   ? __builtin_inff()
                                                      : mode == max                 ? -__builtin_inff()
                                                      : mode == prod || mode == all ? 1.f
                                                                                    : 0.f;

// Keeps the last n % kFloats lanes of v, and sets the lanes before them to the neutral element.
template <ReduceMode mode> MINIDNN_HD Floats last_lanes(Floats v, int64_t n) {
  Ints lane;
  for (int k = 0; k < kFloats; ++k) lane[k] = k;
  return lane >= int32_t(kFloats - n % kFloats) ? v : floats(kNothing<mode>);
}

// Reduces n contiguous elements to one value, and combines it with `result`. n is at least kFloats, the number of lanes
// of a vector.
template <class T, ReduceMode mode> MINIDNN_HD double combined_span(const T* x, int64_t n, double result) {
  const Floats nothing = floats(kNothing<mode>);
  const int64_t whole = n & -int64_t(kFloats);
  for (int64_t i = 0; i < whole;) {
    Floats chains[kChains] = {nothing, nothing, nothing, nothing};
    // The largest magnitude so far, as the bits of a float. As integers, the bits of a NaN are larger than those of
    // infinity.
    Ints sizes{};
    auto take = [&](Floats& chain, Floats v) __attribute__((always_inline)) {
      if constexpr (kind_of(mode) == ReduceKind::sum || kind_of(mode) == ReduceKind::prod) {
        chain = combine<mode>(chain, v);
      } else {  // The maximum ignores a NaN. `sizes` shows after the loop whether there was one.
        chain = v > chain ? v : chain;
        const Ints size = Ints(v) & 0x7fffffff;
        sizes = size > sizes ? size : sizes;
      }
    };
    const int64_t end = min_of(whole, i + kShortSum * kChains * kFloats);
    for (; i + kChains * kFloats <= end; i += kChains * kFloats) {
      prefetch_row(x + i, 4096 / int64_t(sizeof(T)), kChains * kFloats);
#pragma GCC unroll 2
      for (int k = 0; k < kChains; k += 2) {
        const Pair pair = load_pair(x + i + k * kFloats);
        take(chains[k], map<mode>(pair.first));
        take(chains[k + 1], map<mode>(pair.second));
      }
    }
    chains[0] = sizes > 0x7f800000 ? floats(NAN) : chains[0];
    for (; i < end; i += kFloats) chains[0] = combine<mode>(chains[0], map<mode>(load_floats(x + i)));
    if (end == whole && whole < n)
      chains[1] = combine<mode>(chains[1], last_lanes<mode>(map<mode>(load_floats(x + n - kFloats)), n));
    const Floats both = combine<mode>(combine<mode>(chains[0], chains[1]), combine<mode>(chains[2], chains[3]));
    result = combine<mode>(result, double(reduce_lanes(both, [](Floats a, Floats b) __attribute__((always_inline)) {
                             return combine<mode>(a, b);
                           })));
  }
  return result;
}

// Reduces n contiguous elements, at least kFloats and less than kShortSum * kFloats, to one vector of partial results.
template <class T, ReduceMode mode> MINIDNN_HD Floats short_span(const T* x, int64_t n) {
  Floats one = map<mode>(load_floats(x)), two = floats(kNothing<mode>);
  int64_t i = kFloats;
  for (; i + 2 * kFloats <= n; i += 2 * kFloats) {
    one = combine<mode>(one, map<mode>(load_floats(x + i)));
    two = combine<mode>(two, map<mode>(load_floats(x + i + kFloats)));
  }
  if (i + kFloats <= n) one = combine<mode>(one, map<mode>(load_floats(x + i)));
  if (n % kFloats) two = combine<mode>(two, last_lanes<mode>(map<mode>(load_floats(x + n - kFloats)), n));
  return combine<mode>(one, two);
}
// Combines pairs of adjacent lanes, so that two vectors become one. After log2(kFloats) such steps, kFloats vectors
// have become one, with one lane for each.
template <ReduceMode mode> MINIDNN_HD Floats combine_neighbours(Floats a, Floats b) {
  Ints even;
  for (int k = 0; k < kFloats; ++k) even[k] = 2 * k;
  return combine<mode>(__builtin_shuffle(a, b, even), __builtin_shuffle(a, b, even + 1));
}

// Loads one element for each of kFloats outputs. They are `step` apart in memory.
template <class T> MINIDNN_HD Floats one_of_each(const T* x, int64_t step) {
  Floats v{};
#pragma GCC unroll 16
  for (int k = 0; k < kFloats; ++k) v[k] = float(x[k * step]);
  return v;
}

template <class T, ReduceMode mode> void along_output(const ReduceChunk& p) {
  auto x = static_cast<const T*>(p.x);
  int64_t output = 0;
  if (p.n >= kFloats && p.n < kShortSum * kFloats)
    for (; output + kFloats <= p.outputs; output += kFloats) {
      Floats rows[kFloats];
      for (int k = 0; k < kFloats; ++k) rows[k] = short_span<T, mode>(x + (output + k) * p.step, p.n);
#pragma GCC unroll 4
      for (int n = kFloats; n > 1; n /= 2)
#pragma GCC unroll 8
        for (int k = 0; k < n / 2; ++k) rows[k] = combine_neighbours<mode>(rows[2 * k], rows[2 * k + 1]);
      for (int k = 0; k < kFloats; ++k) p.values[output + k] = combine<mode>(p.values[output + k], double(rows[0][k]));
    }
  if (p.n >= kFloats)
    for (; output < p.outputs; ++output)
      p.values[output] = combined_span<T, mode>(x + output * p.step, p.n, p.values[output]);
  for (; output + kFloats <= p.outputs; output += kFloats) {
    Floats partial = floats(kNothing<mode>);
    for (int64_t i = 0; i < p.n; ++i)
      partial = combine<mode>(partial, map<mode>(one_of_each(x + output * p.step + i, p.step)));
    for (int k = 0; k < kFloats; ++k) p.values[output + k] = combine<mode>(p.values[output + k], double(partial[k]));
  }
  for (; output < p.outputs; ++output) {
    float partial = kNothing<mode>;
    for (int64_t i = 0; i < p.n; ++i) partial = combine<mode>(partial, map<mode>(float(x[output * p.step + i])));
    p.values[output] = combine<mode>(p.values[output], double(partial));
  }
}

// Combines `rows` rows with the partial results in `sums`, which is then read and written less often. A row has one
// element per output.
template <int rows, class T, ReduceMode mode>
MINIDNN_HD void add_rows(const T* x, int64_t step, int64_t count, int64_t to_prefetch, float* sums) {
  alignas(64) float widened[rows][kSpan];
  const float* row[rows];
  for (int r = 0; r < rows; ++r) {
    prefetch_row(x + r * step, rows * step, r < to_prefetch ? count : 0);
    row[r] = read_span<Order::memory>(x + r * step, widened[r], count, kElement<mode>);
  }
  for (int64_t j = 0, whole = whole_steps(count); j < whole; j += kFloats) {
    Floats v = map<mode>(load(row[0] + j));
#pragma GCC unroll 4
    for (int r = 1; r < rows; ++r) v = combine<mode>(v, map<mode>(load(row[r] + j)));
    store(sums + j, combine<mode>(load(sums + j), v));
  }
}

// Combines all rows for four vectors of outputs in registers. A row has one element per output.
template <class T, ReduceMode mode> MINIDNN_HD void add_narrow_rows(const T* x, int64_t step, int64_t rows,
                                                                    float* sums) {
  Pair v[2];
  for (Pair& pair : v) pair.first = pair.second = floats(kNothing<mode>);
  for (; rows > 0; --rows, x += step)
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      const Pair row = load_pair(x + 2 * k * kFloats);
      v[k].first = combine<mode>(v[k].first, map<mode>(row.first));
      v[k].second = combine<mode>(v[k].second, map<mode>(row.second));
    }
  for (int k = 0; k < 2; ++k) store_from_pair<T>(sums + 2 * k * kFloats, v[k]);
}

template <class T, ReduceMode mode> void across_outputs(const ReduceChunk& p) {
  // The first-level cache can hold kShortSum rows of at most this number of elements.
  constexpr int64_t kRows = 4, kNarrow = 1024 / int64_t(sizeof(T));
  const int64_t narrow = p.outputs <= kNarrow && p.step == p.outputs ? p.outputs & -4 * int64_t(kFloats) : 0;
  alignas(64) float sums[kReduceOutputs];
  auto x = static_cast<const T*>(p.x);
  for (int64_t begin = 0; begin < p.n; begin += kShortSum) {
    for (int64_t j = 0; j < whole_steps(p.outputs); ++j) sums[j] = kNothing<mode>;
    const int64_t end = min_of(p.n, begin + kShortSum);
    for (int64_t first = 0; first < narrow; first += 4 * kFloats)
      add_narrow_rows<T, mode>(x + begin * p.step + first, p.step, end - begin, sums + first);
    for (int64_t i = begin; i < end && narrow < p.outputs;) {
      const bool several = i + kRows <= end;
      const int64_t rows = several ? kRows : 1, to_prefetch = p.n - i - rows;
      for (int64_t first = narrow; first < p.outputs; first += kSpan) {
        const T* from = x + i * p.step + first;
        const int64_t count = min_of(kSpan, p.outputs - first);
        if (several) add_rows<kRows, T, mode>(from, p.step, count, to_prefetch, sums + first);
        else add_rows<1, T, mode>(from, p.step, count, to_prefetch, sums + first);
      }
      i += rows;
    }
    for (int64_t j = 0; j < p.outputs; ++j) p.values[j] = combine<mode>(p.values[j], double(sums[j]));
  }
}

// Argmax and argmin. For argmin, elements are mapped so that the smallest becomes the largest. A NaN is larger than any
// number. Of equal elements, the first is chosen.
using Largest = reduction::State<ReduceKind::arg, double>;
template <class V> MINIDNN_HD auto is_larger(V a, V b) { return (b < a) | ((a != a) & (b == b)); }

MINIDNN_HD void join(const ReduceChunk& p, int64_t output, float value, int64_t index) {
  const Largest now = reduction::combined<ReduceKind::arg, double>({p.values[output], p.indices[output]},
                                                                   {double(value), p.begin + index});
  p.values[output] = now.value;
  p.indices[output] = now.index;
}

// The number of elements that are searched with int32 indices. Longer rows are searched in blocks of this size.
constexpr int64_t kIndexBlock = 1 << 16;

template <class T, ReduceMode mode> void arg_along_output(const ReduceChunk& p) {
  auto all = static_cast<const T*>(p.x);
  Ints lane;
  for (int k = 0; k < kFloats; ++k) lane[k] = k;
  int64_t output = 0;
  if (p.n >= kFloats)
    for (; output < p.outputs; ++output)
      for (int64_t begin = 0; begin < p.n; begin += kIndexBlock) {
        const int64_t n = min_of(p.n - begin, kIndexBlock);
        // The first and the last vector may overlap adjacent blocks. An element has the same index each time, so this
        // changes nothing.
        const T* x = all + output * p.step + begin;
        const int64_t before = n < kFloats ? kFloats - n : 0;
        Floats value = map<mode>(load_floats(x - before));
        Ints index = lane - int32_t(before);
        auto take = [&](int64_t i) __attribute__((always_inline)) {
          const Floats here = map<mode>(load_floats(x + i));
          const Ints larger = is_larger(here, value);
          value = larger ? here : value;
          index = larger ? lane + int32_t(i) : index;
        };
        int64_t i = kFloats;
        for (; i + kFloats <= n; i += kFloats) take(i);
        if (i < n) take(n - kFloats);
#pragma GCC unroll 4
        for (int half = kFloats / 2; half > 0; half /= 2) {
          const Floats other = __builtin_shuffle(value, lane ^ half);
          const Ints others = __builtin_shuffle(index, lane ^ half);
          const Ints larger = is_larger(other, value) | (~is_larger(value, other) & (others < index));
          value = larger ? other : value;
          index = larger ? others : index;
        }
        join(p, output, value[0], begin + index[0]);
      }
  for (; output + kFloats <= p.outputs; output += kFloats) {
    Floats value = floats(kNothing<mode>);
    Ints index{};
    for (int64_t i = 0; i < p.n; ++i) {
      const Floats here = map<mode>(one_of_each(all + output * p.step + i, p.step));
      const Ints larger = is_larger(here, value);
      value = larger ? here : value;
      index = larger ? Ints{} + int32_t(i) : index;
    }
    for (int k = 0; k < kFloats; ++k) join(p, output + k, value[k], index[k]);
  }
  for (; output < p.outputs; ++output)
    for (int64_t i = 0; i < p.n; ++i) join(p, output, map<mode>(float(all[output * p.step + i])), i);
}

template <class T, ReduceMode mode> void arg_across_outputs(const ReduceChunk& p) {
  alignas(64) float widened[kSpan], values[kReduceOutputs];
  alignas(64) int32_t indices[kReduceOutputs];
  for (int64_t begin = 0; begin < p.n; begin += kIndexBlock) {
    for (int64_t j = 0; j < whole_steps(p.outputs); ++j) {
      values[j] = -__builtin_inff();
      indices[j] = 0;
    }
    for (int64_t i = 0, end = min_of(p.n - begin, kIndexBlock); i < end; ++i)
      for (int64_t first = 0; first < p.outputs; first += kSpan) {
        const int64_t count = min_of(kSpan, p.outputs - first), whole = whole_steps(count);
        const T* from = static_cast<const T*>(p.x) + (begin + i) * p.step + first;
        prefetch_row(from, p.step, i + 1 < end ? count : 0);
        const float* row = read_span<Order::memory>(from, widened, count);
        float* const value = values + first;
        int32_t* const index = indices + first;
        for (int64_t j = 0; j < whole; ++j) {
          const float here = map<mode>(row[j]);
          const bool larger = is_larger(here, value[j]);
          value[j] = larger ? here : value[j];
          index[j] = larger ? int32_t(i) : index[j];
        }
      }
    for (int64_t j = 0; j < p.outputs; ++j) join(p, j, values[j], begin + indices[j]);
  }
}

}  // namespace

// For each mode. The loops of mean are those of sum, and the loops of norm2 are those of sumsq.
#define MINIDNN_REDUCE_MODES(loop, arg_loop, T)                                                                        \
  {loop<T, sum>,   loop<T, sum>,  loop<T, max>, loop<T, min>, loop<T, prod>,       loop<T, norm1>,     loop<T, sumsq>, \
   loop<T, sumsq>, loop<T, amax>, loop<T, any>, loop<T, all>, arg_loop<T, argmax>, arg_loop<T, argmin>}

extern const ReduceKernels reduce_kernels;
const ReduceKernels reduce_kernels = {{MINIDNN_REDUCE_MODES(along_output, arg_along_output, float),
                                       {},
                                       MINIDNN_REDUCE_MODES(along_output, arg_along_output, float16),
                                       MINIDNN_REDUCE_MODES(along_output, arg_along_output, bfloat16)},
                                      {MINIDNN_REDUCE_MODES(across_outputs, arg_across_outputs, float),
                                       {},
                                       MINIDNN_REDUCE_MODES(across_outputs, arg_across_outputs, float16),
                                       MINIDNN_REDUCE_MODES(across_outputs, arg_across_outputs, bfloat16)}};

}  // namespace minidnn::MINIDNN_ISA
