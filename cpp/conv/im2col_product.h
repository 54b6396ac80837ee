// SPDX-License-Identifier: Apache-2.0
// The matrix product that an im2col convolution computes for a chunk of images: which operands are copied to an im2col
// matrix first, and the strides of all operands as matrices.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/im2col_math.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

// What must be computed for one chunk of images.
struct Im2colChunk {
  // x: the im2col matrix of x, which is gathered from x or summed into dx. dy: the copy of dy, if one is made.
  ConvColumns x, dy;
  bool gathers_x = false, gathers_dy = false, sums_dx = false;
  MatmulProblem product;
};

// Describes one chunk of `images` images. If `accumulates`, the product adds dw to sums [groups, filters, channels x
// taps] in the workspace. Otherwise, it writes its result directly.
Im2colChunk im2col_chunk(const ConvProblem&, int64_t images, bool accumulates);

// Returns why the strides of an operand do not fit a matrix product. Empty if they fit.
std::string im2col_why_not(const ConvProblem&);
// Whether w (or dw) has the strides of a matrix with one row per filter, so that the product can use it in place.
bool has_filter_matrix(const ConvProblem&);

// dtype of the sums for operands of the given dtype: float64 for float64, else float32
DType sum_dtype(DType);
// number of elements of the im2col matrix of x, with its padding
double columns_elements(const ConvGeometry&);
// Describes the sums of dw over all chunks of images, as a tensor of dw's shape.
TensorDesc im2col_sums(const ConvProblem&);

}  // namespace minidnn
