// SPDX-License-Identifier: Apache-2.0
// The layout of the output of a matrix product, as the epilogues read it. This file does not use the standard library,
// because kernels include it.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// The bounds of the output of one GemmView. `y_offset` is the offset of the output in y, in elements. `limit` are the
// exact sizes of the digits (dimensions) of index m or, if the store is GemmStore::phases, of index n. The GemmIndex of
// m or n may have larger sizes, which are rounded up.
struct GemmOutputBounds {
  int64_t y_offset = 0;
  int64_t limit[kDigits]{1, 1, 1, 1};
};

// GemmStore is the way to store the sums of a tile in y:
//   lines       for contiguous rows; stores vectors along rows
//   transposed  for contiguous columns of 16-bit elements; exchanges rows and columns through shared memory
//   any         for any strides; stores one element at a time
//   columns     for contiguous columns of float32, if each lane has sums of neighbouring rows
//   phases      like columns, for strided backward_data, whose columns have no common stride
//   summed      like lines; also computes the sums of each column
enum class GemmStore : int64_t { lines, transposed, any, columns, phases, summed };
// the number of bytes of shared memory that each warp needs for GemmStore::lines, transposed or summed
constexpr int kLinesBytes = 16 * 128;

// The layout of y, c and the bias. The indices m, n and batch consist of digits (dimensions). They may have fewer
// digits here than in the GemmView: neighbouring digits are joined if each of y, c and bias has a single stride over
// the joined digit.
struct GemmOutput {
  GemmIndex m, n, batch;
  FastDivmod m_divisor[kDigits], n_divisor[kDigits], batch_divisor[kDigits];
  // The exact size of the last digit (dimension) of index n. The GemmView may have rounded up this size.
  int64_t n_limit = 0;
  GemmOutputBounds bounds;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch, bias, bias_batch;
  // 1 if the bias has one element for each row (m), 0 if it has one element for each column (n).
  int64_t bias_by_row = 0;
  // 1 if there is no bias, or if the elements of the bias for neighbouring columns are contiguous.
  int64_t bias_along_n = 0;
  // y_vectors is 1 if y can be accessed by vectors of eight columns, and c_vectors is 1 if c can. The eight columns of
  // a vector are then contiguous and aligned (float32: to 16 bytes). Either all eight columns exist, or none does.
  int64_t y_vectors = 0, c_vectors = 0;
  // 1 if GemmStore::transposed can store y. y then has 16-bit elements, four neighbouring rows of y are an aligned
  // vector in memory, and all columns have one stride.
  int64_t y_transposed = 0;
  // 1 if y and c are float32, and four neighbouring rows of each are an aligned vector in memory. Their columns may
  // have any strides.
  int64_t y_columns = 0;
};

}  // namespace minidnn
