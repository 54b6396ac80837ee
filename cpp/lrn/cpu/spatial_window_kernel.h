// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.lrn.spatial_window. They are compiled once per CPU instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Elements [begin, end) of a row of `row` elements, which are `step` elements apart. The window of an element has
// `above` rows before its row and `below` after it, and in each row `behind` positions before it and `ahead` after it.
constexpr int64_t kSpatialChunk = 512;  // the largest number of elements of a row that a call processes
struct SpatialChunk {
  int64_t begin, end, row, step, above, below, behind, ahead;
  float scale, beta, k;  // scale is alpha divided by the number of elements of a window
};

struct SpatialWindowKernels {
  struct Typed {
    // Computes y for a part of a row. Pointers are to the first element of the row. `means` may be null.
    void (*forward)(const SpatialChunk&, const void* x, const void* means, void* y);
    // Writes dy s^-beta to `own` and the weight g to `g` for each element (see lrn_math.h). If `means` is not null,
    // also writes the gradient of the means.
    void (*weights)(const SpatialChunk&, const void* x, const void* means, const void* dy, float* g, float* own,
                    void* dmeans);
    void (*gradients)(const SpatialChunk&, const void* x, const void* means, const float* g, const float* own,
                      void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(SpatialWindowKernels, spatial_window_kernels)

}  // namespace minidnn
