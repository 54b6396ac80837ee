// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.lines, with a window or a channel in each lane of a vector.
#include "cpp/pooling/cpu/lines_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using Doubles = Vector<double>;
using Numbers = Vector<int64_t>;
constexpr int64_t kDoubles = kLanes<double>;

// Calls visit(i, load) for the windows from the i-th on, as many as a vector has lanes, or for one window. load(t)
// returns their elements t, as a vector or as a number.
template <class F> MINIDNN_HD void each_vector(const PoolingRun& r, F visit) {
  int64_t i = 0;
  if (r.step == 1)
    for (; i + kDoubles <= r.n; i += kDoubles)
      visit(i, [&](int64_t t) __attribute__((always_inline)) { return load(r.x + r.taps[t] + i); });
  Numbers even;
  for (int k = 0; k < kDoubles; ++k) even[k] = 2 * k;
  // The last vector also has the element after that of the last window, so it must not be at the end of x.
  if (r.step == 2)
    for (; i + kDoubles < r.n; i += kDoubles)
      visit(i, [&](int64_t t) __attribute__((always_inline)) {
        const double* x = r.x + r.taps[t] + 2 * i;
        return __builtin_shuffle(load(x), load(x + kDoubles), even);
      });
  for (; i < r.n; ++i) visit(i, [&](int64_t t) __attribute__((always_inline)) { return r.x[r.taps[t] + i * r.step]; });
}

MINIDNN_HD void put(double* to, Doubles v) { store(to, v); }
MINIDNN_HD void put(double* to, double v) { *to = v; }
MINIDNN_HD void put(int64_t* to, Numbers v) { store(to, v); }
MINIDNN_HD void put(int64_t* to, int64_t v) { *to = v; }

template <bool is_max> void pool(const PoolingRun& r, double divide_by, double* out) {
  each_vector(r, [&](int64_t i, auto load) __attribute__((always_inline)) {
    auto all = load(0);
    for (int64_t t = 1; t < r.count; ++t) {
      const auto v = load(t);
      if constexpr (is_max) all = (v > all) | (v != v) ? v : all;
      else all += v;
    }
    if (divide_by != 1) all /= divide_by;
    put(out + i, all);
  });
}

MINIDNN_HD Numbers number_for(Doubles) { return Numbers{}; }
MINIDNN_HD int64_t number_for(double) { return 0; }

void argmax(const PoolingRun& r, int64_t* numbers) {
  each_vector(r, [&](int64_t i, auto load) __attribute__((always_inline)) {
    auto most = load(0);
    auto number = number_for(most);
    for (int64_t t = 1; t < r.count; ++t) {
      const auto v = load(t);
      const auto larger = (v > most) | ((v != v) & (most == most));
      most = larger ? v : most;
      number = larger ? number_for(v) + t : number;
    }
    put(numbers + i, number);
  });
}

void add_to(const double* values, int64_t n, double* sums, int64_t step) {
  int64_t i = 0;
  if (step == 1)
    for (; i + kDoubles <= n; i += kDoubles) store(sums + i, load(sums + i) + load(values + i));
  for (; i < n; ++i) sums[i * step] += values[i];
}

}  // namespace

extern const PoolingLinesKernels pooling_lines_kernels;
const PoolingLinesKernels pooling_lines_kernels = {pool<true>, pool<false>, argmax, add_to};

}  // namespace minidnn::MINIDNN_ISA
