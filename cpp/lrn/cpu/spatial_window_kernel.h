// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.lrn.spatial_window. Compiled once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

// Elements [begin, end) of a row, and their windows in space. Adjacent positions of a row are `step` elements apart.
// Rows are `row` elements apart; windows have `above` rows before this one and `below` after it. Within a row, windows
// have `behind` positions before an element and `ahead` after it.
constexpr int64_t kSpatialChunk = 512;  // elements at most
struct SpatialChunk {
  int64_t begin, end, row, step, above, below, behind, ahead;
  float scale, beta, k;  // scale: alpha / size^d
};

struct SpatialWindowKernels {
  struct Typed {
    // Pointers are to the first element of the row. means may be null.
    void (*forward)(const SpatialChunk&, const void* x, const void* means, void* y);
    // Writes g and dy s^-beta of the chunk and, if there are means, their gradient.
    void (*weights)(const SpatialChunk&, const void* x, const void* means, const void* dy, float* g, float* own,
                    void* dmeans);
    void (*gradients)(const SpatialChunk&, const void* x, const void* means, const float* g, const float* own,
                      void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(SpatialWindowKernels, spatial_window_kernels)

}  // namespace minidnn
