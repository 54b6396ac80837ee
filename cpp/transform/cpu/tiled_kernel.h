// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.transform.tiled, compiled once per instruction set (tiled_isa.cpp).
#pragma once
#include "cpp/core/isa.h"
#include "cpp/transform/transform_math.h"

namespace minidnn {

struct TransformScale {
  float alpha, beta;
  bool reads_y;  // whether y = alpha x + beta y is computed; else y = alpha x
};

// `rows` spans of n elements. Each span is contiguous in x and in y. The starts of spans are `x_pitch` elements apart
// in x and `y_pitch` elements apart in y.
struct TransformSpans {
  const void* x;
  void* y;
  int64_t rows, n, x_pitch, y_pitch;
  bool non_temporal;  // whether the result is written with non-temporal stores
};
using TransformLoop = void (*)(const TransformSpans&, const TransformScale&);
// Transposes a tile: to[j * across + i] = x[i * step + j] for i below `across` and j below `along`. After the result,
// 16 more bytes of `to` must be writable.
using TransformTranspose = void (*)(const void* x, int64_t step, void* to, int64_t across, int64_t along);

struct TransformKernels {
  TransformLoop copy[4];  // bitwise copies, indexed by the size of an element: 1, 2, 4 or 8 bytes
  TransformTranspose transpose[4];
  // Loops, indexed by the DType of x and of y; null if only the reference engine supports the pair.
  TransformLoop cast[6][4];
  TransformLoop scale[6][4];
  // A store fence, to be called after non-temporal stores, before another thread reads the result.
  void (*finish)();
};

MINIDNN_PER_ISA(TransformKernels, transform_kernels)

}  // namespace minidnn
