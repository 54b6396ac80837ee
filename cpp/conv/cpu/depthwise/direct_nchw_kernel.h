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

// Describes lines (image rows) with zeros around them. `above`, `rows` and `below` are numbers of lines. `before`,
// `count` and `after` are numbers of elements of each line. The `rows` lines have `count` elements of data each. All
// other elements are zero.
struct PaddedLines {
  int64_t above, rows, below, before, count, after;
};

// The arguments of DirectNchwKernels::sums(), which computes `rows` x `columns` results of some filters.
struct DirectNchwSums {
  const int64_t* at;  // the offset in x of each window column (vertically adjacent window elements)
  int64_t taps;
  const float* x;
  int64_t x_row, first, end;
  const float* w;
  float* y;
  int64_t y_filter, y_row, rows, columns;
};

// The arguments of DirectNchwKernels::filters(). This function computes sums of dw over `rows` lines (image rows) and
// `columns` columns of dy.
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
  // If the window has at least this height, sums() reads no input lines (image rows) outside the image.
  int64_t skips;
  // Computes results of a convolution for all rows r < rows, columns c < columns and filters j < filters. The window
  // has `taps` columns of `height` elements each. `filters` is 1, 2, 4 or 8, and is 1 if height > 1.
  //   y[j, r, c] = sum over t < taps and i < height of
  //     x[at[t] + (r + i) * x_row + c] * w[(t * height + i) * filters + j]
  // The function reads whole vectors of x. If height >= `skips`, terms whose row r + i is outside the range [first,
  // end) are left out.
  void (*sums)(int64_t filters, int64_t height, const DirectNchwSums&);
  // Adds products to the sums of dw. sums[t * filters + j] is a vector of partial sums for tap t (window element) and
  // filter j. For all r < rows and c < columns, the function adds to this vector:
  //   x[at[t] + r * x_row + c] * dy[j * dy_filter + r * dy_row + c]
  // Row r of dy is padded to whole vectors. Row r of x need not be.
  void (*filters)(int64_t filters, const DirectNchwFilterSums&);
  // Converts lines (image rows) to float32 and writes them to `to` one after the other. The function may overwrite up
  // to one vector after the last line. Element i of line r is from[r * row + i * step]. The three function pointers
  // read float32, float16 and bfloat16.
  void (*copy[3])(const PaddedLines&, const void* from, int64_t row, int64_t step, float* to);
  float (*total)(const float* vector);  // returns the sum of the lanes of a vector
};

MINIDNN_PER_ISA(DirectNchwKernels, direct_nchw_kernels)

}  // namespace minidnn
