// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.softmax.vectorized, compiled once per instruction set (rows_isa.cpp, strips_isa.cpp and
// blocks_isa.cpp). A tensor is described as [outer, cols, inner], where `cols` is the axis of softmax and `inner`
// counts adjacent elements.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

// Buffers have a multiple of this number of columns, so that no loop needs a remainder.
constexpr int64_t kWholeColumns = 32;

// How a call of softmax is divided into items that threads share.
struct SoftmaxTiling {
  // An item is one contiguous row (`inner` is 1), a strip of `width` adjacent columns, or a block of several rows.
  // Blocks are for rows that are too short for vectors, or if too few columns are adjacent.
  enum Kind : int64_t { rows, strips, blocks } kind;
  int64_t outer, cols, inner;
  // The number of columns of a strip: of the tensor, or of a transposed copy of several rows.
  int64_t width;
  int64_t items;            // the number of rows, strips or blocks
  int64_t scratch_numbers;  // the number of floats (doubles for float64) of scratch memory per thread
  int64_t log;              // 1 for log-softmax, 0 for softmax
  int64_t non_temporal;     // 1 if the result is written with non-temporal stores, else 0
  int64_t dense;            // 1 if the tensors are dense and have equal strides, else 0. Blocks are dense.
  RowLayout in, dy, out;    // the outer indices of the tensors
  // Only contiguous rows may have a mask. They are stored in scratch memory as numbers.
  SoftmaxMask masked;
  RowLayout mask;
};

// Computes the items [begin, end) of a call. `scratch` is the thread's own memory, aligned to 64 bytes.
using SoftmaxLoop = void (*)(const SoftmaxTiling&, const SoftmaxArgs&, void* scratch, int64_t begin, int64_t end);

struct SoftmaxLoops {
  SoftmaxLoop forward[4], backward[4];  // the loops, indexed by DType; those of blocks are null for float64
};

// Steps of the row loops for float32, for engines of graphs (cpp/softmax/softmax.h).
struct SoftmaxRowSteps {
  SoftmaxSums (*exponentials)(const float* x, float* e, int64_t n, float scale);
  float (*gradient_sum)(const float* y, const float* dy, int64_t n, bool log);
  void (*gradient)(const float* y, const float* dy, float* dx, int64_t n, bool log, float sum, float scale);
};

MINIDNN_PER_ISA(SoftmaxRowSteps, softmax_row_steps)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_row_loops)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_strip_loops)
MINIDNN_PER_ISA(SoftmaxLoops, softmax_block_loops)

}  // namespace minidnn
