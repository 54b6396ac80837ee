// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.lrn.spatial_window. They are compiled once per CPU instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

// Elements [begin, end) of one row of a tensor, and the extent of their windows. A row has `row` elements. Adjacent
// positions of a row are `step` elements apart. A window has `above` rows before the row of its element, and `below`
// rows after it. Within each row, it has `behind` positions before the element and `ahead` positions after it.
constexpr int64_t kSpatialChunk = 512;  // the most elements of a chunk
struct SpatialChunk {
  int64_t begin, end, row, step, above, below, behind, ahead;
  float scale, beta, k;  // scale: alpha / the number of elements of a window
};

struct SpatialWindowKernels {
  struct Typed {
    // Each pointer is the address of the row's first element. `means` may be null.
    void (*forward)(const SpatialChunk&, const void* x, const void* means, void* y);
    // Writes dy s^-beta and the weight g (see lrn_math.h) of each element. If `means` is not null, also writes dmeans.
    void (*weights)(const SpatialChunk&, const void* x, const void* means, const void* dy, float* g, float* own,
                    void* dmeans);
    void (*gradients)(const SpatialChunk&, const void* x, const void* means, const float* g, const float* own,
                      void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(SpatialWindowKernels, spatial_window_kernels)

}  // namespace minidnn
