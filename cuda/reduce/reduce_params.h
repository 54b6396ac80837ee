// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of reductions, and the sizes of their blocks. This file does not use the standard
// library.
#pragma once
#include "cpp/reduce/reduce_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kReduceThreads = 256;
constexpr int kReduceAhead = 4;  // the 16-byte vectors that a thread has in flight

// A reduction whose elements are stored in contiguous spans. The elements of each output are divided into chunks. If an
// output has several spans, a chunk is spans_per_chunk whole spans, or one of the `slices` slices of a span.
struct ReduceRows {
  ReduceMode mode;
  CachePolicy policy;
  // `y` gives the offset of each result. `kept` gives the offset in x of each output's first element, and `spans` the
  // offset of each of its spans from there.
  TensorDesc y, kept, spans;
  // items: the chunks of all outputs. slice and span: elements of a slice and of a span. count: elements per output.
  int64_t items, chunks, slices, slice, span, spans_per_chunk, count;
  int64_t lanes;  // the number of threads that process one chunk of an output
};

// A reduction whose outputs are adjacent: x[outer][row][column] is reduced over the rows, which are `pitch` elements
// apart.
struct ReduceColumns {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, outer;
  int64_t columns, column_blocks, rows, pitch, chunks, rows_per_chunk, outputs;
  int64_t lanes;  // the number of threads that read along one row; the block's other threads read other rows
  int64_t wide;   // 1 if the vectors of each row begin at multiples of 16 bytes, otherwise 0
  // In the first whole_rows rows, a thread can load two vectors at any column without reading past the end of x.
  int64_t whole_rows;
};

// The partial results to combine. Neighbouring outputs are output_step elements apart, and neighbouring chunks of an
// output chunk_step elements.
struct ReduceCombine {
  ReduceMode mode;
  TensorDesc y;
  int64_t outputs, chunks, output_step, chunk_step, count, lanes;
};

}  // namespace minidnn
