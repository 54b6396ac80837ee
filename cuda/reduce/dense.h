// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of reductions and their engines: the parameters of dense.cu, and block sizes. Std-free.
#pragma once
#include "cpp/reduce/reduce_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kReduceThreads = 256;
constexpr int kReduceAhead = 4;  // vectors of 16 bytes that a thread has in flight

// Outputs whose elements are stored in runs (contiguous spans). An output is split into parts: each run into `slices`,
// and the runs into groups of runs_a_part.
struct ReduceRows {
  ReduceMode mode;
  CachePolicy policy;
  // Offsets: of results in y, of an output's first element in x, and of its runs from there.
  TensorDesc y, kept, runs;
  int64_t items, parts, slices, slice, run, runs_a_part, count;  // slice and run: elements
  int64_t lanes;                                                 // threads for each item, a part of an output
};

// Contiguous outputs: x[outer][row][column] is reduced over rows, which are `pitch` elements apart.
struct ReduceColumns {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, outer;
  int64_t columns, column_blocks, rows, pitch, parts, rows_a_part, outputs;
  int64_t lanes;       // threads along a row; the others of a block read other rows
  int64_t wide;        // the vectors of a row begin at multiples of 16 bytes
  int64_t whole_rows;  // rows after whose columns x has at least two more vectors
};

// Partial results: outputs are output_step elements apart, the parts of an output part_step.
struct ReduceParts {
  ReduceMode mode;
  TensorDesc y;
  int64_t outputs, parts, output_step, part_step, count, lanes;
};

}  // namespace minidnn
