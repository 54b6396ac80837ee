// SPDX-License-Identifier: Apache-2.0
// The inner loops of convolutions with few channels per group whose pixels are contiguous, compiled once per
// instruction set. A vector holds neighbouring pixels of a line. The input has zeros around it (direct_nchw.cpp), so
// every tap falls on an element. Offsets and steps are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/isa.h"

namespace minidnn {

// Result lines that one filter computes together: 7 divides the 7, 14, 28, 56 and 112 lines of most images.
constexpr int kDirectNchwRows = 7;
// Supported heights of a column of taps. The taps of a column are on consecutive lines and share the loads of these
// lines.
constexpr int kDirectNchwHeights[] = {1, 3, 5, 7};

// Lines of `count` elements with zeros around them. above, rows, below: numbers of lines; before, count, after:
// elements of each line.
struct PaddedLines {
  int64_t above, rows, below, before, count, after;
};

// Results of `filters` filters, `rows` lines and `columns` columns.
struct DirectNchwSums {
  const int64_t* at;  // offset in x of each column of taps
  int64_t taps;
  const float* x;
  int64_t x_row, first, end;
  const float* w;
  float* y;
  int64_t y_filter, y_row, rows, columns;
};

// Sums of a filter gradient over `rows` lines and `columns` columns of dy.
struct DirectNchwFilterSums {
  const int64_t* at;  // offset in x of each tap
  int64_t taps;
  const float* x;
  int64_t x_row;
  const float* dy;
  int64_t dy_filter, dy_row, rows, columns;
  float* sums;
};

struct DirectNchwKernels {
  int64_t lanes;
  int64_t skips;  // for windows of this height or more, lines outside the input are not read
  // y[j, r, c] = sum over t < taps, i < height of x[at[t] + (r + i) * x_row + c] * w[(t * height + i) * filters + j]
  // for r < rows, c < columns, j < filters. `filters` is 1, 2, 4 or 8, and 1 if height > 1. x is read in whole vectors.
  // If height >= `skips`, only the lines r + i from `first` to `end` are read.
  void (*sums)(int64_t filters, int64_t height, const DirectNchwSums&);
  // Adds to the vectors sums[t * filters + j]: x[at[t] + r * x_row + c] * dy[j * dy_filter + r * dy_row + c], over r <
  // rows and the vectors from c < columns. The last vector may be partial; lines of dy are padded to whole vectors.
  void (*filters)(int64_t filters, const DirectNchwFilterSums&);
  // Writes the lines one after the other, and up to one vector after them. Element i of line r is from[r * row + i *
  // step]. One function each for float32, float16 and bfloat16.
  void (*copy[3])(const PaddedLines&, const void* from, int64_t row, int64_t step, float* to);
  float (*total)(const float* vector);  // sum of the lanes of a vector
};

MINIDNN_PER_ISA(DirectNchwKernels, direct_nchw_kernels)

}  // namespace minidnn
