// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.layer_norm.contiguous_rows over one contiguous row. They are compiled once per instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/layer_norm/layer_norm_math.h"

namespace minidnn {

// A row of group norm: `channels` planes (H x W of one channel) of `size` elements. With `non_temporal`, stores bypass
// the caches, and the output must not be an input.
struct NormPlanes {
  int64_t channels, size;
  bool non_temporal;
};

struct LayerNormKernels {
  // Parameters and statistics are float64 for rows of float64, else float32. Parameters may be null. Layer and RMS norm
  // have one per element of the row, group norm one per channel.
  struct Forward {
    const void *x, *scale, *bias;
    double eps;
    void *y, *mean, *inv_std;  // RMS norm has no mean: `mean` is null
  };
  struct Backward {
    const void *x, *dy, *scale;
    double mean, inv_std;  // `mean` is 0 for RMS norm.
    void* dx;
  };
  struct Typed {
    // Normalizes a row of n elements. Writes y, the mean and inv_std.
    void (*forward)(const Forward&, int64_t n);
    // Computes the gradient of a row of n elements. Writes dx, and adds to the sums dscale[n] and, except for RMS norm
    // (not `centered`), to dbias[n] after them.
    void (*backward)(const Backward&, int64_t n, void* sums, bool centered);
    void (*forward_planes)(const Forward&, const NormPlanes&);
    // Computes dx of a row of group norm. Writes sums[channels][2]: the sum of dy * x_hat and the sum of dy.
    void (*backward_planes)(const Backward&, const NormPlanes&, void* sums);
  } f32, bf16, f16, f64;
  // The two steps of `forward` for float32: layer_norm.h describes them.
  NormStatistics (*statistics)(const float* x, int64_t n, float eps, bool centered);
  void (*normalize)(const float* x, const NormStatistics&, const float* scale, const float* bias, float* y, int64_t n);
};

MINIDNN_PER_ISA(LayerNormKernels, layer_norm_kernels)

}  // namespace minidnn
