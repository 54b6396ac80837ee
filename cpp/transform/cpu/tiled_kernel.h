// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.transform.tiled, compiled once per instruction set (tiled_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/transform/transform_math.h"

namespace minidnn {

struct TransformScale {
  float alpha, beta;
  // True if y = alpha * x + beta * y is computed, false if y = alpha * x is computed.
  bool reads_y;
};

// `rows` spans of n elements, which are contiguous in x and in y. Their beginnings are `x_pitch` elements apart in x,
// and `y_pitch` in y.
struct TransformSpans {
  const void* x;
  void* y;
  int64_t rows, n, x_pitch, y_pitch;
  bool non_temporal;  // true if the result is written with non-temporal stores
};
using TransformLoop = void (*)(const TransformSpans&, const TransformScale&);
// Computes to[j * across + i] = x[i * step + j] for all i < across and j < along. May write up to 16 bytes after the
// last element.
using TransformTranspose = void (*)(const void* x, int64_t step, void* to, int64_t across, int64_t along);

struct TransformKernels {
  // Functions that copy bits, indexed by the logarithm to base 2 of the size of an element in bytes (1, 2, 4 or 8).
  TransformLoop copy[4];
  TransformTranspose transpose[4];
  // Tables of functions, indexed by the DType of x and the DType of y. A pointer is null if only the reference engine
  // supports this pair of dtypes.
  TransformLoop cast[6][4];
  TransformLoop scale[6][4];
  // Casts of elements between the types in which they are computed, indexed by the dtypes of x and y. A pointer is null
  // if elements of the dtype of x are computed in another type.
  void (*cast_computed[8][9])(const void* x, void* y, int64_t n);
  // Computes out = alpha * x, or out = alpha * x + beta * y if y is not null, for n floats [0] or doubles [1]. `out` may
  // be x or y.
  void (*scale_computed[2])(const void* x, const void* y, void* out, int64_t n, double alpha, double beta);
  // Issues a store fence. It must be called after non-temporal stores, before another thread reads the result.
  void (*finish)();
};

MINIDNN_PER_ISA(TransformKernels, transform_kernels)

}  // namespace minidnn
