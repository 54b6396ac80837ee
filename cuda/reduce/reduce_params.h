// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of reductions, and block sizes. Std-free.
#pragma once
#include "cpp/reduce/reduce_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kReduceThreads = 256;
constexpr int kReduceAhead = 4;  // vectors of 16 bytes that a thread has in flight

// Outputs whose elements are stored in contiguous spans. An output is divided into chunks. If an output has several
// spans, a chunk has spans_per_chunk of them, or one of the `slices` slices of a span.
struct ReduceRows {
  ReduceMode mode;
  CachePolicy policy;
  // Offsets: of results in y, of an output's first element in x, and of its spans from there.
  TensorDesc y, kept, spans;
  int64_t items, chunks, slices, slice, span, spans_per_chunk, count;  // slice and span are numbers of elements
  int64_t lanes;  // threads per item; an item is a chunk of an output
};

// Contiguous outputs: x[outer][row][column] is reduced over rows, which are `pitch` elements apart.
struct ReduceColumns {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, outer;
  int64_t columns, column_blocks, rows, pitch, chunks, rows_per_chunk, outputs;
  int64_t lanes;       // threads along a row; the others of a block read other rows
  int64_t wide;        // the vectors of a row begin at multiples of 16 bytes
  int64_t whole_rows;  // rows after whose columns x has at least two more vectors
};

// Partial results: outputs are output_step elements apart, the chunks of an output chunk_step.
struct ReduceCombine {
  ReduceMode mode;
  TensorDesc y;
  int64_t outputs, chunks, output_step, chunk_step, count, lanes;
};

}  // namespace minidnn
