// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.norm.rows over one contiguous row, once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/cpu/isa.h"

namespace minidnn {

struct RowNormKernels {
  struct Typed {
    // Writes y, the row's mean, if there is a place for it (RMS norm: null), and inv_std. scale and bias may be null.
    void (*forward)(const void* x, const float* scale, const float* bias, int64_t n, float eps, void* y, float* mean,
                    float* inv_std);
    // Writes dx, and adds to the columns' dscale and dbias (null with RMS norm, whose mean is 0).
    void (*backward)(const void* x, const void* dy, const float* scale, int64_t n, float mean, float inv_std, void* dx,
                     float* dscale, float* dbias);
    // The same over `channels` planes of n elements, with a number of scale and of bias for each. Backward leaves each
    // channel's sums of dy x_hat and of dy beside each other in `sums`. Past the caches, where no result is an input.
    void (*forward_planes)(const void* x, const float* scale, const float* bias, int64_t channels, int64_t n, float eps,
                           bool non_temporal, void* y, float* mean, float* inv_std);
    void (*backward_planes)(const void* x, const void* dy, const float* scale, int64_t channels, int64_t n, float mean,
                            float inv_std, bool non_temporal, void* dx, float* sums);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(RowNormKernels, row_norm_kernels)

}  // namespace minidnn
