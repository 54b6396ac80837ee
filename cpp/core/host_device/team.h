// SPDX-License-Identifier: Apache-2.0
// A team of threads computes one row, one channel or one sum together. On the CPU a team is one thread (SingleThread).
// On a GPU a team is a block (cuda/device/reduce.cuh). The same code runs on both:
//   for (int64_t i = team.rank(); i < n; i += team.size()) partial += x[i];
//   Acc total = team.sum(partial);
// Every thread gets the same total. The order of additions is fixed, so results repeat.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Returns the larger of two numbers, or NaN if either number is NaN.
template <class T> MINIDNN_HD T max_or_nan(T a, T b) { return a < b || b != b ? b : a; }

// A compensated sum: the rounding error of each addition is added to the next term. The sum of a million terms is as
// accurate as the sum of a few terms. Inf and NaN give the same result as in a plain sum. T is a number, or a vector
// with one sum per lane.
template <class T> struct CompensatedSum {
  T sum{}, compensation{};
  MINIDNN_HD void add(T v) {
    v += compensation;
    T next = sum + v, took = next - sum;
    T error = (sum - (next - took)) + (v - took);
    // If the sum is infinite, its rounding error would be Inf - Inf, which is NaN. The error is replaced by 0.
    compensation = error == error ? error : T{};
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
