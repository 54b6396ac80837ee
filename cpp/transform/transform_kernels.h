// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.transform.tiled, compiled once per instruction set (transform_isa.cpp).
#pragma once
#include "cpp/cpu/isa.h"
#include "cpp/transform/transform_math.h"

namespace minidnn {

struct TransformScale {
  float alpha, beta;
  bool reads_y;  // y = alpha x + beta y, else alpha x
};

// `rows` runs of n elements, contiguous in both; the runs begin `x_pitch` and `y_pitch` elements apart.
struct TransformRuns {
  const void* x;
  void* y;
  int64_t rows, n, x_pitch, y_pitch;
  bool non_temporal;  // the result is not to fill them
};
using TransformRun = void (*)(const TransformRuns&, const TransformScale&);
// to[j * across + i] = x[i * step + j] for i in [0, across), j in [0, along). `to` has 16 bytes more than that.
using TransformTranspose = void (*)(const void* x, int64_t step, void* to, int64_t across, int64_t along);

struct TransformKernels {
  TransformRun copy[4];  // bits of 1, 2, 4 or 8 bytes
  TransformTranspose transpose[4];
  TransformRun cast[6][4];  // by dtype, from and to; null where the reference has to do it
  TransformRun scale[6][4];
  void (*finish)();  // after runs past the caches, before anyone else reads them
};

MINIDNN_PER_ISA(TransformKernels, transform_kernels)

}  // namespace minidnn
