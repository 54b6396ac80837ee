// SPDX-License-Identifier: Apache-2.0
// The inner loops of channels-last convolutions with few channels per group, compiled once per instruction set. A
// vector holds some channels of one pixel. `size` is the number of channels of a group on both sides: 1, 2, 4 or 8, and
// at most the lanes of a vector.
#pragma once
#include <cstdint>

#include "cpp/core/isa.h"

namespace minidnn {

// Result lines that are computed together: 7 divides the 7, 14, 28, 56 and 112 lines of most images.
constexpr int64_t kGroupedNhwcRows = 7;

// The operands of `pixels` pixels of one result line, or of each of kGroupedNhwcRows lines. Offsets and steps are in
// elements.
struct GroupedNhwcSums {
  const int64_t *at, *w_at;  // for each tap: the offset in x of its first element, and in w of its first weight
  int64_t taps;
  const float* x;
  int64_t x_step, x_row;
  const float* w;
  int64_t w_step;
  float* y;
  int64_t y_step, y_row;
  int64_t pixels, channels;                // channels: a multiple of the lanes of a vector
  int64_t height = 1, first = 0, end = 0;  // only used by lines()
};

// Sums of a filter gradient over `rows` x `pixels` elements of dy.
struct GroupedNhwcFilterSums {
  const int64_t *at, *slot;  // for each tap: the offset in x of its first element, and the index of its sums
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
  // y[p, c] = sum over taps t and channels i of c's group of x[at[t] + p * x_step + i] * w[w_at[t] + i * w_step + c],
  // for p < pixels and c < channels.
  void (*pixels)(int64_t size, const GroupedNhwcSums&);
  // Like `pixels` for groups of one channel, but for kGroupedNhwcRows lines r of y at a time, which share their loads.
  // The taps form columns t of `height` (3, 5 or 7) consecutive lines. Lines of x are counted from the first line's
  // first tap, and exist only from `first` to `end`. y[r, p, c] = sum over t and i < height, where line r + i exists,
  // of x[at[t] + (r + i) * x_row + p * x_step + c] * w[w_at[t] + i * w_step + c].
  void (*lines)(const GroupedNhwcSums&);
  // sums[(slot[t] * size + i) * lanes + c] += sum over rows r and pixels p of dy[r * dy_row + p * dy_step + c]
  // * x[at[t] + r * x_row + p * x_step + i], c < lanes.
  void (*filters)(int64_t size, const GroupedNhwcFilterSums&);
};

MINIDNN_PER_ISA(GroupedNhwcKernels, grouped_nhwc_kernels)

}  // namespace minidnn
