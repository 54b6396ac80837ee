// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.layer_norm.contiguous_rows over one contiguous row. Compiled once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

struct LayerNormKernels {
  struct Typed {
    // Writes y, inv_std, and the row's mean, whose pointer is null with RMS norm. scale and bias may be null.
    void (*forward)(const void* x, const float* scale, const float* bias, int64_t n, float eps, void* y, float* mean,
                    float* inv_std);
    // Writes dx, and adds to the columns' dscale and dbias. With RMS norm, dbias is null and the mean is 0.
    void (*backward)(const void* x, const void* dy, const float* scale, int64_t n, float mean, float inv_std, void* dx,
                     float* dscale, float* dbias);
    // The same for rows of `channels` planes with n elements each; scale and bias have one number per plane. Backward
    // writes the sums of dy x_hat and of dy to sums[channels][2]. With non_temporal, stores bypass the caches, and the
    // output must not be an input.
    void (*forward_planes)(const void* x, const float* scale, const float* bias, int64_t channels, int64_t n, float eps,
                           bool non_temporal, void* y, float* mean, float* inv_std);
    void (*backward_planes)(const void* x, const void* dy, const float* scale, int64_t channels, int64_t n, float mean,
                            float inv_std, bool non_temporal, void* dx, float* sums);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(LayerNormKernels, layer_norm_kernels)

}  // namespace minidnn
