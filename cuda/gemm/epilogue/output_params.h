// SPDX-License-Identifier: Apache-2.0
// The layout of the output of a matrix product, as the epilogues read it. This file does not use the standard library,
// because kernels include it.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// The offset of the output in y, in elements, and the exact sizes of the dimensions of m or, for GemmStore::phases, of
// n. The sizes in GemmIndex may be rounded up.
struct GemmOutputBounds {
  int64_t y_offset = 0;
  int64_t limit[kDigits]{1, 1, 1, 1};
};

// GemmStore is the way to store the sums of a tile in y:
//   lines       for contiguous rows; stores vectors along rows
//   transposed  for contiguous columns of 16-bit elements; transposes tiles in shared memory
//   any         for any strides; stores one element at a time
//   columns     for contiguous columns of float32, if each lane has sums of adjacent rows
//   phases      like columns, for strided backward_data, whose columns have no common stride
//   summed      like lines; also computes the sums of each column
//   boxes       for contiguous rows with one stride; stores boxes by TMA (sm_90)
enum class GemmStore : int64_t { lines, transposed, any, columns, phases, summed, boxes };
// the number of bytes of shared memory that each warp needs for GemmStore::lines, transposed, summed or boxes
constexpr int kLinesBytes = 16 * 128;

// The layout of y, c and the bias. m, n and batch may have fewer dimensions than in the GemmView: dimensions that all
// three tensors store at a single stride are joined.
struct GemmOutput {
  GemmIndex m, n, batch;
  FastDivmod m_divisor[kDigits], n_divisor[kDigits], batch_divisor[kDigits];
  // The exact size of the last dimension of n, which the GemmView may round up.
  int64_t n_limit = 0;
  GemmOutputBounds bounds;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch, bias, bias_batch;
  // 1 if there is one bias per row (m), 0 if there is one per column (n)
  int64_t bias_by_row = 0;
  // 1 if the bias is contiguous along n, or if there is no bias
  int64_t bias_along_n = 0;
  // 1 if y (or c) can be accessed by vectors of eight contiguous, aligned columns, all inside of the tensor.
  int64_t y_vectors = 0, c_vectors = 0;
  // 1 if y has 16-bit elements, vectors of four rows are contiguous and aligned, and columns have one stride.
  int64_t y_transposed = 0;
  // 1 if y and c are float32, and vectors of four rows are contiguous and aligned. Columns may have any strides.
  int64_t y_columns = 0;
};

}  // namespace minidnn
