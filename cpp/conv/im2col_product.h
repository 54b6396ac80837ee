// SPDX-License-Identifier: Apache-2.0
// The matrix product that an im2col convolution computes for a chunk of images.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/im2col_math.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

struct Im2colChunk {
  // `x` describes the im2col matrix of x, which the product reads or which is summed into dx. `dy` describes the copy
  // of dy, if dy is copied.
  ConvColumns x, dy;
  bool gathers_x = false, gathers_dy = false, sums_dx = false;
  MatmulProblem product;
};

// Describes a chunk of `images` images. If `accumulates` is true, the product adds to sums of dw in the workspace.
Im2colChunk im2col_chunk(const ConvProblem&, int64_t images, bool accumulates);

// Returns the reason why the strides of an operand do not fit a matrix product. Returns an empty string if they fit.
std::string im2col_why_not(const ConvProblem&);
// Returns true if w (or dw) has the strides of a matrix with one row per filter. The product can then use w in place.
bool has_filter_matrix(const ConvProblem&);

// Returns the number of elements of the im2col matrix of x, including padding.
double columns_elements(const ConvGeometry&);
// Describes the sums of dw over all chunks of images. The descriptor has the shape of dw.
TensorDesc im2col_sums(const ConvProblem&);

}  // namespace minidnn
