// SPDX-License-Identifier: Apache-2.0
// The inner loops of channels-last convolutions with few channels per group, compiled once per instruction set. A
// vector holds some channels of one pixel. `size` is the number of channels of a group on both sides: 1, 2, 4 or 8, and
// at most the lanes of a vector.
#pragma once
#include <cstdint>

#include "cpp/core/isa.h"

namespace minidnn {

constexpr int64_t kGroupsRows = 7;  // lines at a time: 7 divides the 7, 14, 28, 56 and 112 lines of most images

struct GroupedNhwcKernels {
  int64_t lanes;
  // y[p, c] = sum over taps t and channels i of c's group of x[at[t] + p * x_step + i] * w[w_at[t] + i * w_step + c],
  // for p < pixels and c < channels, a multiple of lanes. Offsets and steps are in elements.
  void (*pixels)(int64_t size, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step,
                 const float* w, int64_t w_step, float* y, int64_t y_step, int64_t pixels, int64_t channels);
  // Like `pixels` for groups of one channel, but for kGroupsRows lines r of y at a time, which share their loads. The
  // taps form columns t of `height` (3, 5 or 7) consecutive lines. Lines of x are counted from the first line's first
  // tap, and exist only from `first` to `end`. y[r, p, c] = sum over t and i < height, where line r + i exists, of
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

MINIDNN_PER_ISA(GroupedNhwcKernels, grouped_nhwc_kernels)

}  // namespace minidnn
