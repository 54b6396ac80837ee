// SPDX-License-Identifier: Apache-2.0
// The inner loops of the CPU engine direct_nchw, compiled once per instruction set. They compute convolutions with few
// channels per group whose pixels are contiguous. A SIMD vector holds neighbouring pixels of an image row. The input of
// the loops is a copy with zeros around it, so every window element falls on an element of the copy. Offsets and
// strides are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/cpu/isa.h"

namespace minidnn {

// Number of result lines (image rows) that are computed together for one filter. It is 7 because most images have 7,
// 14, 28, 56 or 112 lines.
constexpr int kDirectNchwRows = 7;
// The window heights for which the kernel processes a window column by column. The window elements of one column share
// their loads of input rows.
constexpr int kDirectNchwHeights[] = {1, 3, 5, 7};

// Image rows with zeros around them. `above`, `rows` and `below` are numbers of rows. `before`, `count` and `after` are
// numbers of elements per row. Only `rows` x `count` elements are data.
struct PaddedLines {
  int64_t above, rows, below, before, count, after;
};

// The arguments of DirectNchwKernels::sums().
struct DirectNchwSums {
  const int64_t* at;  // the offset in x of each window column (vertically adjacent window elements)
  int64_t taps;
  const float* x;
  int64_t x_row, first, end;
  const float* w;
  float* y;
  int64_t y_filter, y_row, rows, columns;
};

// The arguments of DirectNchwKernels::filters().
struct DirectNchwFilterSums {
  const int64_t* at;  // the offset in x of each tap (window element)
  int64_t taps;
  const float* x;
  int64_t x_row;
  const float* dy;
  int64_t dy_filter, dy_row, rows, columns;
  float* sums;
};

struct DirectNchwKernels {
  int64_t lanes;
  // From this window height on, sums() does not read rows outside the image.
  int64_t skips;
  // Computes for all rows r < rows, columns c < columns and filters j < filters (1, 2, 4 or 8; 1 if height > 1):
  //   y[j, r, c] = sum over t < taps and i < height of
  //     x[at[t] + (r + i) * x_row + c] * w[(t * height + i) * filters + j]
  // Reads whole vectors of x. If height >= skips, terms whose row r + i is outside [first, end) are left out.
  void (*sums)(int64_t filters, int64_t height, const DirectNchwSums&);
  // Adds to the vector of partial sums sums[t * filters + j], for all r < rows and c < columns:
  //   x[at[t] + r * x_row + c] * dy[j * dy_filter + r * dy_row + c]
  // Rows of dy are padded to whole vectors. Rows of x need not be.
  void (*filters)(int64_t filters, const DirectNchwFilterSums&);
  // Converts image rows to float32 and writes them, with zeros around them, one after the other. Element i of row r is
  // from[r * row + i * step]. The function may overwrite up to one vector after the last row. The three pointers are
  // for float32, float16 and bfloat16.
  void (*copy[3])(const PaddedLines&, const void* from, int64_t row, int64_t step, float* to);
  float (*total)(const float* vector);  // returns the sum of the lanes of a vector
};

MINIDNN_PER_ISA(DirectNchwKernels, direct_nchw_kernels)

}  // namespace minidnn
