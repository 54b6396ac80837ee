// SPDX-License-Identifier: Apache-2.0
// The matrix product that a convolution by im2col computes for a chunk of images: which operands are gathered into
// columns, and the strides of all operands as matrices.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/im2col_math.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

// The operations for one chunk of images.
struct Im2colChunk {
  ConvColumns x, dy;  // how x and dy are gathered into columns, or how x's columns are summed into dx
  bool gathers_x = false, gathers_dy = false, sums_dx = false;
  MatmulProblem product;
};

// `accumulates`: the product adds to [groups, filters, channels x taps] in the workspace instead of writing dw.
Im2colChunk im2col_chunk(const ConvProblem&, int64_t images, bool accumulates);

// Empty, or why the strides of an operand do not fit a matrix product.
std::string im2col_why_not(const ConvProblem&);
// Whether w (or dw) can be read (or written) as a matrix with one row per filter.
bool has_filter_matrix(const ConvProblem&);

// The dtype of sums, for operands of a dtype.
DType sum_dtype(DType);
// The number of elements in the columns of x, with padding.
double columns_elements(const ConvGeometry&);
// The sums of a chunked filter gradient as a tensor of dw's shape.
TensorDesc im2col_sums(const ConvProblem&);

}  // namespace minidnn
