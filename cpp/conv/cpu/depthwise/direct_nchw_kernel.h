// SPDX-License-Identifier: Apache-2.0
// The inner loops of convolutions with few channels per group whose pixels are contiguous, compiled once per
// instruction set. A SIMD vector holds neighbouring pixels of a line (a row of the image). direct_nchw.cpp surrounds
// the input with zeros, so every tap (window element) reads an element of it. Offsets and steps are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/isa.h"

namespace minidnn {

// Number of result lines (image rows) that are computed together for one filter. It is 7 because most images have 7,
// 14, 28, 56 or 112 lines.
constexpr int kDirectNchwRows = 7;
// Window heights for which the kernel computes a column of taps (vertically adjacent window elements) together. The
// taps of a column share their loads of input lines.
constexpr int kDirectNchwHeights[] = {1, 3, 5, 7};

// Lines (image rows) with zeros around them. above, rows, below: numbers of lines. before, count, after: elements of
// each line. All lines but `rows` and all elements but `count` are zero.
struct PaddedLines {
  int64_t above, rows, below, before, count, after;
};

// The arguments of DirectNchwKernels::sums, which computes `rows` x `columns` results of some filters.
struct DirectNchwSums {
  const int64_t* at;  // offset in x of each column of taps (vertically adjacent window elements)
  int64_t taps;
  const float* x;
  int64_t x_row, first, end;
  const float* w;
  float* y;
  int64_t y_filter, y_row, rows, columns;
};

// The arguments of DirectNchwKernels::filters, which adds up dw over `rows` lines and `columns` columns of dy.
struct DirectNchwFilterSums {
  const int64_t* at;  // offset in x of each tap (window element)
  int64_t taps;
  const float* x;
  int64_t x_row;
  const float* dy;
  int64_t dy_filter, dy_row, rows, columns;
  float* sums;
};

struct DirectNchwKernels {
  int64_t lanes;
  int64_t skips;  // `sums` reads no input lines outside the image if the window has at least this height
  // Computes, for all r < rows, c < columns and j < filters:
  //   y[j, r, c] = sum over t < taps and i < height of
  //     x[at[t] + (r + i) * x_row + c] * w[(t * height + i) * filters + j]
  // `filters` is 1, 2, 4 or 8; it is 1 if height > 1. The function reads whole vectors of x. If height >= `skips`, it
  // only reads the lines r + i from `first` to `end`.
  void (*sums)(int64_t filters, int64_t height, const DirectNchwSums&);
  // Adds to sums[t * filters + j], each a vector of partial sums, for all r < rows and c < columns:
  //   x[at[t] + r * x_row + c] * dy[j * dy_filter + r * dy_row + c]
  // The last vector of a line may be partial. Lines of dy are padded to whole vectors.
  void (*filters)(int64_t filters, const DirectNchwFilterSums&);
  // Writes lines (image rows) to `to` one after the other, and overwrites up to one vector after them. Element i of
  // line r is from[r * row + i * step]. The three functions read float32, float16 and bfloat16.
  void (*copy[3])(const PaddedLines&, const void* from, int64_t row, int64_t step, float* to);
  float (*total)(const float* vector);  // the sum of the lanes of a vector
};

MINIDNN_PER_ISA(DirectNchwKernels, direct_nchw_kernels)

}  // namespace minidnn
