// SPDX-License-Identifier: Apache-2.0
// The loops of convolutions with few channels in a group, channels last, compiled once per instruction set: a vector is
// some channels of one pixel. `size` is that of a group, on both sides, 1, 2, 4 or 8 and no longer than a vector.
#pragma once
#include <cstdint>

#include "cpp/cpu/isa.h"

namespace minidnn {

constexpr int64_t kGroupsRows = 7;  // lines at a time: they divide the 7, 14, 28, 56 and 112 of most images

struct GroupsKernels {
  int64_t lanes;
  // y[p, c] = sum over taps t and channels i of c's group of x[at[t] + p * x_step + i] * w[w_at[t] + i * w_step + c],
  // p < pixels, c < channels, these a multiple of lanes. Offsets and steps are in elements.
  void (*pixels)(int64_t size, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step,
                 const float* w, int64_t w_step, float* y, int64_t y_step, int64_t pixels, int64_t channels);
  // The same of groups of one channel, and kGroupsRows lines r of y at a time, which share what they read: taps lie below
  // each other in columns t of `height`, 3, 5 or 7, and lines l of x, from the first line's first tap on, exist from
  // `first` to `end` only. y[r, p, c] = sum over t, i < height, of which line r + i exists, of
  // x[at[t] + (r + i) * x_row + p * x_step + c] * w[w_at[t] + i * w_row + c].
  void (*lines)(int64_t height, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_row,
                int64_t x_step, int64_t first, int64_t end, const float* w, int64_t w_row, float* y, int64_t y_row,
                int64_t y_step, int64_t pixels, int64_t channels);
  // sums[(place[t] * size + i) * lanes + c] += sum over rows r and pixels p of dy[r * dy_row + p * dy_step + c]
  // * x[at[t] + r * x_row + p * x_step + i], c < lanes.
  void (*filters)(int64_t size, const int64_t* at, const int64_t* place, int64_t taps, const float* x, int64_t x_row,
                  int64_t x_step, const float* dy, int64_t dy_row, int64_t dy_step, int64_t rows, int64_t pixels,
                  float* sums);
};

MINIDNN_PER_ISA(GroupsKernels, groups_kernels)

}  // namespace minidnn
