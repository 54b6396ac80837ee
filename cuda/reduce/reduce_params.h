// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of reductions, and the sizes of their blocks. This file does not use the standard
// library, because NVRTC compiles it.
#pragma once
#include "cpp/reduce/reduce_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kReduceThreads = 256;
constexpr int kReduceAhead = 4;  // the number of 16-byte vectors whose loads a thread has in flight

// A reduction whose elements are stored in contiguous spans. An output is one element of the result. The elements that
// are reduced to it are divided into chunks. If an output has several spans, a chunk has spans_per_chunk whole spans.
// If a span is long, it is divided into `slices` slices, and a chunk is one of these slices.
struct ReduceRows {
  ReduceMode mode;
  CachePolicy policy;
  // Three layouts that give offsets. `y` gives the offset of each result in y. `kept` gives the offset in x of the
  // first element that is reduced to this result. `spans` gives the offset of each contiguous span of elements,
  // relative to the first element.
  TensorDesc y, kept, spans;
  // The elements that are reduced to one output form spans, which are divided into slices or joined into chunks.
  // `items` is the number of chunks of all outputs. `slice` is the number of elements in a slice, `span` is the number
  // of elements in a span, and `count` is the number of elements that are reduced to one output.
  int64_t items, chunks, slices, slice, span, spans_per_chunk, count;
  int64_t lanes;  // the number of threads that reduce one chunk (some elements that are reduced to the same result)
};

// A reduction in which x[outer][row][column] is reduced over the rows, so neighbouring columns give neighbouring
// results. `pitch` is the distance from one row to the next, in elements.
struct ReduceColumns {
  ReduceMode mode;
  CachePolicy policy;
  TensorDesc y, outer;
  int64_t columns, column_blocks, rows, pitch, chunks, rows_per_chunk, outputs;
  int64_t lanes;  // the number of threads of a block that read along the same row
  int64_t wide;   // 1 if the vectors of each row begin at multiples of 16 bytes, else 0
  // The number of rows, from the first row on, in which a thread can load two vectors at any column without reading
  // past the end of x.
  int64_t whole_rows;
};

// The partial results that a second launch combines. An output is one element of the result, and has `chunks` partial
// results. The partial results of neighbouring outputs are output_step apart. Neighbouring partial results of one
// output are chunk_step apart.
struct ReduceCombine {
  ReduceMode mode;
  TensorDesc y;
  int64_t outputs, chunks, output_step, chunk_step, count, lanes;
};

}  // namespace minidnn
