// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.layer_norm.contiguous_rows over one contiguous row. Compiled once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

// A row of group norm consists of `channels` planes (H x W of one channel) of `size` elements each. If non_temporal is
// set, stores bypass the caches; then the output must not be an input.
struct NormPlanes {
  int64_t channels, size;
  bool non_temporal;
};

struct LayerNormKernels {
  // `scale` and `bias` may be null. They have one number per element of the row, or one per plane for forward_planes()
  // and backward_planes().
  struct Forward {
    const void* x;
    const float *scale, *bias;
    float eps;
    void* y;
    float* mean;  // the mean; null for RMS norm
    float* inv_std;
  };
  struct Backward {
    const void *x, *dy;
    const float* scale;
    float mean, inv_std;  // the mean is 0 for RMS norm
    void* dx;
  };
  struct Typed {
    // Computes a row of n elements: writes y, the mean and inv_std.
    void (*forward)(const Forward&, int64_t n);
    // Computes the gradient of a row of n elements: writes dx, and adds to dscale[n] and dbias[n]. For RMS norm, dbias
    // is null.
    void (*backward)(const Backward&, int64_t n, float* dscale, float* dbias);
    void (*forward_planes)(const Forward&, const NormPlanes&);
    // Computes the gradient of a row of planes: writes dx. For each plane, writes the sums of dy * x_hat and of dy to
    // sums[channels][2].
    void (*backward_planes)(const Backward&, const NormPlanes&, float* sums);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(LayerNormKernels, layer_norm_kernels)

}  // namespace minidnn
