// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.layer_norm.contiguous_rows over one contiguous row. Compiled once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

// A row of group norm: `channels` planes of `size` elements each. With non_temporal, stores bypass the caches, and the
// output must not be an input.
struct NormPlanes {
  int64_t channels, size;
  bool non_temporal;
};

struct LayerNormKernels {
  // scale and bias may be null. They have one number per element of the row, or one per plane.
  struct Forward {
    const void* x;
    const float *scale, *bias;
    float eps;
    void* y;
    float* mean;  // null with RMS norm
    float* inv_std;
  };
  struct Backward {
    const void *x, *dy;
    const float* scale;
    float mean, inv_std;  // the mean is 0 with RMS norm
    void* dx;
  };
  struct Typed {
    // Writes y, the mean and inv_std of a row of n elements.
    void (*forward)(const Forward&, int64_t n);
    // Writes dx, and adds to dscale[n] and dbias[n]. With RMS norm, dbias is null.
    void (*backward)(const Backward&, int64_t n, float* dscale, float* dbias);
    void (*forward_planes)(const Forward&, const NormPlanes&);
    // Writes dx, and the sums of dy x_hat and of dy of each plane to sums[channels][2].
    void (*backward_planes)(const Backward&, const NormPlanes&, float* sums);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(LayerNormKernels, layer_norm_kernels)

}  // namespace minidnn
