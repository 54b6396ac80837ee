// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.softmax.vectorized, compiled once per instruction set (rows_isa.cpp, strips_isa.cpp and
// blocks_isa.cpp). A tensor is described as [outer, cols, inner] in memory order, where `cols` is the axis of softmax.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

// A multiple of the number of columns that a loop processes at a time.
constexpr int64_t kWholeColumns = 32;

// How a call is divided into items, and the scratch memory that a thread needs.
struct SoftmaxTiling {
  // What an item is. rows: a contiguous row (`inner` is 1). strips: `width` adjacent columns. blocks: several outer
  // indices, which are transposed into a strip and back; for rows that are too short for vectors, and for too few
  // adjacent columns.
  enum Kind : int64_t { rows, strips, blocks } kind;
  int64_t outer, cols, inner;
  int64_t width;           // columns of a strip, or of the strip that a block is transposed to
  int64_t items;           // number of items
  int64_t scratch_floats;  // floats of scratch memory per thread
  int64_t log;             // 1 for log-softmax, 0 for softmax
  int64_t non_temporal;    // 1 if the result is written with non-temporal stores, else 0
  SoftmaxMask masked;      // the kind of mask; only rows may have a mask, and a masked row is kept as floats
  MaskLayout mask;
};

// Computes the items [begin, end). `scratch` is the scratch memory of this thread, aligned to 64 bytes.
using SoftmaxLoop = void (*)(const SoftmaxTiling&, const SoftmaxArgs&, float* scratch, int64_t begin, int64_t end);

struct SoftmaxLoops {
  SoftmaxLoop forward[4], backward[4];  // the loops, indexed by DType; null for float64
};

MINIDNN_PER_ISA(SoftmaxLoops, softmax_row_loops)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_strip_loops)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_block_loops)

}  // namespace minidnn
