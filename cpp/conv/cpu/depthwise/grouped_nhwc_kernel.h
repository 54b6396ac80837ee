// SPDX-License-Identifier: Apache-2.0
// The inner loops of channels-last convolutions with few channels per group, compiled once per instruction set. A SIMD
// vector holds neighbouring channels of one pixel. `size` is the number of input channels of a group, and also its
// number of output channels. It is 1, 2, 4 or 8, and at most the number of lanes of a vector.
#pragma once
#include <cstdint>

#include "cpp/core/cpu/isa.h"

namespace minidnn {

// Number of result lines (image rows) that are computed together. It is 7 because most images have 7, 14, 28, 56 or 112
// lines.
constexpr int64_t kGroupedNhwcRows = 7;

// The arguments of the kernels pixels() and lines(). Offsets and strides are in elements.
struct GroupedNhwcSums {
  // For each tap (window element), its offset in x and in w.
  const int64_t *at, *w_at;
  int64_t taps;
  const float* x;
  int64_t x_step, x_row;
  const float* w;
  int64_t w_step;
  float* y;
  int64_t y_step, y_row;
  // `channels` is a multiple of the number of lanes of a vector.
  int64_t pixels, channels;
  // For lines() only: the window height, and the range of rows inside the image.
  int64_t height = 1, first = 0, end = 0;
};

// The arguments of the kernel filters().
struct GroupedNhwcFilterSums {
  // For each tap (window element), its offset in x and the index of its sums.
  const int64_t *at, *slot;
  int64_t taps;
  const float* x;
  int64_t x_row, x_step;
  const float* dy;
  int64_t dy_row, dy_step;
  int64_t rows, pixels;
  float* sums;
};

struct GroupedNhwcKernels {
  int64_t lanes;
  // Computes the pixels of one result line (image row). For all pixels p < pixels and channels c < channels:
  //   y[p, c] = sum over taps t and i of x[at[t] + p * x_step + i] * w[w_at[t] + i * w_step + c]
  // Here i iterates over the channels of the group that contains c.
  void (*pixels)(int64_t size, const GroupedNhwcSums&);
  // Computes kGroupedNhwcRows image rows of y together, which share loads of x. Groups have one channel, and each
  // column t of the window has `height` (3, 5 or 7) elements.
  //   y[r, p, c] = sum over t and i < height of
  //     x[at[t] + (r + i) * x_row + p * x_step + c] * w[w_at[t] + i * w_step + c]
  // Terms whose row r + i is outside [first, end) are left out.
  void (*lines)(const GroupedNhwcSums&);
  // Adds products to the sums of dw. For all c < lanes, taps t and i < size:
  //   sums[(slot[t] * size + i) * lanes + c] += sum over r < rows and p < pixels of
  //     dy[r * dy_row + p * dy_step + c] * x[at[t] + r * x_row + p * x_step + i]
  void (*filters)(int64_t size, const GroupedNhwcFilterSums&);
};

MINIDNN_PER_ISA(GroupedNhwcKernels, grouped_nhwc_kernels)

}  // namespace minidnn
