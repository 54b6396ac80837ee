// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.softmax.vectorized, compiled once per instruction set (rows_isa.cpp,
// strips_isa.cpp and blocks_isa.cpp). Tensors are seen as [outer,
// cols, inner] in memory order; cols is the axis.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

// Loops process this many columns at a time, or a divisor of it.
constexpr int64_t kWholeColumns = 32;

// How the work of a problem is divided, and the floats of scratch per thread.
struct SoftmaxTiling {
  // rows: inner is 1, one row at a time. strips: `width` adjacent columns at a time. blocks: several whole outer
  // indices at a time, transposed into strips and back, where a row or its columns are too short for vectors.
  enum Kind : int64_t { rows, strips, blocks } kind;
  int64_t outer, cols, inner;
  int64_t width;           // of a strip, or of the strip that a block becomes
  int64_t items;           // units of work
  int64_t scratch_floats;  // floats of scratch per thread
  int64_t log;             // 1: log-softmax
  int64_t non_temporal;    // 1: the result bypasses the caches
  SoftmaxMask masked;      // only for rows, which are then kept as floats
  MaskLayout mask;
};

// Computes items [begin, end). `scratch`: scratch of this thread, aligned to 64 bytes.
using SoftmaxLoop = void (*)(const SoftmaxTiling&, const SoftmaxArgs&, float* scratch, int64_t begin, int64_t end);

struct SoftmaxLoops {
  SoftmaxLoop forward[4], backward[4];  // by dtype; null for float64
};

MINIDNN_PER_ISA(SoftmaxLoops, softmax_row_loops)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_strip_loops)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_block_loops)

}  // namespace minidnn
