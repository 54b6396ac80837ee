// SPDX-License-Identifier: Apache-2.0
// What reductions' kernels and their engines share: the parameters of dense.cu, and sizes of blocks. Std-free.
#pragma once
#include "cpp/reduce/reduce_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kReduceThreads = 256;
constexpr int kReduceAhead = 4;  // vectors of 16 bytes that a thread has in flight

// Outputs whose elements lie in runs beside each other. An output is cut into parts: so many slices of each run, times
// groups of runs.
struct ReduceRows {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, kept, runs;  // where results go, outputs begin, and runs lie from there
  int64_t items, parts, slices, slice, run, runs_a_part, count;  // slice and run: elements
  int64_t lanes;                                                 // threads at an item, a part of an output
};

// Outputs that lie beside each other, x[outer][row][column], rows a pitch apart.
struct ReduceColumns {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, outer;
  int64_t columns, column_blocks, rows, pitch, parts, rows_a_part, outputs;
  int64_t lanes;       // threads side by side; the others of a block take other rows
  int64_t wide;        // the vectors of a row begin at multiples of 16 bytes
  int64_t whole_rows;  // behind whose columns x goes on for two vectors and more
};

// The parts of an output, `output_step` and `part_step` apart.
struct ReduceParts {
  ReduceMode mode;
  TensorDesc y;
  int64_t outputs, parts, output_step, part_step, count, lanes;
};

}  // namespace minidnn
