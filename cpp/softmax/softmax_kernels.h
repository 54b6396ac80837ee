// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.softmax.dense, compiled once per instruction set (softmax_isa.cpp). Tensors are seen as
// [outer, cols, inner] in the order of memory, the middle one the axis.
#pragma once
#include "cpp/cpu/isa.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

constexpr int64_t kWholeColumns = 32;  // loops take as many columns at a time, or a part of them that divides it

// How the work is cut, and the floats of room that a piece of it needs. All engines of a problem agree on it.
struct SoftmaxCut {
  // rows: inner is 1, a row at a time. strips: `width` columns beside each other at a time. blocks: whole outer indices
  // at a time, turned into strips and back, where a row or its columns are too short for vectors.
  enum Kind : int64_t { rows, strips, blocks } kind;
  int64_t outer, cols, inner;
  int64_t width;         // of a strip, or of what a block becomes
  int64_t items;         // pieces of work
  int64_t room_floats;   // of one thread
  int64_t log;           // 1: log-softmax
  int64_t non_temporal;  // 1: the result is not to fill the caches
  SoftmaxMask masked;    // rows alone, which then are kept as floats
  MaskWalk mask;
};

// Items [begin, end). `room`: the thread's own, aligned to 64 bytes.
using SoftmaxLoop = void (*)(const SoftmaxCut&, const SoftmaxArgs&, float* room, int64_t begin, int64_t end);

struct SoftmaxKernels {
  SoftmaxLoop forward[4], backward[4];  // by dtype; null for float64
};

MINIDNN_PER_ISA(SoftmaxKernels, softmax_kernels)

}  // namespace minidnn
