// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/runs.h"
#include "cpp/reduce/reduce_kernels.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using enum ReduceMode;

// A lane's elements are combined in float, so many at most before they go into a double: few, so that their rounding
// errors do not add up where all have one sign.
constexpr int64_t kShortSum = 32;
static_assert(kShortSum * kStep % kRun == 0);  // so that only the last run of all has a part of a step

template <ReduceMode mode> inline __attribute__((always_inline)) float map(float v) {
  if constexpr (mode == norm1 || mode == amax) return detail::float_of(detail::bits_of(v) & 0x7fffffff);
  else if constexpr (mode == norm2 || mode == sumsq) return v * v;
  else if constexpr (mode == min) return -v;
  else if constexpr (mode == any) return v != 0 ? 1.f : 0.f;
  else if constexpr (mode == all) return v == 0 ? 1.f : 0.f;
  else return v;
}
template <ReduceMode mode, class A> inline __attribute__((always_inline)) A combine(A a, A b) {
  if constexpr (kind_of(mode) == ReduceKind::sum) return a + b;
  else if constexpr (kind_of(mode) == ReduceKind::prod) return a * b;
  else return (a < b) | (b != b) ? b : a;
}
// What changes nothing: as a result, and as an element.
template <ReduceMode mode> constexpr float kNothing = kind_of(mode) == ReduceKind::sum    ? 0.f
                                                      : kind_of(mode) == ReduceKind::prod ? 1.f
                                                                                          : -__builtin_inff();
template <ReduceMode mode> constexpr float kElement = mode == min                   ? __builtin_inff()
                                                      : mode == max                 ? -__builtin_inff()
                                                      : mode == prod || mode == all ? 1.f
                                                                                    : 0.f;

template <class T, ReduceMode mode> void along(const void* x, int64_t n, double* result) {
  auto from = static_cast<const T*>(x);
  alignas(64) float room[kRun], lanes[kStep];
  double total = *result;
  for (int64_t begin = 0; begin < n; begin += kShortSum * kStep) {
    for (float& v : lanes) v = kNothing<mode>;
    const int64_t end = min_of(n, begin + kShortSum * kStep);
    for (int64_t i = begin, run; i < end; i += run) {
      run = min_of(kRun, end - i);
      const float* floats = read_run<Order::memory>(from + i, room, run, kElement<mode>);
      const int64_t whole = whole_steps(run);
      for (int64_t k = 0; k < whole; k += kStep)
        for (int j = 0; j < kStep; ++j) lanes[j] = combine<mode>(lanes[j], map<mode>(floats[k + j]));
    }
    for (int half = kStep / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lanes[j] = combine<mode>(lanes[j], lanes[j + half]);
    total = combine<mode>(total, double(lanes[0]));
  }
  *result = total;
}

template <class T, ReduceMode mode>
void across(const void* x, int64_t pitch, int64_t rows, int64_t columns, double* results) {
  static_assert(kReduceColumns <= kRun);
  auto from = static_cast<const T*>(x);
  alignas(64) float room[kRun], sums[kRun];
  const int64_t whole = whole_steps(columns);
  for (int64_t begin = 0; begin < rows; begin += kShortSum) {
    for (int64_t j = 0; j < whole; ++j) sums[j] = kNothing<mode>;
    for (int64_t i = begin, end = min_of(rows, begin + kShortSum); i < end; ++i) {
      const float* floats = read_run<Order::memory>(from + i * pitch, room, columns, kElement<mode>);
      for (int64_t j = 0; j < whole; ++j) sums[j] = combine<mode>(sums[j], map<mode>(floats[j]));
    }
    for (int64_t j = 0; j < columns; ++j) results[j] = combine<mode>(results[j], double(sums[j]));
  }
}

}  // namespace

#define MINIDNN_REDUCE_MODES(loop, T)                                                          \
  {loop<T, sum>,   loop<T, mean>,  loop<T, max>,  loop<T, min>, loop<T, prod>, loop<T, norm1>, \
   loop<T, norm2>, loop<T, sumsq>, loop<T, amax>, loop<T, any>, loop<T, all>}

extern const ReduceKernels reduce_kernels;
const ReduceKernels reduce_kernels = {{MINIDNN_REDUCE_MODES(along, float),
                                       {},
                                       MINIDNN_REDUCE_MODES(along, float16),
                                       MINIDNN_REDUCE_MODES(along, bfloat16)},
                                      {MINIDNN_REDUCE_MODES(across, float),
                                       {},
                                       MINIDNN_REDUCE_MODES(across, float16),
                                       MINIDNN_REDUCE_MODES(across, bfloat16)}};

}  // namespace minidnn::MINIDNN_ISA
