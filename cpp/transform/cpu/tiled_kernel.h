// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.transform.tiled, compiled once per instruction set (transform_isa.cpp).
#pragma once
#include "cpp/core/isa.h"
#include "cpp/transform/transform_math.h"

namespace minidnn {

struct TransformScale {
  float alpha, beta;
  bool reads_y;  // y = alpha x + beta y, else alpha x
};

// `rows` spans of n elements, each contiguous in x and in y; their starts are `x_pitch` and `y_pitch` elements apart.
struct TransformSpans {
  const void* x;
  void* y;
  int64_t rows, n, x_pitch, y_pitch;
  bool non_temporal;  // write the result past the caches
};
using TransformLoop = void (*)(const TransformSpans&, const TransformScale&);
// to[j * across + i] = x[i * step + j] for i in [0, across), j in [0, along). `to` needs 16 more writable bytes.
using TransformTranspose = void (*)(const void* x, int64_t step, void* to, int64_t across, int64_t along);

struct TransformKernels {
  TransformLoop copy[4];  // bitwise copies of elements of 1, 2, 4 or 8 bytes
  TransformTranspose transpose[4];
  TransformLoop cast[6][4];  // by dtype, from and to; null if only the reference engine supports the pair
  TransformLoop scale[6][4];
  void (*finish)();  // to be called after writes past the caches, before another thread reads them
};

MINIDNN_PER_ISA(TransformKernels, transform_kernels)

}  // namespace minidnn
