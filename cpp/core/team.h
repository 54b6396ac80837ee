// SPDX-License-Identifier: Apache-2.0
// A team of threads computes one row, channel or sum together. The same code runs on the CPU, where a team is one
// thread (SingleThread), and on a GPU, where it is a block (cuda/device/reduce.cuh):
//   for (int64_t i = team.rank(); i < n; i += team.size()) partial += x[i];
//   Acc total = team.sum(partial);   // every member gets it; the order of additions is fixed, so results repeat
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// The larger of two numbers; NaN if either is NaN.
template <class T> MINIDNN_HD T max_or_nan(T a, T b) { return a < b || b != b ? b : a; }

// A compensated sum: the rounding error of each addition is added to the next term, so a million terms lose no more
// accuracy than a few. Inf and NaN give the same result as in a plain sum. T is a number, or a vector with a sum per
// lane.
template <class T> struct CompensatedSum {
  T sum{}, compensation{};
  MINIDNN_HD void add(T v) {
    v += compensation;
    T next = sum + v, took = next - sum;
    T error = (sum - (next - took)) + (v - took);
    compensation = error == error ? error : T{};  // Inf - Inf gives NaN
    sum = next;
  }
  MINIDNN_HD void add(const CompensatedSum& other) {
    compensation += other.compensation;
    add(other.sum);
  }
  MINIDNN_HD T value() const { return sum + compensation; }
};

struct SingleThread {
  MINIDNN_HD static constexpr int64_t rank() { return 0; }
  MINIDNN_HD static constexpr int64_t size() { return 1; }
  template <class T> MINIDNN_HD T sum(T v) { return v; }
  template <class T> MINIDNN_HD T max(T v) { return v; }
};

}  // namespace minidnn
