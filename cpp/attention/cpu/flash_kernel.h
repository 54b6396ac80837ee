// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.attention.flash over the rows of a tile of scores, compiled once per instruction set
// (flash_isa.cpp). Matrix products are those of gemm_microkernel.h. All numbers are float32. A `pitch` is the distance
// between rows, in elements. Sizes named `padded` are multiples of GemmKernel::columns.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/desc.h"

namespace minidnn {

constexpr int64_t kFlashColumns = 256;  // the most columns of a tile

// How a call makes scores from products q k^T.
struct FlashScores {
  float scale = 1, softcap = 0;  // softcap: 0 if there is none
  DType bias_type{};
  int64_t bias_step = 0;  // distance between columns of the bias, in elements
  float keep = 1;         // the factor of dropout
};

// One row of a tile. The numbers of columns count from the first column of the tile.
struct FlashRow {
  int64_t begin, end;  // the columns that the row sees
  const void* bias;    // the bias of the tile's first column, or null
  bool has_slope;      // ALiBi: slope * abs(position - column) is subtracted
  float slope;
  int64_t position;
  const float* kept;  // 1 for each column that dropout keeps, and 0 for the others; null without dropout
};

struct FlashDropout {
  uint64_t seed, offset, threshold;
};

// The running sums of a row: the largest score, and the sum of exp(score - largest).
struct FlashSums {
  float largest, sum;
};

// What backward knows about a row: lse, and delta, the sum of d_o o. If dz is not null, the gradients of scores are added
// to it.
struct FlashGradients {
  float lse, delta;
  float* dz;
};

// A tile with few rows, whose products read the columns without packing. `columns` is a multiple of
// GemmKernel::columns. The rows of q, o, k and v have the stride `padded`.
struct FlashFew {
  int64_t rows, columns, padded;
  float* of_rows;           // q or o
  const float* of_columns;  // k or v
  float* products;
  int64_t pitch;
};

struct FlashKernels {
  // Replaces products by probabilities exp(score - largest) in the columns from `from` to `to`, multiples of a vector
  // that contain all visible columns. Hidden columns become 0. Returns the factor of all earlier probabilities.
  float (*forward)(const FlashScores&, const FlashRow&, float* products, int64_t from, int64_t to, FlashSums&);
  // Replaces products by probabilities (after dropout, without its factor), and d_p, the gradients of probabilities, by
  // gradients of products, in `columns` columns.
  void (*backward)(const FlashScores&, const FlashRow&, float* products, float* d_p, int64_t columns,
                   const FlashGradients&);
  // Converts n elements that are `step` apart to floats, and writes zeros behind them up to `padded` floats. Indexed by
  // DType; null for float64 and for types without arithmetic.
  void (*widen[4])(const void* from, int64_t step, int64_t n, float* to, int64_t padded);
  // Rounds factor * from[i] to n elements that are `step` apart.
  void (*narrow[4])(const float* from, float factor, int64_t n, void* to, int64_t step);
  // Writes 1 for each number that dropout keeps, and 0 for the others: 4 * groups numbers, from number 4 * first on.
  void (*keep)(const FlashDropout&, uint64_t first, int64_t groups, float* kept);
  void (*multiply_by)(float* v, float factor, int64_t padded);
  // to += factor * from.
  void (*add)(const float* from, float factor, float* to, int64_t padded);
  float (*dot)(const float* x, const float* y, int64_t padded);
  // score_rows: products[i, j] = sum over d < padded of of_rows[i, d] of_columns[j, d].
  // value_rows: of_rows[i, d] += sum over j of products[i, j] of_columns[j, d].
  void (*score_rows)(const FlashFew&);
  void (*value_rows)(const FlashFew&);
};

MINIDNN_PER_ISA(FlashKernels, flash_kernels)

}  // namespace minidnn
