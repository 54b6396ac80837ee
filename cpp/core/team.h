// SPDX-License-Identifier: Apache-2.0
// A team works on one row, channel or sum together. Arithmetic written for a team runs as it is on the CPU, where the team
// is one thread (Solo), and on a GPU, where it is a block (cuda/device/team.cuh):
//   for (int64_t i = team.rank(); i < n; i += team.size()) partial += x[i];
//   Acc total = team.sum(partial);   // every member gets it; the order of additions is fixed, so results repeat
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// The larger of two, NaN if either is.
template <class T> MINIDNN_HD T max_or_nan(T a, T b) { return a < b || b != b ? b : a; }

struct Solo {
  static constexpr int64_t rank() { return 0; }
  static constexpr int64_t size() { return 1; }
  template <class T> T sum(T v) { return v; }
  template <class T> T max(T v) { return v; }
};

}  // namespace minidnn
