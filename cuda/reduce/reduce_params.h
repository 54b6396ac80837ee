// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of reductions, and the sizes of their blocks. An output is one element of the result.
// If it has many elements of x, these are divided into chunks: for example, 2^20 elements into 16 chunks of 65536. This
// file does not use the standard library, because NVRTC compiles it.
#pragma once
#include "cpp/reduce/reduce_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kReduceThreads = 256;
constexpr int kReduceAhead = 4;  // the number of 16-byte vectors whose loads a thread has in flight

// A reduction of elements that form contiguous spans. A chunk is spans_per_chunk whole spans or, if spans are long, one
// of `slices` slices of a span.
struct ReduceRows {
  ReduceMode mode;
  CachePolicy policy;
  // `y` gives the offset of each output in y, `kept` the offset in x of the output's first element, and `spans` the
  // offset of each of the output's spans, relative to that element.
  TensorDesc y, kept, spans;
  // `items` is the number of chunks of all outputs. `slice`, `span` and `count` are the numbers of elements in a slice,
  // in a span and in an output.
  int64_t items, chunks, slices, slice, span, spans_per_chunk, count;
  int64_t lanes;  // the number of threads per chunk
};

// A reduction of x[outer][row][column] over the rows. `pitch` is the stride of a row, in elements.
struct ReduceColumns {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, outer;
  int64_t columns, column_blocks, rows, pitch, chunks, rows_per_chunk, outputs;
  int64_t lanes;  // the number of threads of a block that read along the same row
  int64_t wide;   // 1 if the vectors of each row begin at multiples of 16 bytes, else 0
  // In the first whole_rows rows, a thread can load two vectors at any column without reading past the end of x.
  int64_t whole_rows;
};

// The partial results that a second launch combines: `chunks` for each output. Those of adjacent outputs are
// output_step apart, and those of one output are chunk_step apart.
struct ReduceCombine {
  ReduceMode mode;
  TensorDesc y;
  int64_t outputs, chunks, output_step, chunk_step, count, lanes;
};

}  // namespace minidnn
