// SPDX-License-Identifier: Apache-2.0
// The loops of convolutions with few channels in a group, whose pixels are neighbours in memory, compiled once per
// instruction set: a vector is neighbouring pixels of a line. What they read has zeros around it (conv_planes.cpp), so
// that all taps meet something everywhere. Offsets and steps are in elements.
#pragma once
#include <cstdint>

#include "cpp/cpu/isa.h"

namespace minidnn {

// Lines of a result that one filter computes together: they divide the 7, 14, 28, 56 and 112 of most images.
constexpr int kPlanesRows = 7;
// Taps of one column of a window, one line below the other, read what the lines above or below have read.
constexpr int kPlanesHeights[] = {1, 3, 5, 7};

// Lines of `count` elements with zeros around: so many lines, and elements of each, before and after.
struct PlanesLines {
  int64_t above, rows, below, before, count, after;
};

struct PlanesKernels {
  int64_t lanes;
  int64_t skips;  // the least height of columns of taps that leave out lines which do not exist
  // y[j, r, c] = sum over t < taps, i < height of x[at[t] + (r + i) * x_row + c] * w[(t * height + i) * filters + j],
  // r < rows, c < columns, j < filters: 1, 2, 4 or 8, and 1 where height is not. Of x it reads whole vectors,
  // from `skips` on of the lines r + i from `first` to `end` alone.
  void (*sums)(int64_t filters, int64_t height, const int64_t* at, int64_t taps, const float* x, int64_t x_row,
               int64_t first, int64_t end, const float* w, float* y, int64_t y_filter, int64_t y_row, int64_t rows,
               int64_t columns);
  // Vectors sums[t * filters + j] += x[at[t] + r * x_row + c] * dy[j * dy_filter + r * dy_row + c] over r < rows and the
  // vectors from c < columns, the last one perhaps in part: lines of dy are whole vectors.
  void (*filters)(int64_t filters, const int64_t* at, int64_t taps, const float* x, int64_t x_row, const float* dy,
                  int64_t dy_filter, int64_t dy_row, int64_t rows, int64_t columns, float* sums);
  // Writes them one after the other, and a vector of what follows; element i of line r is from[r * row + i * step]. Of
  // float32, float16, bfloat16.
  void (*copy[3])(const PlanesLines&, const void* from, int64_t row, int64_t step, float* to);
  float (*total)(const float* vector);  // of its lanes
};

MINIDNN_PER_ISA(PlanesKernels, planes_kernels)

}  // namespace minidnn
