// SPDX-License-Identifier: Apache-2.0
// The output of a matrix product as the epilogues read it. Std-free.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// The output of one view: its offset in y, and how many of each digit of m exist (digits may be rounded up). For
// GemmStore::phases, the limits are those of n.
struct GemmOutputBounds {
  int64_t y_offset = 0;
  int64_t limit[kDigits]{1, 1, 1, 1};
};

// How the sums of a tile are stored in y:
//   lines    rows are contiguous in memory; stored by vectors
//   transposed  16-bit columns are contiguous; exchanged through shared memory
//   any      any strides
//   columns  float32 columns are contiguous, and a lane has neighbouring rows
//   phases   like columns, for the phases of backward_data, whose columns have no common stride
//   summed   like lines; the columns are also added up
enum class GemmStore : int64_t { lines, transposed, any, columns, phases, summed };
constexpr int kLinesBytes = 16 * 128;  // bytes of shared memory for each warp that stores `lines` or `transposed`

// The layout of y, c and the bias, by digits of m and n that may differ from the view's: neighbouring digits are joined
// if all three tensors have one stride over them.
struct GemmOutput {
  GemmIndex m, n, batch;
  FastDivmod m_divisor[kDigits], n_divisor[kDigits], batch_divisor[kDigits];
  int64_t n_limit = 0;  // how much of n's last digit exists; the digit itself may be rounded up
  GemmOutputBounds bounds;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch, bias, bias_batch;
  int64_t bias_by_row = 0;   // 1: the bias has one element for each m, else for each n
  int64_t bias_along_n = 0;  // 1: neighbouring columns have neighbouring elements of the bias, or there is no bias
  // 1: eight columns from a multiple of eight on are neighbours in memory, all exist or none does, and they are aligned
  // as a whole (float32: to 16 bytes).
  int64_t y_vectors = 0, c_vectors = 0;
  int64_t y_transposed = 0;  // 1: 16-bit rows are neighbours in y, four by four, and aligned; columns have one stride
  int64_t y_columns = 0;     // 1: the same for float32 rows, in c too; columns have any strides
};

}  // namespace minidnn
